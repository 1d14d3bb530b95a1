"""Drift of single columns: the training rows of a model, binned, and the shift of a partition's columns from them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ridgestream.pipeline.features.one_vs_rest import Label
from ridgestream.pipeline.monitoring.population_stability import (
    CategoryBins,
    NumericBins,
    Shares,
    Shift,
    compare_shares,
    mean_shares,
)
from ridgestream.pipeline.monitoring.segment_statistics import SegmentStatistics
from ridgestream.pipeline.sums.quantile_sketch import Sketch
from ridgestream.stores.schema.schema import Schema

QUANTILES, MOMENTS, COUNTS = "quantiles", "moments", "counts"


@dataclass(frozen=True)
class ColumnDrift:
    """One column of one partition, compared with the training rows."""

    column: str
    """Its name."""
    shift: Shift
    """How far its distribution has shifted."""
    missing: float
    """The share of the partition's rows in which it is missing."""
    compared: str
    """The method of comparison: quantiles, moments if there are no quantiles, or counts."""


class TrainingRows:
    """The partitions that determined a model's standardization, binned column by column."""

    def __init__(self, schema: Schema, partitions: Iterable[SegmentStatistics]) -> None:
        self._schema, self._partitions = schema, [part for part in partitions if part.weight > 0]
        self._numeric = [f.name for f in schema.numeric] + ([] if schema.classes else list(schema.targets))
        self._counted = [f.name for f in schema.categorical] + (list(schema.targets) if schema.classes else [])
        self._weights = [part.weight for part in self._partitions]
        self._exact = all(part.facts.sketch is not None for part in self._partitions)

    def compare(self, now: SegmentStatistics) -> tuple[ColumnDrift, ...]:
        """Return the drift of each column of a partition; empty if either side has no weighted rows."""
        if not self._partitions or not now.weight > 0:
            return ()
        order = [f.name for f in self._schema.features] + list(self._schema.targets)
        drifts = [*self._compare_numbers(now), *self._compare_counts(now)]
        return tuple(sorted(drifts, key=lambda drift: order.index(drift.column)))

    def _compare_numbers(self, now: SegmentStatistics) -> Iterator[ColumnDrift]:
        exact = self._exact and now.facts.sketch is not None
        binned, sketch = self._by_quantiles if exact else self._by_moments, now.sketch(exact=exact)
        for name, (bins, training) in zip(self._numeric, binned, strict=True):
            missing = now.missing(bins.column)
            shift = self._shift(training, bins.count(sketch, missing))
            yield ColumnDrift(name, shift, missing, QUANTILES if exact else MOMENTS)

    def _compare_counts(self, now: SegmentStatistics) -> Iterator[ColumnDrift]:
        tables = now.tables(self._schema)
        for name, (bins, training), counts in zip(self._counted, self._by_counts, tables, strict=True):
            shift = self._shift(training, bins.count(counts, now.weight, now.worth))
            yield ColumnDrift(name, shift, max(1 - sum(counts.values()) / now.weight, 0.0), COUNTS)

    def _shift(self, training: Shares, now: Shares) -> Shift:
        return compare_shares(training, now, len(self._numeric) + len(self._counted))

    @cached_property
    def _by_quantiles(self) -> list[tuple[NumericBins, Shares]]:
        return self._bin([part.sketch(exact=True) for part in self._partitions])

    @cached_property
    def _by_moments(self) -> list[tuple[NumericBins, Shares]]:
        return self._bin([part.sketch(exact=False) for part in self._partitions])

    @cached_property
    def _by_counts(self) -> list[tuple[CategoryBins, Shares]]:
        tables = [part.tables(self._schema) for part in self._partitions]
        return [self._count([table[index] for table in tables]) for index in range(len(self._counted))]

    def _bin(self, sketches: Sequence[Sketch]) -> list[tuple[NumericBins, Shares]]:
        binned = []
        for column in range(len(self._numeric)):
            low = min(float(part.facts.moments[3, column]) for part in self._partitions)
            high = max(float(part.facts.moments[4, column]) for part in self._partitions)
            bins = NumericBins.of(sketches, self._weights, column, low, high)
            pairs = zip(sketches, self._partitions, strict=True)
            shares = [bins.count(sketch, part.missing(column)) for sketch, part in pairs]
            binned.append((bins, mean_shares(shares, self._weights)))
        return binned

    def _count(self, tables: Sequence[dict[Label, float]]) -> tuple[CategoryBins, Shares]:
        sums: dict[Label, float] = {}
        for table in tables:
            for value, weight in table.items():
                sums[value] = sums.get(value, 0.0) + weight
        bins = CategoryBins.of(sums)
        return bins, bins.count(sums, sum(self._weights), sum(part.worth for part in self._partitions))
