"""Drift of single columns: the training rows of a model, binned, and the shift of a partition's columns from them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.features.one_vs_rest import Label
from ridgestream.pipeline.monitoring.population_stability import (
    CategoryBins,
    NumericBins,
    Shares,
    Shift,
    Shifts,
    StackedShares,
    compare_columns,
    count_rows,
    mean_shares,
    pool_shares,
    stack_edges,
    stack_shares,
)
from ridgestream.pipeline.monitoring.segment_statistics import SegmentStatistics, pool_short
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


class ColumnDrifts(Sequence[ColumnDrift]):
    """The drift of the columns of one partition, kept as arrays: a store may have many partitions."""

    def __init__(self, names: Sequence[str], shifts: Shifts, missing: Floats, compared: Sequence[str]) -> None:
        self._names, self._shifts, self._missing, self._compared = names, shifts, missing, compared

    @overload
    def __getitem__(self, index: int) -> ColumnDrift: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ColumnDrift, ...]: ...

    def __getitem__(self, index: int | slice) -> ColumnDrift | tuple[ColumnDrift, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        missing = float(self._missing[index])
        return ColumnDrift(self._names[index], self._shifts[index], missing, self._compared[index])

    def __len__(self) -> int:
        return len(self._names)

    @property
    def leading(self) -> tuple[ColumnDrift, ...]:
        """The columns with a large shift, or else the one with the largest, among those of some importance."""
        weighed = np.where(self._shifts.importance > 0, self._shifts.psi, -1.0)
        largest = self[int(np.argmax(weighed))] if (weighed >= 0).any() else None
        return self.moved or ((largest,) if largest else ())

    @property
    def moved(self) -> tuple[ColumnDrift, ...]:
        """The columns with a large shift, the largest first."""
        columns = [self[int(column)] for column in np.flatnonzero(self.are_large)]
        return tuple(sorted(columns, key=lambda column: -column.shift.psi))

    @property
    def are_large(self) -> npt.NDArray[np.bool_]:
        """Whether each has a large shift, shape (columns,)."""
        return self._shifts.are_large()

    def of_column(self, name: str) -> Shift:
        """Return the shift of the column of this name."""
        return self._shifts[self._names.index(name)]


@dataclass(frozen=True)
class BinnedRows:
    """The rows of one or several partitions in the bins of the training rows."""

    shares: StackedShares
    """The shares of each column."""
    missing: Floats
    """The share in which each column is missing, shape (columns,)."""
    exact: bool
    """Whether numbers are binned by quantiles; otherwise by moments."""

    @classmethod
    def pool(cls, parts: Sequence["BinnedRows"], counted: npt.NDArray[np.bool_]) -> "BinnedRows":
        """Return the rows of partitions binned alike together; `counted` (partitions, columns) says which, where."""
        return replace(parts[-1], shares=pool_shares([part.shares for part in parts], counted))


class TrainingRows:
    """The partitions that determined a model's standardization, binned column by column."""

    def __init__(
        self, schema: Schema, partitions: Iterable[SegmentStatistics], importance: Mapping[str, float] | None = None
    ) -> None:
        """Bin the partitions; the columns that `importance` does not name have importance 1."""
        self._schema = schema
        self._partitions = [part for part in pool_short(partitions) if part.weight > 0]
        self._numeric = [f.name for f in schema.numeric] + ([] if schema.classes else list(schema.targets))
        self._counted = [f.name for f in schema.categorical] + (list(schema.targets) if schema.classes else [])
        self._weights = [part.weight for part in self._partitions]
        self._exact = all(part.has_quantiles for part in self._partitions)
        names, order = [*self._numeric, *self._counted], [f.name for f in schema.features] + list(schema.targets)
        compared = [name for name in order if name in names and name not in schema.folder_keys]
        self._order = np.array([names.index(name) for name in compared], dtype=np.int64)
        self._stacked_edges: dict[int, Floats] = {}
        self.names = tuple(names[position] for position in self._order)
        self._importance = np.array([(importance or {}).get(name, 1.0) for name in self.names])

    @property
    def rows(self) -> float:
        """The effective number of rows."""
        return sum(part.worth for part in self._partitions)

    def compare(self, now: SegmentStatistics) -> ColumnDrifts | tuple[ColumnDrift, ...]:
        """Return the drift of each column of a partition; empty if either side has no weighted rows.

        A key of the partition's folders is not compared: each partition has but one value of it.
        """
        binned = self.bin(now)
        return () if binned is None else self.compare_binned(binned)

    def bin(self, now: SegmentStatistics) -> BinnedRows | None:
        """Return the rows of a partition in the bins; None if either side has no weighted rows."""
        if not self._partitions or not now.weight > 0:
            return None
        exact = self._exact and now.has_quantiles
        bins = (self._by_quantiles if exact else self._by_moments)[0]
        tables = now.tables(self._schema)
        counts = [b.count(table, now.weight, now.worth) for b, table in zip(self._by_counts[0], tables, strict=True)]
        shares = self._count_numbers(bins, now, exact=exact).followed_by(stack_shares(counts))
        missing = now.missing[: len(bins)].tolist()
        missing += [max(1 - sum(table.values()) / now.weight, 0.0) for table in tables]
        return BinnedRows(shares.take(self._order), np.array(missing)[self._order], exact)

    def compare_binned(self, binned: BinnedRows) -> ColumnDrifts:
        """Return the drift of each column of rows in the bins."""
        bins, numeric = self._by_quantiles if binned.exact else self._by_moments
        training = numeric.followed_by(self._by_counts[1]).take(self._order)
        shifts = compare_columns(training, binned.shares, len(self.names), self._importance)
        compared = [QUANTILES if binned.exact else MOMENTS] * len(bins) + [COUNTS] * len(self._counted)
        return ColumnDrifts(self.names, shifts, binned.missing, [compared[position] for position in self._order])

    def _count_numbers(self, bins: Sequence[NumericBins], now: SegmentStatistics, *, exact: bool) -> StackedShares:
        if exact and now.values is not None:
            edges = self._edges(bins, now.rounded)
            return count_rows(edges, now.values[:, [each.column for each in bins]], now.weights, now.worth)
        sketch = now.sketch(exact=exact)
        return stack_shares([each.count(sketch, float(now.missing[each.column])) for each in bins])

    def _edges(self, bins: Sequence[NumericBins], rounded: int) -> Floats:
        """Return the stacked edges of the bins by quantiles; they are the same for each partition."""
        if rounded not in self._stacked_edges:
            self._stacked_edges[rounded] = stack_edges(bins, rounded)
        return self._stacked_edges[rounded]

    @cached_property
    def _by_quantiles(self) -> tuple[list[NumericBins], StackedShares]:
        return self._bin(exact=True)

    @cached_property
    def _by_moments(self) -> tuple[list[NumericBins], StackedShares]:
        return self._bin(exact=False)

    @cached_property
    def _by_counts(self) -> tuple[list[CategoryBins], StackedShares]:
        tables = [part.tables(self._schema) for part in self._partitions]
        binned = [self._count([table[index] for table in tables]) for index in range(len(self._counted))]
        return [bins for bins, _ in binned], stack_shares([shares for _, shares in binned])

    def _bin(self, *, exact: bool) -> tuple[list[NumericBins], StackedShares]:
        sketches = [part.sketch(exact=exact) for part in self._partitions]
        lows, highs = (np.array(each) for each in zip(*(part.extremes() for part in self._partitions), strict=True))
        bins = [
            NumericBins.of(sketches, self._weights, column, float(lows[:, column].min()), float(highs[:, column].max()))
            for column in range(len(self._numeric))
        ]
        counted = [self._count_numbers(bins, part, exact=exact) for part in self._partitions]
        columns = [[part.column(position) for part in counted] for position in range(len(bins))]
        return bins, stack_shares([mean_shares(column, self._weights) for column in columns])

    def _count(self, tables: Sequence[dict[Label, float]]) -> tuple[CategoryBins, Shares]:
        sums: dict[Label, float] = {}
        for table in tables:
            for value, weight in table.items():
                sums[value] = sums.get(value, 0.0) + weight
        bins = CategoryBins.of(sums)
        return bins, bins.count(sums, sum(self._weights), sum(part.worth for part in self._partitions))
