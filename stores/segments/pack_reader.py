"""Packs as they are read: which segments they contain, and the facts of each."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ridgestream.stores.errors.translation import read_errors
from ridgestream.stores.segments.checked_array import read_array
from ridgestream.stores.segments.packs import FACT_ARRAYS, Member, PackName
from ridgestream.stores.segments.row_arrays import RowArrays, open_rows
from ridgestream.stores.segments.segment_format import SEGMENTS, SegmentFacts
from ridgestream.stores.segments.text_array import read_lines

if TYPE_CHECKING:
    import zarr


def list_packs(root: "zarr.Group") -> list[PackName]:
    """Return the packs of a snapshot in ascending order."""
    parsed = map(PackName.parse, _list_names(root))
    return sorted((name for name in parsed if name is not None), key=lambda name: (name.first, name.last))


def list_large(root: "zarr.Group") -> list[int]:
    """Return the numbers of the segments that are groups of their own."""
    return [int(name) for name in _list_names(root) if name.isdecimal()]


def _list_names(root: "zarr.Group") -> list[str]:
    from zarr.core.sync import sync

    async def names() -> list[str]:
        return [name async for name in root.store.list_dir(SEGMENTS)]

    return sync(names())


@dataclass(frozen=True)
class Pack:
    """A pack of a snapshot, open for reading."""

    arrays: RowArrays
    """Its arrays with rows."""
    members: npt.NDArray[np.int64]
    """Segment number, rows, and position of the sketch or −1 of each member, shape (k, 3)."""

    @classmethod
    def open(cls, root: "zarr.Group", path: str) -> "Pack":
        """Open the pack at a path; raises StoreError if it is incomplete or damaged."""
        arrays = open_rows(root, path, FACT_ARRAYS)
        with read_errors(f"{path} of the store"):
            members = read_array(arrays.array("members"))
            counts = members[:, 1].sum() if members.shape[1:] == (3,) and (members[:, 1] >= 0).all() else -1
            if counts != arrays.rows or len({*members[:, 0].tolist()}) < len(members):
                raise ValueError("its listing of segments does not match its rows")
            return cls(arrays, members)

    @cached_property
    def positions(self) -> dict[int, int]:
        """The position of each segment among the members."""
        return {number: position for position, number in enumerate(self.members[:, 0].tolist())}

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum(self.members[:, 1])

    def rows_of(self, position: int) -> int:
        """Return the number of rows of a member."""
        return int(self.members[position, 1])

    def first_row(self, position: int) -> int:
        """Return the index of the first row of a member."""
        return int(self._ends[position]) - self.rows_of(position)

    def tables_of(self, position: int) -> dict[str, Any]:
        """Return the category tables, classes and missing values of a member."""
        return self._tables[position] if self._tables else {}

    def facts_of(self, position: int) -> SegmentFacts:
        """Return the facts of a member."""
        sketch = int(self.members[position, 2])
        return SegmentFacts.from_tables(
            self.tables_of(position), self._moments[position], self._sketches[sketch] if sketch >= 0 else None
        )

    def all_members(self) -> list[Member]:
        """Return all members as they are stored."""
        numbers, path = self.members[:, 0].tolist(), self.arrays.group.path
        with read_errors(f"{path} of the store"):
            return [self._member(position, number) for position, number in enumerate(numbers)]

    def _member(self, position: int, number: int) -> Member:
        first = self.first_row(position)
        rows, facts = self.arrays.read_from_whole(first, first + self.rows_of(position)), self.facts_of(position)
        return Member(number, rows, facts.moments, facts.sketch, self.tables_of(position))

    @cached_property
    def _tables(self) -> list[dict[str, Any]]:
        lines = read_lines(self.arrays.group, "tables") if "tables" in self.arrays.group else []
        if lines and (len(lines) != len(self.members) or not all(isinstance(line, dict) for line in lines)):
            raise ValueError("its tables do not match its listing of segments")
        return lines

    @cached_property
    def _moments(self) -> npt.NDArray[np.float64]:
        moments = read_array(self.arrays.array("moments"))
        if len(moments) != len(self.members):
            raise ValueError("its moments do not match its listing of segments")
        return moments

    @cached_property
    def _sketches(self) -> npt.NDArray[np.float64]:
        return read_array(self.arrays.array("sketches"))
