"""The format of segments: each holds the rows of one ingested partition, which never change.

The rows are numeric (rows, n_numeric) float32 or float64, codes (rows, n_categorical) int32, targets (rows, n_targets)
float64 and weights (rows,) float64. Transitions have ahead (rows, n_numeric + 1) float64, too: the features after the
step, and whether an episode ended. Codes refer to the segment's own category tables, which are stored with the weight
of each value, so the store's tables can grow without rewriting a segment. For multi-class targets, the target also
holds codes, of the segment's own class table. Beside the rows, a segment has the moments of its columns (5, n_numeric +
n_targets) float64 and, if it has many rows, a quantile sketch of them.

A large segment is a group of its own. Small ones share a group with others: see `packs.py`.

A lost chunk is read as NaN. So that a missing value differs from it, it is stored as the largest number of its dtype,
which no valid value reaches; the segment's `missing` counts say which columns contain any. A missing category has the
code −1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ridgestream.stores.schema.class_labels import Label

SEGMENTS = "segments"
"""The group that contains all segments and packs."""

ROW_DIMENSIONS = {
    "numeric": ("row", "numeric_column"),
    "codes": ("row", "categorical_column"),
    "targets": ("row", "target"),
    "weights": ("row",),
    "ahead": ("row", "ahead_column"),
}
"""The names of the dimensions of each array with rows; arrays of earlier releases have none."""

ROW_ARRAYS = tuple(ROW_DIMENSIONS)
"""The arrays with rows."""

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
    n_ahead: int = 0
    """Number of columns after a step, of transitions."""

    @property
    def chunk_rows(self) -> int:
        """Rows per chunk: the largest power of two, 256 to 65,536, whose numeric features fit in CHUNK_BYTES."""
        return chunk_rows_of(self.n_numeric, 4 if self.single else 8)

    @property
    def is_small(self) -> bool:
        """Whether it has at most a quarter of a chunk of rows, and shares its arrays with other segments."""
        return 4 * self.rows <= self.chunk_rows


def chunk_rows_of(n_numeric: int, item_bytes: int) -> int:
    """Return the rows per chunk for so many numeric features of this size."""
    fitting = max(1, CHUNK_BYTES // (max(1, n_numeric) * item_bytes))
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
    """Quantile sketch of each column of the moments, shape (n, n_numeric + n_targets); None in older segments, and in
    segments whose rows take less space."""
    missing: tuple[int, ...] = ()
    """Number of missing values of each numeric, then each categorical feature; empty if none is missing."""

    @property
    def present_classes(self) -> tuple[Label, ...]:
        """The classes with at least one row of positive weight."""
        return tuple(label for label, count in zip(self.classes, self.class_counts, strict=True) if count > 0)

    def tables(self) -> dict[str, Any]:
        """Return all but the moments and the sketch as plain JSON: what is empty is left out."""
        tables = [
            {"values": list(values), "counts": list(counts)}
            for values, counts in zip(self.categories, self.category_counts, strict=True)
        ]
        plain: dict[str, Any] = {"categories": tables} if tables else {}
        if self.missing:
            plain["missing"] = list(self.missing)
        if self.classes:
            plain["classes"] = {"values": list(self.classes), "counts": list(self.class_counts)}
        return plain

    @classmethod
    def from_tables(
        cls,
        plain: Mapping[str, Any],
        moments: npt.NDArray[np.float64],
        sketch: npt.NDArray[np.float64] | None,
    ) -> "SegmentFacts":
        """Return the facts from the result of `tables` and the arrays."""
        tables, classes = plain.get("categories", ()), plain.get("classes", {"values": (), "counts": ()})
        return cls(
            moments=moments,
            categories=tuple(tuple(str(v) for v in table["values"]) for table in tables),
            category_counts=tuple(tuple(float(n) for n in table["counts"]) for table in tables),
            classes=tuple(classes["values"]),
            class_counts=tuple(float(n) for n in classes["counts"]),
            sketch=sketch,
            missing=missing_of(plain),
        )


def missing_of(plain: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the numbers of missing values in the result of `SegmentFacts.tables`."""
    return tuple(int(n) for n in plain.get("missing", ()))


def segment_path(number: int) -> str:
    """Return the path of the group of a large segment with this number."""
    return f"{SEGMENTS}/{number:06d}"


def mark_missing(numeric: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return numeric features with NaN replaced by the number that is stored for a missing value."""
    return np.where(np.isnan(numeric), np.finfo(numeric.dtype).max, numeric)


def unmark_missing(numeric: npt.NDArray[np.floating], missing: tuple[int, ...]) -> npt.NDArray[np.floating]:
    """Return numeric features as stored, shape (rows, n_numeric), with NaN for missing values."""
    if not any(missing[: numeric.shape[1]]):
        return numeric
    incomplete = np.array(missing[: numeric.shape[1]]) > 0
    return np.where(incomplete & (numeric == np.finfo(numeric.dtype).max), np.array(np.nan, numeric.dtype), numeric)
