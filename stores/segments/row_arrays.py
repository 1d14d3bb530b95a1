"""The arrays with rows of a group, read in ranges of rows."""

from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ridgestream.stores.errors.translation import read_errors
from ridgestream.stores.segments.checked_array import check_sealed, read_array
from ridgestream.stores.segments.segment_format import ROW_ARRAYS
from ridgestream.stores.segments.size_limits import check_array, check_metadata

if TYPE_CHECKING:
    import zarr

Columns = dict[str, npt.NDArray[Any]]
"""Rows as stored, by the name of their array."""


class RowArrays:
    """The arrays with rows of one group."""

    def __init__(self, root: "zarr.Group", path: str, others: tuple[str, ...]) -> None:
        """Open the group; raises StoreError if it is missing or has no targets. `others` are its other members."""
        check_metadata(root.store, path, members=(*ROW_ARRAYS, *others))
        self.group = cast("zarr.Group", root[path])
        self._opened: dict[str, zarr.Array[Any]] = {}
        check_sealed(self.group, (*ROW_ARRAYS, *others))
        targets = self.array("targets")
        check_array(targets, 0)
        self.rows: int = targets.shape[0]
        self.chunk_rows: int = targets.chunks[0]
        self._whole: Columns | None = None

    def array(self, name: str) -> "zarr.Array[Any]":
        """Return an array of the group; raises KeyError if there is none of that name."""
        if name not in self._opened:
            self._opened[name] = cast("zarr.Array[Any]", self.group[name])
        return self._opened[name]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The arrays with rows that there are."""
        return tuple(name for name in ROW_ARRAYS if name in self.group)

    @property
    def row_bytes(self) -> float:
        """Uncompressed bytes of a row."""
        arrays = [self.array(name) for name in self.names]
        return float(sum(np.dtype(array.dtype).itemsize * prod(map(int, array.shape[1:])) for array in arrays))

    def read(self, start: int, stop: int) -> Columns:
        """Return the rows from `start` up to `stop`; raises StoreError if a chunk is missing or damaged."""
        return {name: read_array(self.array(name), start, stop) for name in self.names}

    def read_from_whole(self, start: int, stop: int) -> Columns:
        """Return the same rows, from a copy of all rows that is read once and stays in memory."""
        if self._whole is None:
            whole = self.read(0, self.rows)
            if any(len(values) != self.rows for values in whole.values()):
                raise ValueError("its arrays have different numbers of rows")
            self._whole = whole
        return {name: values[start:stop].copy() for name, values in self._whole.items()}


def open_rows(root: "zarr.Group", path: str, others: tuple[str, ...]) -> RowArrays:
    """Return the arrays with rows of a group; raises StoreError if it is missing, incomplete or damaged."""
    with read_errors(f"{path} of the store"):
        return RowArrays(root, path, others)
