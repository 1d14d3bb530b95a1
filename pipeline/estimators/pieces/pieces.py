"""Rows as pieces, each of which fits in memory.

The library of a kind of rows is used only where such rows come.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from sklearn.utils.validation import _num_samples

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.estimators.pieces import dask_pieces, dataset_pieces

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
    """Rows that are read piece by piece, as often as they are needed."""

    counts: tuple[int, ...]
    """The rows of each piece."""
    features: Callable[[int], Any]
    """Reads the features of a piece."""
    y: Callable[[int], Any] | None = None
    """Reads its targets."""
    weights: Callable[[int], Any] | None = None
    """Reads its weights."""

    def load(self, number: int) -> Piece:
        """Return a piece."""
        return Piece(self.features(number), *(read and read(number) for read in (self.y, self.weights)))

    def __iter__(self) -> Iterator[Piece]:
        """Yield the pieces in their order."""
        return map(self.load, range(len(self.counts)))

    def targets(self) -> Iterator[Any]:
        """Yield the targets of each piece."""
        return map(self.y, range(len(self.counts))) if self.y else iter(())

    @cached_property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The first row of each piece, and one past its last."""
        return tuple(pairwise(accumulate(self.counts, initial=0)))

    def with_columns(self, y: Any, sample_weight: Any) -> "Pieces":
        """Return the pieces with their parts of targets and weights, lazy or in memory, of all rows."""
        columns = (self._part_of(values, name) for values, name in ((y, "y"), (sample_weight, "sample_weight")))
        return Pieces(self.counts, self.features, *columns)

    def _part_of(self, values: Any, name: str) -> Callable[[int], Any] | None:
        if values is None:
            return None
        if isinstance(values, str):
            raise InputError(
                f"{name} is the text {values!r:.80}: only a pyarrow dataset has columns by name; of a frame give the "
                "column itself, and X without it"
            )
        if len(self.counts) == 1 and not _is_of(values, "dask", "zarr"):
            return lambda _: values  # as it was given; whether it fits is judged where it is read
        rows, read = dask_pieces.column_of(values) if _is_of(values, "dask") else _column_of(values)
        if rows != sum(self.counts):
            raise InputError(f"{name} has {rows} rows, X has {sum(self.counts)}")
        return lambda number: read(*self.bounds[number])


def pieces_of(X: Any, y: Any = None, sample_weight: Any = None, known: Sequence[str] | None = None) -> Pieces:
    """Return rows as pieces: chunks of rows of a dask or Zarr array, partitions, row groups, or all rows in memory.

    Rows of dask whose chunks have unknown sizes are counted first. Of a pyarrow dataset, y and sample_weight are names
    of columns, and the features the other ones, or those that are `known`. Raises InputError for targets of another
    number of rows.
    """
    if _is_dataset(X):
        return Pieces(*dataset_pieces.pieces_of(X, y, sample_weight, known))
    return _features_of(X).with_columns(y, sample_weight)


def is_in_pieces(X: Any) -> bool:
    """Return whether rows are read piece by piece."""
    return _is_of(X, "dask", "zarr") or _is_dataset(X)


def apply_to_pieces(X: Any, function: Callable[[Any], Any], example: Any, known: Sequence[str]) -> Any:
    """Return `function` of each piece: lazily as a dask array for dask, else all of it in memory.

    `example` is what it returns of one row, `known` the names of a dataset's features.
    """
    if _is_of(X, "dask"):
        return dask_pieces.apply(X, function, example)
    return np.concatenate([example[:0], *(function(piece.X) for piece in pieces_of(X, known=known))])


def _features_of(X: Any) -> Pieces:
    if _is_of(X, "dask"):
        return Pieces(*dask_pieces.pieces_of(X))
    if not _is_of(X, "zarr"):
        return Pieces((_num_samples(X),), lambda _: X)
    step = max(1, -(-_LEAST_ROWS // X.chunks[0])) * X.chunks[0]
    starts = range(0, X.shape[0], step)
    counts = tuple(min(step, X.shape[0] - start) for start in starts)
    return Pieces(counts, lambda number: X[starts[number] : starts[number] + step])


def _column_of(values: Any) -> tuple[int, Callable[[int, int], Any]]:
    rows = values.iloc if hasattr(values, "iloc") else values
    return _num_samples(values) if not _is_of(values, "zarr") else values.shape[0], lambda start, stop: rows[start:stop]


def _is_of(values: Any, *libraries: str) -> bool:
    return type(values).__module__.split(".")[0] in libraries


def _is_dataset(values: Any) -> bool:
    return _is_of(values, "pyarrow") and hasattr(values, "get_fragments")
