"""What is printed: progress, tables, log lines."""
