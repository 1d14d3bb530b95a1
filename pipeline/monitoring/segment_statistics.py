"""The stored statistics of segments: moments, quantile sketches and category counts, read without any row."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgestream.pipeline.features.one_vs_rest import Label
from ridgestream.pipeline.sums.moments import Moments
from ridgestream.pipeline.sums.quantile_sketch import SAMPLE_ROWS, Sketch
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.segments import Segment, SegmentFacts, segment_path

if TYPE_CHECKING:
    import zarr

_AT_ONCE = 8
"""Number of segments read concurrently."""


@dataclass(frozen=True)
class SegmentStatistics:
    """The stored statistics of a segment, read without its rows."""

    facts: SegmentFacts
    """Statistics of its columns."""
    rows: int
    """Number of rows."""

    @property
    def weight(self) -> float:
        """The weight of its rows, from the target, which is never missing."""
        return float(self.facts.moments[0, -1])

    @property
    def worth(self) -> float:
        """The effective number of rows of equal weight."""
        if self.facts.sketch is None:
            return min(self.rows, SAMPLE_ROWS)
        return float(self.facts.sketch[-1, -1])

    def sketch(self, *, exact: bool) -> Sketch:
        """Return its quantile sketch, or unless `exact` an approximation from its moments."""
        if exact and self.facts.sketch is not None:
            return Sketch.from_array(self.facts.sketch)
        return Sketch.of_moments(Moments.from_array(self.facts.moments), self.rows)

    def missing(self, column: int) -> float:
        """Return the share of its rows' weight in which a numeric column is missing."""
        return max(1 - float(self.facts.moments[0, column]) / self.weight, 0.0) if self.weight > 0 else 0.0

    def tables(self, schema: Schema) -> list[dict[Label, float]]:
        """Return the weight of each category of each column, and for multi-class targets of each class."""
        facts = self.facts
        tables = [*zip(facts.categories, facts.category_counts, strict=True)]
        counts: list[dict[Label, float]] = [dict(zip(*table, strict=True)) for table in tables]
        if schema.classes is not None:
            counts.append(dict(zip(facts.classes, facts.class_counts, strict=True)))
        return counts


class StatisticsCache:
    """The statistics of a snapshot's segments, each read once."""

    def __init__(self, root: "zarr.Group") -> None:
        self.root = root
        self._read_already: dict[int, SegmentStatistics] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._read_already or segment_path(number) in self.root

    def __getitem__(self, number: int) -> SegmentStatistics:
        self.fetch([number])
        return self._read_already[number]

    def fetch(self, numbers: Iterable[int]) -> None:
        """Read the statistics not read yet, several concurrently, because object stores respond slowly."""
        missing = [number for number in numbers if number not in self._read_already]
        if len(missing) == 1:
            self._read_already[missing[0]] = self._read(missing[0])
        elif missing:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="facts") as pool:
                self._read_already |= zip(missing, pool.map(self._read, missing), strict=True)

    def _read(self, number: int) -> SegmentStatistics:
        segment = Segment.open(self.root, number)
        return SegmentStatistics(segment.facts(), segment.rows)
