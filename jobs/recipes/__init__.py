"""Job files that are installed with their data, and run by name."""
