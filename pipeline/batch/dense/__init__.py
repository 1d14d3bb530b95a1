"""Methods with a kernel matrix of all rows, for small data."""
