"""Rows in pieces: dask arrays and frames, Zarr arrays, pyarrow datasets, one piece at a time, and rows in memory.

The library of a kind of rows is used only where such rows come.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from sklearn.utils.validation import _num_samples

from ridgestream.pipeline.base.errors import InputError

_LEAST_ROWS = 16_384
"""Rows of a Zarr array that are read together, at least."""


@dataclass(frozen=True)
class Piece:
    """Consecutive rows in memory."""

    X: Any
    """Their features."""
    y: Any
    """Their targets."""
    weights: Any
    """Their weights, or None."""


@dataclass(frozen=True)
class Pieces:
    """Rows that are read piece by piece, as often as they are asked for."""

    counts: tuple[int, ...]
    """The rows of each piece."""
    features: Callable[[int], Any]
    """Reads the features of a piece."""
    y: Any
    """The targets of all rows, in memory, lazy, or a function of the number of a piece."""
    weights: Any = None
    """Their weights, likewise."""

    @cached_property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The first row of each piece, and one past its last."""
        return tuple(pairwise(accumulate(self.counts, initial=0)))

    def load(self, number: int) -> Piece:
        """Return a piece."""
        return Piece(self.features(number), self._part(self.y, number), self._part(self.weights, number))

    def targets(self) -> Iterator[Any]:
        """Yield the targets of each piece."""
        return (self._part(self.y, number) for number in range(len(self.counts)))

    def _part(self, values: Any, number: int) -> Any:
        if values is None:
            return None
        if callable(values):
            return values(number)
        if len(self.counts) == 1 and not _is_of(values, "dask", "zarr"):
            return values
        return _slice(values, *self.bounds[number])


def pieces_of(X: Any, y: Any, sample_weight: Any) -> Pieces:
    """Return rows as pieces: chunks of rows of a dask or Zarr array, partitions, row groups, or all rows in memory.

    Of a dask array or frame with unknown chunk sizes, the rows are counted first. Raises InputError for targets of
    another number of rows.
    """
    if _is_of(X, "dask"):
        pieces = _of_dask(X, y, sample_weight)
    elif _is_of(X, "zarr"):
        pieces = _of_zarr(X, y, sample_weight)
    elif _is_dataset(X):
        return _of_dataset(X, y, sample_weight)
    else:
        return Pieces((_num_samples(X),), lambda _: X, y, sample_weight)
    rows = sum(pieces.counts)
    for name, values in (("y", pieces.y), ("sample_weight", pieces.weights)):
        if values is not None and len(values) != rows:
            raise InputError(f"{name} has {len(values)} rows, X has {rows}")
    return pieces


def is_in_pieces(X: Any) -> bool:
    """Return whether rows are read piece by piece."""
    return _is_of(X, "dask", "zarr") or _is_dataset(X)


def apply_to_pieces(X: Any, function: Callable[[Any], Any], example: Any) -> Any:
    """Return `function` of each piece: lazily as a dask array for dask, else all of it in memory.

    `example` is what it returns of one row.
    """
    if not _is_of(X, "dask"):
        pieces = _of_zarr(X, None, None) if _is_of(X, "zarr") else _of_dataset(X, None, None)
        return np.concatenate(
            [example[:0], *(function(pieces.features(number)) for number in range(len(pieces.counts)))]
        )
    import dask.array as da

    if hasattr(X, "to_delayed") and not hasattr(X, "chunks"):
        from dask.delayed import delayed

        lazy = [delayed(function)(part) for part in X.to_delayed()]
        shape = (np.nan, *example.shape[1:])
        return da.concatenate(
            [da.from_delayed(part, shape, example.dtype) for part in lazy], allow_unknown_chunksizes=True
        )
    whole = X.rechunk({1: -1})
    columns = {"chunks": (whole.chunks[0], *((size,) for size in example.shape[1:]))}
    axes = {"drop_axis": [1]} if example.ndim == 1 else {"new_axis": list(range(2, example.ndim))}
    return da.map_blocks(function, whole, dtype=example.dtype, meta=example[:0], **columns, **axes)


def _of_dask(X: Any, y: Any, sample_weight: Any) -> Pieces:
    import dask.array as da

    if isinstance(X, da.Array):
        whole = _counted(X).rechunk({1: -1}) if X.ndim == 2 else X
        if whole.ndim != 2:
            raise InputError(f"X must have two dimensions (rows, features), it has shape {X.shape}")
        counts = tuple(int(rows) for rows in whole.chunks[0])
        return Pieces(counts, lambda number: whole.blocks[number].compute(), _counted(y), _counted(sample_weight))
    parts = X.to_delayed()
    counts = tuple(int(rows) for rows in X.map_partitions(len).compute())
    return Pieces(counts, lambda number: parts[number].compute(), _counted(y, counts), _counted(sample_weight, counts))


def _counted(values: Any, counts: tuple[int, ...] | None = None) -> Any:
    """Return a lazy array, or a column as one, with the number of its rows; anything else as it is."""
    if not _is_of(values, "dask"):
        return values
    if hasattr(values, "to_dask_array"):
        return values.to_dask_array(lengths=list(counts) if counts else True)
    known = values.copy()
    return known.compute_chunk_sizes() if np.isnan(known.shape[0]) else known


def _of_zarr(X: Any, y: Any, sample_weight: Any) -> Pieces:
    step = max(1, -(-_LEAST_ROWS // X.chunks[0])) * X.chunks[0]
    starts = range(0, X.shape[0], step)
    counts = tuple(min(step, X.shape[0] - start) for start in starts)
    return Pieces(counts, lambda number: X[starts[number] : starts[number] + step], y, sample_weight)


def _of_dataset(X: Any, y: Any, sample_weight: Any) -> Pieces:
    """Return the row groups of a pyarrow dataset; targets and weights are names of its columns."""
    named = [each for each in (y, sample_weight) if each is not None]
    targets = [name for each in named for name in ([each] if isinstance(each, str) else list(each))]
    if unknown := [name for name in targets if name not in X.schema.names]:
        raise InputError(f"y and sample_weight of a dataset are names of its columns; there is no {unknown[0]!r:.80}")
    others = [name for name in X.schema.names if name not in targets]
    groups = [group for fragment in X.get_fragments() for group in _row_groups_of(fragment)]
    counts = tuple(_count_rows(group) for group in groups)

    def column(name: Any) -> Any:
        if name is None:
            return None
        if isinstance(name, str):
            return lambda number: groups[number].to_table(columns=[name])[name].to_numpy()
        return lambda number: groups[number].to_table(columns=list(name)).to_pandas().to_numpy()

    return Pieces(counts, lambda number: groups[number].to_table(columns=others), column(y), column(sample_weight))


def _row_groups_of(fragment: Any) -> list[Any]:
    """Return the row groups of a Parquet file; a file of another kind as a whole."""
    return fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else [fragment]


def _count_rows(group: Any) -> int:
    if hasattr(group, "row_groups"):  # `count_rows` is that of the whole file
        return sum(int(each.num_rows) for each in group.row_groups)
    return int(group.count_rows())


def _slice(values: Any, start: int, stop: int) -> Any:
    part = values.iloc[start:stop] if hasattr(values, "iloc") else values[start:stop]
    return part.compute() if _is_of(part, "dask") else part


def _is_of(values: Any, *libraries: str) -> bool:
    return type(values).__module__.split(".")[0] in libraries


def _is_dataset(values: Any) -> bool:
    return _is_of(values, "pyarrow") and hasattr(values, "get_fragments")
