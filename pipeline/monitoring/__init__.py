"""Drift of partitions."""
