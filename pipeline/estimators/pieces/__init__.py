"""Rows in pieces: dask arrays and frames, Zarr arrays, pyarrow datasets, a piece at a time, and rows in memory."""
