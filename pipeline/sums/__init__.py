"""Mergeable sums over rows: the results of passes."""
