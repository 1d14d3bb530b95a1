"""Writing segments: large ones as groups of their own, chunk by chunk, small ones together in packs."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import store_errors
from ridgestream.stores.schema.row_batch import Rows, regroup
from ridgestream.stores.segments.checked_array import create_array, seal_group
from ridgestream.stores.segments.packs import Member, write_packs
from ridgestream.stores.segments.segment_format import (
    ROW_ARRAYS,
    ROW_DIMENSIONS,
    SegmentFacts,
    SegmentLayout,
    mark_missing,
    segment_path,
)

if TYPE_CHECKING:
    import zarr

MOST_WAITING_BYTES = 32 * 2**20
"""Bytes of small segments that wait in memory to be written together."""


class SegmentWriter:
    """Writes segments into a session; the small ones wait until `finish` or until they take too much memory."""

    def __init__(self, root: "zarr.Group") -> None:
        self._root = root
        self._waiting: list[Member] = []
        self._bytes = 0

    def write(self, number: int, layout: SegmentLayout, rows: Iterable[Rows], facts: SegmentFacts) -> None:
        """Write a segment; raises StoreError if the rows are not as many as the layout says."""
        if not layout.is_small:
            write_segment(self._root, number, layout, rows, facts)
            return
        joined = list(regroup(rows, layout.rows + 1))
        _check_rows(number, layout, sum(map(len, joined)))
        member = Member.of(number, joined[0] if joined else empty_rows(layout), facts, single=layout.single)
        self._waiting.append(member)
        self._bytes += sum(values.nbytes for values in member.rows.values()) + member.moments.nbytes
        if self._bytes > MOST_WAITING_BYTES:
            self.finish()

    def finish(self) -> None:
        """Write the segments that wait."""
        write_packs(self._root, self._waiting)
        self._waiting, self._bytes = [], 0


def empty_rows(layout: SegmentLayout) -> Rows:
    """Return no rows in the shape of the layout."""
    weights = np.empty(0) if layout.weighted else None
    codes = np.empty((0, layout.n_categorical), dtype=np.int32)
    ahead = np.empty((0, layout.n_ahead)) if layout.n_ahead else None
    return Rows(np.empty((0, layout.n_numeric)), codes, np.empty((0, layout.n_targets)), weights, ahead)


def write_segment(
    root: "zarr.Group", number: int, layout: SegmentLayout, batches: Iterable[Rows], facts: SegmentFacts
) -> None:
    """Write a segment as a group of its own: its rows chunk by chunk, then its facts; memory use is a few chunks."""
    subject = f"{segment_path(number)} of the store"
    with store_errors(subject):
        group = root.create_group(segment_path(number))
        arrays = _create_arrays(group, layout)
    start, width = 0, np.float32 if layout.single else np.float64
    for rows in regroup(batches, layout.chunk_rows):
        stop = start + len(rows)
        numeric = mark_missing(rows.numeric.astype(width, copy=False)) if facts.missing else rows.numeric
        columns = {name: getattr(rows, name) for name in ROW_ARRAYS} | {"numeric": numeric}
        with store_errors(subject):
            for name, array in arrays.items():
                array[start:stop] = cast("npt.NDArray[Any]", columns[name])
        start = stop
    _check_rows(number, layout, start)
    with store_errors(subject):
        _write_facts(group, facts)


def _check_rows(number: int, layout: SegmentLayout, written: int) -> None:
    if written != layout.rows:
        raise StoreError(f"segment {number} was planned with {layout.rows} rows, {written} were written")


def _create_arrays(group: "zarr.Group", layout: SegmentLayout) -> dict[str, "zarr.Array[Any]"]:
    shapes: dict[str, tuple[tuple[int, ...], str]] = {
        "numeric": ((layout.rows, layout.n_numeric), "float32" if layout.single else "float64"),
        "codes": ((layout.rows, layout.n_categorical), "int32"),
        "targets": ((layout.rows, layout.n_targets), "float64"),
        "weights": ((layout.rows,), "float64"),
        "ahead": ((layout.rows, layout.n_ahead), "float64"),
    }
    absent = {"codes": not layout.n_categorical, "weights": not layout.weighted, "ahead": not layout.n_ahead}
    return {
        name: create_array(group, name, shape, dtype, layout.chunk_rows, dimensions=ROW_DIMENSIONS[name])
        for name, (shape, dtype) in shapes.items()
        if not absent.get(name)
    }


def _write_facts(group: "zarr.Group", facts: SegmentFacts) -> None:
    values = facts.moments if facts.sketch is None else np.vstack([facts.moments, facts.sketch])
    create_array(group, "moments", values.shape, "float64", len(values))[:] = values
    for name, table in facts.tables().items():
        group.attrs[name] = cast("Any", table)
    seal_group(group, (*ROW_ARRAYS, "moments"))
