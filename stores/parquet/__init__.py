"""Parquet partitions read and written."""
