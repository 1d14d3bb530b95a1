"""The Dask executor: connection, tasks on workers, lost workers."""
