"""Parquet partitions into the store."""
