"""Rows of a store as blocks, row sets and dask arrays."""
