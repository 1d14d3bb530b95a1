"""Segments as they are read: rows and facts of one partition, wherever they are stored."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from ridgestream.stores.errors.translation import read_errors
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.segments.checked_array import read_array
from ridgestream.stores.segments.pack_reader import Pack, list_large, list_packs
from ridgestream.stores.segments.packs import PackName
from ridgestream.stores.segments.row_arrays import Columns, RowArrays, open_rows
from ridgestream.stores.segments.segment_format import (
    MOMENT_NAMES,
    SegmentFacts,
    missing_of,
    segment_path,
    unmark_missing,
)

if TYPE_CHECKING:
    import zarr

_OPEN_PACKS = 4
"""Number of packs that stay open, each with its rows in memory."""


class SegmentRows(Protocol):
    """Rows of one partition that can be read repeatedly, and their statistics."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def chunk_rows(self) -> int:
        """Rows per chunk, by which blocks are cut; reads aligned to multiples of it read no row twice."""

    def read(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` up to `stop`."""

    def count_weighted_rows(self) -> int:
        """Return the number of rows of positive weight."""

    def facts(self) -> SegmentFacts:
        """Return their moments, category tables and quantile sketch."""


class SegmentSource(Protocol):
    """Segments by number: those of a store's snapshot, or rows that are in no store."""

    def __contains__(self, number: int) -> bool: ...

    def __getitem__(self, number: int) -> SegmentRows: ...


@dataclass(frozen=True)
class Segment:
    """A segment of a snapshot, open for reading."""

    arrays: RowArrays
    """The arrays that contain its rows, perhaps among others."""
    first: int
    """The index of its first row in them."""
    rows: int
    """Number of rows."""
    chunk_rows: int
    """Rows per chunk; reads aligned to multiples of it decode no chunk twice."""
    read_columns: Callable[[int, int], Columns]
    """Reads rows of the arrays."""
    tables: Callable[[], dict[str, Any]]
    """Reads its category tables, as in `SegmentFacts.tables`."""
    read_facts: Callable[[], SegmentFacts]
    """Reads its facts."""

    @classmethod
    def open(cls, root: "zarr.Group", number: int) -> "Segment":
        """Open the segment with this number; raises StoreError if it is missing or incomplete.

        To open several, use `Segments`, which finds and opens what they share once.
        """
        return Segments(root)[number]

    @property
    def group(self) -> "zarr.Group":
        """The group with its arrays."""
        return self.arrays.group

    @property
    def path(self) -> str:
        """The path of the group."""
        return str(self.group.path)

    @property
    def is_packed(self) -> bool:
        """Whether it shares its arrays with other segments."""
        return PackName.parse(self.path.rsplit("/", 1)[-1]) is not None

    @property
    def n_numeric(self) -> int:
        """Number of columns stored as numbers."""
        return int(self.arrays.array("numeric").shape[1])

    @property
    def is_single(self) -> bool:
        """Whether they are stored as float32."""
        return bool(self.arrays.array("numeric").dtype == np.float32)

    @property
    def row_bytes(self) -> float:
        """Uncompressed bytes of a row."""
        with read_errors(f"{self.path} of the store"):
            return self.arrays.row_bytes

    def read(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` up to `stop`; raises StoreError if a chunk is missing or damaged."""
        start, stop = min(start, self.rows), min(stop, self.rows)
        with read_errors(f"{self.path} of the store"):
            columns = self.read_columns(self.first + start, self.first + stop)
            numeric, targets = unmark_missing(columns["numeric"], self.missing()), columns["targets"]
        codes = columns.get("codes", np.empty((len(numeric), 0), dtype=np.int32))
        return Rows(numeric, codes, targets, columns.get("weights"), columns.get("ahead"))

    def count_weighted_rows(self) -> int:
        """Return the number of rows of positive weight; reads the weights, if any, chunk by chunk."""
        with read_errors(f"{self.path} of the store"):
            if "weights" not in self.arrays.names:
                return self.rows
            weights, stop = self.arrays.array("weights"), self.first + self.rows
            starts = range(self.first, stop, self.chunk_rows)
            chunks = (read_array(weights, start, min(start + self.chunk_rows, stop)) for start in starts)
            return sum(int(np.count_nonzero(chunk > 0)) for chunk in chunks)

    def missing(self) -> tuple[int, ...]:
        """Return the number of missing values of each numeric, then each categorical feature; empty if all are 0."""
        with read_errors(f"{self.path} of the store"):
            return missing_of(self.tables())

    def facts(self) -> SegmentFacts:
        """Return its moments, category tables and quantile sketch."""
        with read_errors(f"{self.path} of the store"):
            return self.read_facts()


class Segments:
    """The segments of a snapshot, by number; pickled as the snapshot alone.

    The last packs that were used stay open, so that reading segments in the order of the ledger opens, and decodes,
    each pack once. Several threads may use it.
    """

    def __init__(self, root: "zarr.Group") -> None:
        """Open the listing of packs; no segment is opened."""
        self.root = root
        with read_errors("the store's segments"):
            self._packs = list_packs(root)
        self._firsts = [name.first for name in self._packs]
        self._widest = max((name.last - name.first for name in self._packs), default=0)
        self._open: OrderedDict[str, Pack] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> "tuple[type[Segments], tuple[zarr.Group]]":
        return type(self), (self.root,)

    def __contains__(self, number: int) -> bool:
        return self._find(number) is not None or segment_path(number) in self.root

    def __getitem__(self, number: int) -> Segment:
        """Open the segment with this number; raises StoreError if it is missing or incomplete."""
        pack = self._find(number)
        return _open_large(self.root, number) if pack is None else _open_packed(pack, number)

    def numbers(self) -> list[int]:
        """Return the numbers of all segments, ascending; opens every pack."""
        packed = [number for name in self._packs for number in self._open_pack(name.path).positions]
        return sorted([*packed, *list_large(self.root)])

    def _find(self, number: int) -> Pack | None:
        """Return the pack that contains a segment; None if none does."""
        for position in range(bisect_right(self._firsts, number) - 1, -1, -1):
            name = self._packs[position]
            if number - name.first > self._widest:
                return None
            if number <= name.last and number in (pack := self._open_pack(name.path)).positions:
                return pack
        return None

    def _open_pack(self, path: str) -> Pack:
        with self._lock:
            pack = self._open.pop(path, None) or Pack.open(self.root, path)
            self._open[path] = pack
            if len(self._open) > _OPEN_PACKS:
                self._open.popitem(last=False)
        return pack


def _open_packed(pack: Pack, number: int) -> Segment:
    position = pack.positions[number]
    rows = pack.rows_of(position)
    return Segment(
        arrays=pack.arrays,
        first=pack.first_row(position),
        rows=rows,
        chunk_rows=max(rows, 1),
        read_columns=pack.arrays.read_from_whole,
        tables=lambda: pack.tables_of(position),
        read_facts=lambda: pack.facts_of(position),
    )


def _open_large(root: "zarr.Group", number: int) -> Segment:
    arrays = open_rows(root, segment_path(number), ("moments",))

    def tables() -> dict[str, Any]:
        return cast("dict[str, Any]", arrays.group.attrs.asdict())

    def facts() -> SegmentFacts:
        values = read_array(arrays.array("moments"))
        sketch = values[len(MOMENT_NAMES) :]
        return SegmentFacts.from_tables(tables(), values[: len(MOMENT_NAMES)], sketch if len(sketch) else None)

    return Segment(arrays, 0, arrays.rows, arrays.chunk_rows, arrays.read, tables, facts)
