"""The statistics of segments: stored moments, quantile sketches and category counts, and the rows of short segments."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.features.one_vs_rest import Label
from ridgestream.pipeline.sums.moments import Moments, merge_moments
from ridgestream.pipeline.sums.quantile_sketch import SAMPLE_ROWS, Sketch, round_single
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.segment_format import SegmentFacts
from ridgestream.stores.segments.segments import Segment, Segments

if TYPE_CHECKING:
    import zarr

_AT_ONCE = 8
"""Number of segments read concurrently."""

_AHEAD = 64
"""Number of segments whose statistics are in memory at a time."""


@dataclass(frozen=True)
class SegmentStatistics:
    """The statistics of a segment."""

    facts: SegmentFacts
    """Statistics of its columns."""
    rows: int
    """Number of rows."""
    values: Floats | None = None
    """In a short segment without a sketch, its numbers and targets, shape (rows, n), NaN for missing values."""
    weights: Floats | None = None
    """The weights of these rows, shape (rows,); None if all are 1."""
    rounded: int = 0
    """The number of columns, the first ones, that the store rounds to float32: they are compared in this precision."""

    @property
    def weight(self) -> float:
        """The weight of its rows, from the target, which is never missing."""
        return float(self.facts.moments[0, -1])

    @property
    def worth(self) -> float:
        """The effective number of rows of equal weight."""
        if self.facts.sketch is not None:
            return float(self.facts.sketch[-1, -1])
        if self.values is None or self.weights is None or not self.weight > 0:
            return min(self.rows, SAMPLE_ROWS)
        share = self.weights / self.weights.max()
        return float(share.sum() ** 2 / (share**2).sum())

    @property
    def has_quantiles(self) -> bool:
        """Whether its distribution is known from a sketch or rows; otherwise only the moments are."""
        return self.facts.sketch is not None or self.values is not None

    def sketch(self, *, exact: bool) -> Sketch:
        """Return its quantile sketch, or unless `exact` an approximation from its moments."""
        if exact and self.facts.sketch is not None:
            sketch = Sketch.from_array(self.facts.sketch)
            return replace(sketch, points=self.round_columns(sketch.points))
        if exact and self.values is not None:
            return Sketch.of(self.values, self.weights)
        return Sketch.of_moments(Moments.from_array(self.facts.moments), self.rows)

    def extremes(self) -> tuple[Floats, Floats]:
        """Return the smallest and the largest value of each column, two arrays of shape (n,)."""
        low, high = self.round_columns(self.facts.moments[3:])
        return low, high

    def round_columns(self, values: Floats) -> Floats:
        """Return values (rows, n) with the rounded columns in their precision."""
        return np.hstack([round_single(values[:, : self.rounded]), values[:, self.rounded :]])

    @property
    def missing(self) -> Floats:
        """The share of its rows' weight in which each numeric column or target is missing, shape (n,)."""
        present = self.facts.moments[0]
        return np.maximum(1 - present / self.weight, 0.0) if self.weight > 0 else np.zeros(len(present))

    def tables(self, schema: Schema) -> list[dict[Label, float]]:
        """Return the weight of each category of each column, and for multi-class targets of each class."""
        facts = self.facts
        tables = [*zip(facts.categories, facts.category_counts, strict=True)]
        counts: list[dict[Label, float]] = [dict(zip(*table, strict=True)) for table in tables]
        if schema.classes is not None:
            counts.append(dict(zip(facts.classes, facts.class_counts, strict=True)))
        return counts


class StatisticsReader:
    """Reads the statistics of a snapshot's segments."""

    def __init__(self, root: "zarr.Group") -> None:
        self.segments = Segments(root)

    def __contains__(self, number: int) -> bool:
        return number in self.segments

    def read(self, numbers: Sequence[int]) -> Iterator[SegmentStatistics]:
        """Yield the statistics of segments in order; large ones concurrently, because object stores respond slowly."""
        for start in range(0, len(numbers), _AHEAD):
            opened = [self.segments[number] for number in numbers[start : start + _AHEAD]]
            if sum(not segment.is_packed for segment in opened) > 1:
                with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="facts") as pool:
                    yield from pool.map(_statistics_of, opened)
            else:
                yield from map(_statistics_of, opened)


def _statistics_of(segment: Segment) -> SegmentStatistics:
    facts = segment.facts()
    rounded = segment.n_numeric if segment.is_single else 0
    statistics = SegmentStatistics(facts, segment.rows, rounded=rounded)
    if facts.sketch is not None or not segment.is_packed:
        return statistics
    rows = segment.read(0, segment.rows)
    targets = np.empty((len(rows), 0)) if rows.targets is None else rows.targets
    values = np.hstack([rows.numeric.astype(np.float64), targets])
    return replace(statistics, values=values, weights=rows.weights)


def pool_short(partitions: Iterable[SegmentStatistics]) -> Iterator[SegmentStatistics]:
    """Yield the statistics of partitions, consecutive short ones pooled: SAMPLE_ROWS rows at most, with a sketch."""
    waiting: list[SegmentStatistics] = []
    for part in partitions:
        rows = sum(each.rows for each in (*waiting, part))
        if waiting and (part.values is None or rows > SAMPLE_ROWS or part.rounded != waiting[0].rounded):
            yield _pooled(waiting)
            waiting = []
        if part.values is None:
            yield part
        else:
            waiting.append(part)
    if waiting:
        yield _pooled(waiting)


def _pooled(parts: Sequence[SegmentStatistics]) -> SegmentStatistics:
    if len(parts) == 1:
        return parts[0]
    values = np.vstack([part.values for part in parts if part.values is not None])
    weights = [np.ones(part.rows) if part.weights is None else part.weights for part in parts]
    moments = [Moments.from_array(part.facts.moments) for part in parts]
    tables = [_joined(part.facts.classes, part.facts.class_counts) for part in parts]
    classes = _sum_tables(tables)
    categories = [
        _sum_tables(_joined(part.facts.categories[column], part.facts.category_counts[column]) for part in parts)
        for column in range(len(parts[0].facts.categories))
    ]
    facts = SegmentFacts(
        moments=merge_moments(moments, values.shape[1]).as_array(),
        categories=tuple(tuple(table) for table in categories),
        category_counts=tuple(tuple(table.values()) for table in categories),
        classes=tuple(classes),
        class_counts=tuple(classes.values()),
        sketch=Sketch.of(values, np.concatenate(weights)).as_array(),
    )
    return SegmentStatistics(facts, len(values), rounded=parts[0].rounded)


def _joined(values: Sequence[Any], counts: Sequence[float]) -> dict[Any, float]:
    return dict(zip(values, counts, strict=True))


def _sum_tables(tables: Iterable[dict[Any, float]]) -> dict[Any, float]:
    sums: dict[Any, float] = {}
    for table in tables:
        for value, weight in table.items():
            sums[value] = sums.get(value, 0.0) + weight
    return sums
