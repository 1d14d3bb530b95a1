"""Loaded into a worker: some reads of partitions and segments fail at first, as they do over a network."""

from collections import Counter
from typing import Any

import pyarrow.parquet as pq

from ridgestream.stores.segments.segments import Segment

_calls: Counter[str] = Counter()


def _failing(name: str, real: Any, error: Exception) -> Any:
    """Fail at the second call and at every seventh one."""

    def call(*arguments: Any, **named: Any) -> Any:
        _calls[name] += 1
        if _calls[name] == 2 or _calls[name] % 7 == 0:
            raise error
        return real(*arguments, **named)

    return call


def dask_setup(worker: object) -> None:
    """Replace the functions; called by Dask for its option --preload."""
    del worker
    pq.ParquetFile.iter_batches = _failing("partition", pq.ParquetFile.iter_batches, OSError(5, "Input/output error"))
    Segment.read = _failing("segment", Segment.read, ConnectionResetError("reset by peer"))  # type: ignore[method-assign]
