"""Statistics of a partition's columns, taken while its rows are read."""

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.sums.moments import Moments
from ridgestream.pipeline.sums.quantile_sketch import Sample
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.column_types import TIMESTAMP
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.segment_format import SegmentFacts

UNSKETCHED_ROWS = 256
"""A partition with at most so many rows has no quantile sketch, whose numbers would take more space than its rows."""

SINGLE_TOLERANCE = 1e-6
"""float32 is exact enough for a column if it changes no value by more than this share of the column's deviation.

Whether it may change a value at all is one rule for all columns and partitions of a store, the schema's `precision`,
which the first ingest fixes: SINGLE if float32 is exact enough in the first rows, or DOUBLE. Under SINGLE, a partition
in which it is not exact enough is stored as float64, as it is. Under DOUBLE, float32 is used where it changes nothing.
"""


class PartitionStatistics:
    """A partition's moments, sketch, category weights and exactness in float32, updated batch by batch.

    `n_rows` is how many rows the sketch is drawn from, 0 for no sketch.
    """

    def __init__(self, schema: Schema, n_rows: int) -> None:
        self._n_targets = len(schema.targets)
        self._moments = Moments.empty(len(schema.numeric) + self._n_targets)
        self._sample = Sample(n_rows) if n_rows > UNSKETCHED_ROWS else None
        self._counts: list[dict[int, float]] = [{} for _ in schema.categorical]
        self._class_counts: dict[int, float] = {}
        self._classes = schema.classes is not None
        self._is_time = np.array([feature.kind == TIMESTAMP for feature in schema.numeric], dtype=np.bool_)
        self._exact = np.ones(len(schema.numeric), dtype=np.bool_)
        self._largest = np.zeros(len(schema.numeric))

    def add(self, rows: Rows) -> None:
        """Add a batch of rows."""
        targets = np.empty((len(rows), self._n_targets)) if rows.targets is None else rows.targets
        values = np.hstack([rows.numeric, targets])
        self._moments = self._moments.merge(Moments.of(values, rows.weights))
        if self._sample is not None:
            self._sample.add(values, rows.weights)
        for position, counts in enumerate(self._counts):
            _count(counts, rows.codes[:, position], rows.weights)
        if self._classes:
            _count(self._class_counts, targets[:, 0].astype(np.int64), rows.weights)
        self._largest = np.fmax(self._largest, np.fmax.reduce(np.abs(rows.numeric), axis=0, initial=0.0))
        present = rows.numeric if rows.weights is None else rows.numeric[rows.weights > 0]
        with np.errstate(over="ignore"):
            self._exact &= ((present == present.astype(np.float32)) | np.isnan(present)).all(axis=0)

    def facts(
        self,
        tables: tuple[tuple[str, ...], ...],
        classes: tuple[Label, ...],
        rows: int,
        missing: tuple[int, ...],
    ) -> SegmentFacts:
        """Return the facts of `rows` rows with these tables, and numbers of missing values by feature."""
        counts = tuple(
            tuple(counts.get(code, 0.0) for code in range(len(table)))
            for table, counts in zip(tables, self._counts, strict=True)
        )
        class_counts = tuple(self._class_counts.get(code, 0.0) for code in range(len(classes)))
        sketch = None
        if self._sample is not None and rows > UNSKETCHED_ROWS:
            sketch = self._sample.sketch(len(self._moments.count)).as_array()
        return SegmentFacts(self._moments.as_array(), tables, counts, classes, class_counts, sketch, missing)

    def is_exact(self) -> bool:
        """Return whether rounding to float32 changes no value."""
        return bool(self._exact.all() and self._fits().all())

    def single_is_enough(self) -> bool:
        """Return whether rounding to float32 changes no value of a column, or little relative to its deviation.

        A time stamp, whose hour is a feature, may not be changed at all. Another value is changed by at most 2⁻²⁴ of
        its size or 2⁻¹⁵⁰, whichever is more. Rows of weight zero do not count, but must not become infinite, nor the
        largest number, which marks missing values.
        """
        moments = Moments.from_array(self._moments.as_array()[:, : len(self._exact)])
        counted = moments.count > 0
        largest = np.where(counted, np.maximum(np.abs(moments.minimum), np.abs(moments.maximum)), 0.0)
        variance = np.divide(moments.squares, moments.count, out=np.zeros_like(largest), where=counted)
        moved = np.maximum(largest * 2.0**-24, 2.0**-150)
        small = (moved <= SINGLE_TOLERANCE * np.sqrt(variance)) & ~moments.constant() & ~self._is_time
        return bool(((self._exact | small) & self._fits()).all())

    def _fits(self) -> npt.NDArray[np.bool_]:
        with np.errstate(over="ignore"):
            return np.asarray(self._largest.astype(np.float32) < np.finfo(np.float32).max)


def _count(counts: dict[int, float], codes: npt.NDArray[np.integer], weights: npt.NDArray[np.float64] | None) -> None:
    """Add the weight of the rows with each code (rows,); −1 is none."""
    if codes.min(initial=0) < 0:
        weights = None if weights is None else weights[codes >= 0]
        codes = codes[codes >= 0]
    for code, weight in enumerate(np.bincount(codes, weights)):
        counts[code] = counts.get(code, 0.0) + float(weight)
