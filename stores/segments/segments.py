"""Segments: one ingested partition each, as immutable Zarr arrays in a group of its own.

numeric (rows, n_numeric) float32 or float64, codes (rows, n_categorical) int32, targets (rows, n_targets) float64,
weights (rows,) float64 and moments (5, n_numeric + n_targets) float64; the moments' array goes on with the rows of a
sketch in segments that have one. Codes refer to the segment's own category tables, kept in its attributes with the
weight of each value: the store's table grows without a segment being rewritten.
Where each class of a target is learned, that target holds codes, too, of a table of the segment's own.

NaN is what a lost chunk reads as, so a missing value is written as the largest number of its type, which no sound value
reaches, in columns of which the facts say that they lack some; a missing category has the code −1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import reading, store_errors
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.row_batch import Rows, regroup
from ridgestream.stores.segments.checked_array import create_array, read_array
from ridgestream.stores.segments.size_limits import check_array, check_metadata

if TYPE_CHECKING:
    import zarr

SEGMENTS = "segments"
"""The group of all segments."""

CHUNK_BYTES = 4 * 2**20
"""What a chunk of numeric features may take in memory."""

MOMENT_NAMES = ("count", "mean", "squares", "minimum", "maximum")
"""The rows of the moments array; `squares` is the weighted sum of squared deviations from the mean."""


@dataclass(frozen=True)
class SegmentLayout:
    """What must be known of a segment before its first row is written."""

    rows: int
    """Its rows."""
    n_numeric: int
    """Columns kept as numbers."""
    n_categorical: int
    """Columns kept as codes."""
    n_targets: int
    """Columns of targets."""
    single: bool
    """Whether float32 is exact enough for every numeric column."""
    weighted: bool
    """Whether rows carry weights."""

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk: a power of two, 256 at least, that keeps the numeric features within CHUNK_BYTES."""
        row_bytes = max(1, self.n_numeric) * (4 if self.single else 8)
        fitting = max(1, CHUNK_BYTES // row_bytes)
        return int(min(max(256, 1 << (fitting.bit_length() - 1)), 65536))


@dataclass(frozen=True)
class SegmentFacts:
    """What is known of a segment after its last row."""

    moments: npt.NDArray[np.float64]
    """MOMENT_NAMES of each numeric column, then of each target, shape (5, n_numeric + n_targets)."""
    categories: tuple[tuple[str, ...], ...]
    """The segment's category tables, by code."""
    category_counts: tuple[tuple[float, ...], ...]
    """The weight of the rows with each value."""
    classes: tuple[Label, ...] = ()
    """The segment's classes, by code."""
    class_counts: tuple[float, ...] = ()
    """The weight of the rows of each class."""
    sketch: npt.NDArray[np.float64] | None = None
    """How the values of each column of the moments are distributed, shape (n, n_numeric + n_targets); None in segments
    of older stores."""
    missing: tuple[int, ...] = ()
    """How many values each numeric, then each categorical feature lacks; empty if none lacks any."""

    @property
    def present_classes(self) -> tuple[Label, ...]:
        """The classes of which there is a row that counts."""
        return tuple(label for label, count in zip(self.classes, self.class_counts, strict=True) if count > 0)


def segment_path(number: int) -> str:
    """Return the group of the segment with this number."""
    return f"{SEGMENTS}/{number:06d}"


def write_segment(
    root: "zarr.Group", number: int, layout: SegmentLayout, batches: Iterable[Rows], facts: SegmentFacts
) -> None:
    """Write a segment's rows chunk by chunk, and its facts; memory is a few chunks, whatever the rows."""
    place = f"{segment_path(number)} of the store"
    with store_errors(place):
        group = root.create_group(segment_path(number))
        arrays = _create_arrays(group, layout)
    start, width = 0, np.float32 if layout.single else np.float64
    for rows in regroup(batches, layout.chunk_rows):
        stop = start + len(rows)
        numeric = _mark_missing(rows.numeric.astype(width, copy=False)) if facts.missing else rows.numeric
        columns = {"numeric": numeric, "codes": rows.codes, "targets": rows.targets, "weights": rows.weights}
        with store_errors(place):
            for name, array in arrays.items():
                array[start:stop] = cast("npt.NDArray[Any]", columns[name])
        start = stop
    if start != layout.rows:
        raise StoreError(f"segment {number} was planned with {layout.rows} rows, {start} came")
    with store_errors(place):
        _write_facts(group, facts)


def drop_segment(root: "zarr.Group", number: int) -> None:
    """Take a segment out of a session; snapshots that have it keep it."""
    with store_errors(f"{segment_path(number)} of the store"):
        del root[segment_path(number)]


def _create_arrays(group: "zarr.Group", layout: SegmentLayout) -> dict[str, "zarr.Array[Any]"]:
    shapes: dict[str, tuple[tuple[int, ...], str]] = {
        "numeric": ((layout.rows, layout.n_numeric), "float32" if layout.single else "float64"),
        "codes": ((layout.rows, layout.n_categorical), "int32"),
        "targets": ((layout.rows, layout.n_targets), "float64"),
        "weights": ((layout.rows,), "float64"),
    }
    absent = {"codes": not layout.n_categorical, "weights": not layout.weighted}
    return {
        name: create_array(group, name, shape, dtype, layout.chunk_rows)
        for name, (shape, dtype) in shapes.items()
        if not absent.get(name)
    }


def _write_facts(group: "zarr.Group", facts: SegmentFacts) -> None:
    kept = facts.moments if facts.sketch is None else np.vstack([facts.moments, facts.sketch])
    create_array(group, "moments", kept.shape, "float64", len(kept))[:] = kept
    tables = [
        {"values": list(values), "counts": list(counts)}
        for values, counts in zip(facts.categories, facts.category_counts, strict=True)
    ]
    if tables:
        group.attrs["categories"] = cast("Any", tables)
    if facts.missing:
        group.attrs["missing"] = list(facts.missing)
    if facts.classes:
        group.attrs["classes"] = {"values": list(facts.classes), "counts": list(facts.class_counts)}


@dataclass(frozen=True)
class Segment:
    """A segment of a snapshot, open for reading."""

    group: "zarr.Group"
    """Its Zarr group."""
    rows: int
    """Its rows."""
    chunk_rows: int
    """Rows of a chunk; ranges that keep to its multiples decode no chunk twice."""

    @classmethod
    def open(cls, root: "zarr.Group", number: int) -> "Segment":
        """Open the segment with this number; raise StoreError if it is not there whole."""
        with reading(f"{segment_path(number)} of the store"):
            check_metadata(root.store, segment_path(number), members=True)
            group = cast("zarr.Group", root[segment_path(number)])
            targets = _array(group, "targets")
            check_array(targets, 0)
            return cls(group, targets.shape[0], targets.chunks[0])

    def read(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` up to `stop`; raise StoreError if a chunk is missing or damaged."""
        with reading(f"{self.group.path} of the store"):
            names = [name for name in ("numeric", "codes", "targets", "weights") if name in self.group]
            columns = {name: read_array(_array(self.group, name), start, stop) for name in names}
        numeric, targets = unmark_missing(columns["numeric"], self.missing()), columns["targets"]
        codes = columns.get("codes", np.empty((len(numeric), 0), dtype=np.int32))
        return Rows(numeric, codes, targets, columns.get("weights"))

    def rows_that_count(self) -> int:
        """Return how many rows have a weight above zero; reads the weights, chunk by chunk, where there are any."""
        with reading(f"{self.group.path} of the store"):
            if "weights" not in self.group:
                return self.rows
            weights, starts = _array(self.group, "weights"), range(0, self.rows, self.chunk_rows)
            return sum(int(np.count_nonzero(read_array(weights, at, at + self.chunk_rows) > 0)) for at in starts)

    def missing(self) -> tuple[int, ...]:
        """Return how many values each numeric, then each categorical feature lacks; empty if none lacks any."""
        with reading(f"{self.group.path} of the store"):
            return tuple(int(n) for n in cast("Any", self.group.attrs.get("missing", ())))

    def facts(self) -> SegmentFacts:
        """Return its moments, category tables and sketch."""
        with reading(f"{self.group.path} of the store"):
            kept = read_array(_array(self.group, "moments"))
            moments, sketch = kept[: len(MOMENT_NAMES)], kept[len(MOMENT_NAMES) :]
            attributes = cast("dict[str, Any]", self.group.attrs.asdict())
            tables = attributes.get("categories", [])
            values = tuple(tuple(str(v) for v in table["values"]) for table in tables)
            counts = tuple(tuple(float(n) for n in table["counts"]) for table in tables)
            classes = attributes.get("classes", {"values": [], "counts": []})
            weights = tuple(float(n) for n in classes["counts"])
            known = sketch if len(sketch) else None
            return SegmentFacts(moments, values, counts, tuple(classes["values"]), weights, known, self.missing())


def unmark_missing(numeric: npt.NDArray[np.floating], missing: tuple[int, ...]) -> npt.NDArray[np.floating]:
    """Return numeric features as the store keeps them (rows, n_numeric) with NaN for what is missing."""
    if not any(missing[: numeric.shape[1]]):
        return numeric
    lacking = np.array(missing[: numeric.shape[1]]) > 0
    return np.where(lacking & (numeric == np.finfo(numeric.dtype).max), np.array(np.nan, numeric.dtype), numeric)


def _mark_missing(numeric: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return np.where(np.isnan(numeric), np.finfo(numeric.dtype).max, numeric)


def _array(group: "zarr.Group", name: str) -> "zarr.Array[Any]":
    return cast("zarr.Array[Any]", group[name])
