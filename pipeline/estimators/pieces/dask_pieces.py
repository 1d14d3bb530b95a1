"""Dask arrays and frames as pieces.

Each is computed by parts of its own: how an optimizer joins the partitions of two expressions of the same files may
differ, so that features and targets are cut together only by their numbers of rows.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ridgestream.pipeline.base.errors import InputError

Lazy = Any
"""A delayed part of rows."""


def pieces_of(X: Any) -> tuple[tuple[int, ...], Callable[[int], Any]]:
    """Return the rows of each part of an array (rows, features) or a frame, and what computes a part."""
    if hasattr(X, "chunks") and X.ndim != 2:
        raise InputError(f"X must have two dimensions (rows, features), it has shape {X.shape}")
    parts = _parts_of(X)
    return _counts_of(X, parts), lambda number: parts[number].compute()


def column_of(values: Any) -> tuple[int, Callable[[int, int], Any]]:
    """Return the number of rows of a column or array, and what computes those from one up to another."""
    parts = _parts_of(values)
    column = _Column(parts, _counts_of(values, parts))
    return column.ends[-1], column.read


def apply(X: Any, function: Callable[[Any], Any], example: Any) -> Any:
    """Return `function` of each part as a dask array, lazily; `example` is what it returns of one row."""
    import dask.array as da
    from dask.delayed import delayed

    if not hasattr(X, "chunks"):
        shape = (np.nan, *example.shape[1:])
        arrays = [da.from_delayed(delayed(function)(part), shape, example.dtype) for part in _parts_of(X)]
        return da.concatenate(arrays, allow_unknown_chunksizes=True)
    whole = X.rechunk({1: -1})
    columns = {"chunks": (whole.chunks[0], *((size,) for size in example.shape[1:]))}
    axes = {"drop_axis": [1]} if example.ndim == 1 else {"new_axis": list(range(2, example.ndim))}
    return da.map_blocks(function, whole, dtype=example.dtype, meta=example[:0], **columns, **axes)


def _parts_of(values: Any) -> list[Lazy]:
    """Return the parts of an array or a frame, each with all columns."""
    whole = values.rechunk({1: -1}) if hasattr(values, "chunks") and values.ndim == 2 else values
    parts = whole.to_delayed()
    return list(parts.ravel()) if isinstance(parts, np.ndarray) else list(parts)


def _counts_of(values: Any, parts: Sequence[Lazy]) -> tuple[int, ...]:
    """Return the rows of each part; those of parts with unknown sizes are counted."""
    from dask.base import compute
    from dask.delayed import delayed

    if hasattr(values, "chunks") and not np.isnan(values.shape[0]):
        return tuple(int(rows) for rows in values.chunks[0])
    return tuple(compute(*(delayed(len)(part) for part in parts)))


class _Column:
    """A column in parts, of which the last one that was computed stays in memory."""

    def __init__(self, parts: Sequence[Lazy], counts: Sequence[int]) -> None:
        self._parts = parts
        self.ends = list(accumulate(counts, initial=0))
        self._last: tuple[int, Any] | None = None

    def read(self, start: int, stop: int) -> Any:
        """Return the rows from `start` up to `stop`."""
        bounds = list(zip(self.ends, self.ends[1:], strict=False))
        needed = [number for number, (low, high) in enumerate(bounds) if low < stop and high > start]
        rows = [self._part(n)[max(start - self.ends[n], 0) : stop - self.ends[n]] for n in needed or [0]]
        return np.concatenate(rows)

    def _part(self, number: int) -> Any:
        if self._last is None or self._last[0] != number:
            self._last = number, np.asarray(self._parts[number].compute())
        return self._last[1]
