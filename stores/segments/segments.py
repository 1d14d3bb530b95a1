"""Segments: each holds the rows of one ingested partition as immutable Zarr arrays in a group of its own.

The arrays are numeric (rows, n_numeric) float32 or float64, codes (rows, n_categorical) int32, targets
(rows, n_targets) float64, weights (rows,) float64 and moments (5, n_numeric + n_targets) float64; in segments with a
quantile sketch, its rows follow in the moments array. Codes refer to the segment's own category tables, stored in its
attributes with the weight of each value, so the store's tables can grow without rewriting a segment. For multi-class
targets, the target also holds codes, of the segment's own class table.

A lost chunk is read as NaN. So that a missing value differs from it, it is stored as the largest number of its dtype,
which no valid value reaches; the segment's `missing` counts say which columns contain any. A missing category has the
code −1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import read_errors, store_errors
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.row_batch import Rows, regroup
from ridgestream.stores.segments.checked_array import create_array, read_array
from ridgestream.stores.segments.size_limits import check_array, check_metadata

if TYPE_CHECKING:
    import zarr

SEGMENTS = "segments"
"""The group that contains all segments."""

CHUNK_BYTES = 4 * 2**20
"""Memory limit of a chunk of numeric features."""

MOMENT_NAMES = ("count", "mean", "squares", "minimum", "maximum")
"""The rows of the moments array; `squares` is the weighted sum of squared deviations from the mean."""


@dataclass(frozen=True)
class SegmentLayout:
    """The shape of a segment, known before its first row is written."""

    rows: int
    """Number of rows."""
    n_numeric: int
    """Number of columns stored as numbers."""
    n_categorical: int
    """Number of columns stored as codes."""
    n_targets: int
    """Number of target columns."""
    single: bool
    """Whether float32 represents every numeric column exactly enough."""
    weighted: bool
    """Whether rows have weights."""

    @property
    def chunk_rows(self) -> int:
        """Rows per chunk: the largest power of two, 256 to 65,536, whose numeric features fit in CHUNK_BYTES."""
        row_bytes = max(1, self.n_numeric) * (4 if self.single else 8)
        fitting = max(1, CHUNK_BYTES // row_bytes)
        return int(min(max(256, 1 << (fitting.bit_length() - 1)), 65536))


@dataclass(frozen=True)
class SegmentFacts:
    """Statistics of a segment's columns, known after its last row."""

    moments: npt.NDArray[np.float64]
    """MOMENT_NAMES of each numeric column, then of each target, shape (5, n_numeric + n_targets)."""
    categories: tuple[tuple[str, ...], ...]
    """The segment's category tables, by code."""
    category_counts: tuple[tuple[float, ...], ...]
    """The total weight of the rows with each value."""
    classes: tuple[Label, ...] = ()
    """The segment's classes, by code."""
    class_counts: tuple[float, ...] = ()
    """The total weight of the rows of each class."""
    sketch: npt.NDArray[np.float64] | None = None
    """Quantile sketch of each column of the moments, shape (n, n_numeric + n_targets); None in older segments."""
    missing: tuple[int, ...] = ()
    """Number of missing values of each numeric, then each categorical feature; empty if none is missing."""

    @property
    def present_classes(self) -> tuple[Label, ...]:
        """The classes with at least one row of positive weight."""
        return tuple(label for label, count in zip(self.classes, self.class_counts, strict=True) if count > 0)


def segment_path(number: int) -> str:
    """Return the path of the group of the segment with this number."""
    return f"{SEGMENTS}/{number:06d}"


def write_segment(
    root: "zarr.Group", number: int, layout: SegmentLayout, batches: Iterable[Rows], facts: SegmentFacts
) -> None:
    """Write a segment's rows chunk by chunk, then its facts; memory use is a few chunks."""
    subject = f"{segment_path(number)} of the store"
    with store_errors(subject):
        group = root.create_group(segment_path(number))
        arrays = _create_arrays(group, layout)
    start, width = 0, np.float32 if layout.single else np.float64
    for rows in regroup(batches, layout.chunk_rows):
        stop = start + len(rows)
        numeric = _mark_missing(rows.numeric.astype(width, copy=False)) if facts.missing else rows.numeric
        columns = {"numeric": numeric, "codes": rows.codes, "targets": rows.targets, "weights": rows.weights}
        with store_errors(subject):
            for name, array in arrays.items():
                array[start:stop] = cast("npt.NDArray[Any]", columns[name])
        start = stop
    if start != layout.rows:
        raise StoreError(f"segment {number} was planned with {layout.rows} rows, {start} were written")
    with store_errors(subject):
        _write_facts(group, facts)


def drop_segment(root: "zarr.Group", number: int) -> None:
    """Delete a segment within a session; earlier snapshots keep it."""
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
    values = facts.moments if facts.sketch is None else np.vstack([facts.moments, facts.sketch])
    create_array(group, "moments", values.shape, "float64", len(values))[:] = values
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
    """Number of rows."""
    chunk_rows: int
    """Rows per chunk; reads aligned to multiples of it decode no chunk twice."""

    @classmethod
    def open(cls, root: "zarr.Group", number: int) -> "Segment":
        """Open the segment with this number; raises StoreError if it is missing or incomplete."""
        with read_errors(f"{segment_path(number)} of the store"):
            check_metadata(root.store, segment_path(number), members=True)
            group = cast("zarr.Group", root[segment_path(number)])
            targets = _array(group, "targets")
            check_array(targets, 0)
            return cls(group, targets.shape[0], targets.chunks[0])

    def read(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` up to `stop`; raises StoreError if a chunk is missing or damaged."""
        with read_errors(f"{self.group.path} of the store"):
            names = [name for name in ("numeric", "codes", "targets", "weights") if name in self.group]
            columns = {name: read_array(_array(self.group, name), start, stop) for name in names}
        numeric, targets = unmark_missing(columns["numeric"], self.missing()), columns["targets"]
        codes = columns.get("codes", np.empty((len(numeric), 0), dtype=np.int32))
        return Rows(numeric, codes, targets, columns.get("weights"))

    def count_weighted_rows(self) -> int:
        """Return the number of rows of positive weight; reads the weights, if any, chunk by chunk."""
        with read_errors(f"{self.group.path} of the store"):
            if "weights" not in self.group:
                return self.rows
            weights, starts = _array(self.group, "weights"), range(0, self.rows, self.chunk_rows)
            chunks = (read_array(weights, start, start + self.chunk_rows) for start in starts)
            return sum(int(np.count_nonzero(chunk > 0)) for chunk in chunks)

    def missing(self) -> tuple[int, ...]:
        """Return the number of missing values of each numeric, then each categorical feature; empty if all are 0."""
        with read_errors(f"{self.group.path} of the store"):
            return tuple(int(n) for n in cast("Any", self.group.attrs.get("missing", ())))

    def facts(self) -> SegmentFacts:
        """Return its moments, category tables and quantile sketch."""
        with read_errors(f"{self.group.path} of the store"):
            values = read_array(_array(self.group, "moments"))
            sketch = values[len(MOMENT_NAMES) :]
            attributes = cast("dict[str, Any]", self.group.attrs.asdict())
            tables = attributes.get("categories", [])
            classes = attributes.get("classes", {"values": [], "counts": []})
            return SegmentFacts(
                moments=values[: len(MOMENT_NAMES)],
                categories=tuple(tuple(str(v) for v in table["values"]) for table in tables),
                category_counts=tuple(tuple(float(n) for n in table["counts"]) for table in tables),
                classes=tuple(classes["values"]),
                class_counts=tuple(float(n) for n in classes["counts"]),
                sketch=sketch if len(sketch) else None,
                missing=self.missing(),
            )


def unmark_missing(numeric: npt.NDArray[np.floating], missing: tuple[int, ...]) -> npt.NDArray[np.floating]:
    """Return numeric features as stored, shape (rows, n_numeric), with NaN for missing values."""
    if not any(missing[: numeric.shape[1]]):
        return numeric
    incomplete = np.array(missing[: numeric.shape[1]]) > 0
    return np.where(incomplete & (numeric == np.finfo(numeric.dtype).max), np.array(np.nan, numeric.dtype), numeric)


def _mark_missing(numeric: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return np.where(np.isnan(numeric), np.finfo(numeric.dtype).max, numeric)


def _array(group: "zarr.Group", name: str) -> "zarr.Array[Any]":
    return cast("zarr.Array[Any]", group[name])
