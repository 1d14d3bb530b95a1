"""Packs: groups of arrays that several small segments share, since each group and array is part of every snapshot.

A store of many small partitions would otherwise consist of metadata: a commit lists every array of a snapshot, so that
n commits of single partitions write O(n²) entries, and reading a partition opens half a dozen arrays for a few rows.

A pack has the arrays with rows of a segment, which hold those of its members one after another in a single chunk each.
For its k members, it has members (k, 3) int64: the segment's number, its rows, and the position of its sketch or −1;
moments (k, 5, n) float64; sketches (s, 94, n) float64, unless no member has one; and, unless all are empty, tables:
lines of JSON with their category tables, class tables and missing values. Its name gives the first and last segment.

A pack never changes: it is replaced by another one when members are dropped or several small packs are merged
(`pack_merging.py`). Which segments share a pack is of no consequence to anything computed from their rows.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ridgestream.stores.errors.translation import store_errors
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.segments.checked_array import create_array, seal_group
from ridgestream.stores.segments.segment_format import (
    ROW_ARRAYS,
    ROW_DIMENSIONS,
    SEGMENTS,
    SegmentFacts,
    chunk_rows_of,
    mark_missing,
)
from ridgestream.stores.segments.text_array import write_lines

if TYPE_CHECKING:
    import zarr

MOST_MEMBERS = 256
"""Largest number of segments in a pack."""

FACT_ARRAYS = ("members", "moments", "sketches", "tables")
"""The arrays of a pack other than those with rows."""

_NAME = re.compile(r"(\d{6,18})-(\d{6,18})")


@dataclass(frozen=True)
class PackName:
    """The name of a pack."""

    first: int
    """The lowest number of a member."""
    last: int
    """The highest number of a member; others in between may be elsewhere."""

    @classmethod
    def parse(cls, name: str) -> "PackName | None":
        """Return the parts of a group's name; None if it is not that of a pack."""
        matched = _NAME.fullmatch(name)
        return cls(int(matched[1]), int(matched[2])) if matched else None

    @property
    def path(self) -> str:
        """The path of its group."""
        return f"{SEGMENTS}/{self.first:06d}-{self.last:06d}"


@dataclass(frozen=True)
class Member:
    """A segment in a pack, as it is stored."""

    segment: int
    """Its number."""
    rows: dict[str, npt.NDArray[Any]]
    """Its rows by the name of the array."""
    moments: npt.NDArray[np.float64]
    """Shape (5, n_numeric + n_targets)."""
    sketch: npt.NDArray[np.float64] | None
    """Shape (94, n_numeric + n_targets); None for a segment without one."""
    tables: dict[str, Any]
    """Its category tables, classes and missing values, as in `SegmentFacts.tables`."""

    @classmethod
    def of(cls, segment: int, rows: Rows, facts: SegmentFacts, *, single: bool) -> "Member":
        """Return a segment with these rows and facts; `single` says whether numbers are stored as float32."""
        numeric: npt.NDArray[np.floating] = rows.numeric.astype(np.float32 if single else np.float64, copy=False)
        columns: dict[str, npt.NDArray[Any] | None] = {
            "numeric": mark_missing(numeric) if facts.missing else numeric,
            "codes": rows.codes if rows.codes.shape[1] else None,
            "targets": rows.targets,
            "weights": rows.weights,
            "ahead": rows.ahead,
        }
        stored = {name: values for name, values in columns.items() if values is not None}
        return cls(segment, stored, facts.moments, facts.sketch, facts.tables())

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.rows["targets"])

    @property
    def width(self) -> int:
        """Bytes of a number, 4 or 8; members of one pack have the same."""
        return self.rows["numeric"].dtype.itemsize


def most_rows(n_numeric: int, width: int) -> int:
    """Return the largest number of rows in a pack: those of a chunk."""
    return chunk_rows_of(n_numeric, width)


def write_packs(root: "zarr.Group", members: Iterable[Member]) -> None:
    """Write the segments, in ascending order of their numbers, as packs as large as possible for each width."""
    ordered = sorted(members, key=lambda member: member.segment)
    for width in (4, 8):
        waiting: list[Member] = []
        for member in (member for member in ordered if member.width == width):
            if waiting and not _fits(waiting, member):
                _write_pack(root, waiting)
                waiting = []
            waiting.append(member)
        if waiting:
            _write_pack(root, waiting)


def _fits(waiting: Sequence[Member], member: Member) -> bool:
    rows = sum(each.n_rows for each in waiting) + member.n_rows
    return len(waiting) < MOST_MEMBERS and rows <= most_rows(member.rows["numeric"].shape[1], member.width)


def _write_pack(root: "zarr.Group", members: Sequence[Member]) -> None:
    path = PackName(members[0].segment, members[-1].segment).path
    with store_errors(f"{path} of the store"):
        group = root.create_group(path)
        for name in members[0].rows:
            _write(group, name, np.concatenate([member.rows[name] for member in members]))
        sketches = [member.sketch for member in members if member.sketch is not None]
        positions = np.cumsum([member.sketch is not None for member in members]) - 1
        listing = [
            (member.segment, member.n_rows, -1 if member.sketch is None else position)
            for member, position in zip(members, positions.tolist(), strict=True)
        ]
        _write(group, "members", np.array(listing, dtype=np.int64))
        _write(group, "moments", np.stack([member.moments for member in members]))
        if sketches:
            _write(group, "sketches", np.stack(sketches))
        if any(member.tables for member in members):
            write_lines(group, "tables", (member.tables for member in members))
        seal_group(group, (*ROW_ARRAYS, *FACT_ARRAYS))


def _write(group: "zarr.Group", name: str, values: npt.NDArray[Any]) -> None:
    """Write an array as one chunk."""
    dimensions = ROW_DIMENSIONS.get(name)
    array = create_array(group, name, values.shape, str(values.dtype), len(values), dimensions=dimensions)
    if values.size:
        array[...] = values
