"""The Icechunk repository: creation, locks and leases, readers, garbage collection."""
