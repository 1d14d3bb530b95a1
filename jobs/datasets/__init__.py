"""Reference data sets."""
