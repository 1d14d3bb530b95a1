"""The contents of a store: ledger, models, snapshots, checkpoints, and their expiry."""
