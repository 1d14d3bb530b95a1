"""The range of each number in the rows that a model has learned: beyond it, the model extrapolates."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.dataset.feature_map_growth import feature_map_of
from ridgestream.stores.catalog.models import LEARNED_RANGES, ModelRecord
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.segments.segments import SegmentSource

CHANCE = 1e-4
"""How often rows that are like those learned are reported."""


@dataclass(frozen=True)
class LearnedRanges:
    """The smallest and largest value of each numeric column in the rows that a model has learned."""

    columns: tuple[str, ...]
    """The columns."""
    counted: tuple[int, ...]
    """The positions of those whose values are features; of a time stamp that is circles only, none is outside."""
    extremes: Floats
    """Their smallest and largest values, shape (2, n_numeric)."""
    rows: float
    """The number of rows learned."""

    def outside(self, numeric: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
        """Return which values of rows (rows, n_numeric) lie outside, shape (rows, counted); missing ones do not."""
        values, (low, high) = numeric[:, self.counted], self.extremes[:, self.counted]
        return np.asarray((values < low) | (values > high))

    def by_name(self, counts: npt.NDArray[np.integer]) -> dict[str, int]:
        """Return the counts (counted,) that are not zero by column."""
        pairs = zip(self.counted, counts.tolist(), strict=True)
        return {self.columns[position]: count for position, count in pairs if count}

    def count(self, numeric: npt.NDArray[np.floating]) -> tuple[dict[str, int], int]:
        """Return how many of rows (rows, n_numeric) lie outside, by column, and in any column."""
        outside = self.outside(numeric)
        return self.by_name(outside.sum(axis=0)), int(outside.any(axis=1).sum())

    def unlikely(self, counts: Mapping[str, int], rows: int) -> dict[str, int]:
        """Return the counts of `rows` rows, by column and in descending order, that chance hardly explains.

        Of rows that are exchangeable with those learned, k lie outside in a column only if one learned row at most is
        among the first k + 1 of all in a random order. With the share q of new rows among all, that has probability
        qᵏ(1 + k(1 − q)) at most. Some column has such a count by chance with probability CHANCE at most.
        """
        share = rows / (rows + self.rows) if rows else 0.0
        limit = CHANCE / max(len(self.counted), 1)
        ordered = sorted(counts.items(), key=lambda item: -item[1])
        return {name: k for name, k in ordered if share**k * (1 + k * (1 - share)) < limit}


def show_counts(counts: Mapping[str, int]) -> str:
    """Return the count of each column, in one line."""
    return ", ".join(f"{name} ({count:,})" for name, count in counts.items())


def learned_ranges(segments: SegmentSource, record: ModelRecord) -> LearnedRanges:
    """Return the ranges of a model; those of older releases' models come from the segments. No row is read."""
    feature_map = feature_map_of(record)
    columns = tuple(column.name for column in feature_map.numeric)
    counted = tuple(position for position, column in enumerate(feature_map.numeric) if column.is_linear)
    extremes = record.arrays.get(LEARNED_RANGES)
    if extremes is None:
        extremes = _merged(segments, record.learned, _no_rows(len(columns)))
    if extremes.shape != (2, len(columns)) or extremes.dtype != np.float64:
        raise ModelError(
            f"the model {record.name!r} is damaged: {LEARNED_RANGES} has the shape {extremes.shape}, {extremes.dtype}"
        )
    return LearnedRanges(columns, counted, cast("Floats", extremes), record.counters.get("rows_seen", 0))


def with_ranges(
    record: ModelRecord, before: ModelRecord | None, segments: SegmentSource, numbers: Iterable[int]
) -> ModelRecord:
    """Return the record with its ranges, those `before` extended by the segments that were learned since."""
    n_numeric = len(feature_map_of(record).numeric)
    known = learned_ranges(segments, before).extremes if before else _no_rows(n_numeric)
    if not n_numeric:
        return record
    extremes = _merged(segments, numbers, known)
    return replace(record, arrays=record.arrays | {LEARNED_RANGES: extremes})


def _merged(segments: SegmentSource, numbers: Iterable[int], extremes: Floats) -> Floats:
    """Return extremes (2, n_numeric) extended by the rows of weight above zero of these segments, if still there."""
    n_numeric = extremes.shape[1]
    low, high = extremes
    for number in numbers:
        if number in segments:
            moments = segments[number].facts().moments[3:, :n_numeric]
            low, high = np.minimum(low, moments[0]), np.maximum(high, moments[1])
    return np.stack([low, high])


def _no_rows(n_numeric: int) -> Floats:
    return np.outer([np.inf, -np.inf], np.ones(n_numeric))
