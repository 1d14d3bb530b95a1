"""Drift, seen: each partition of a store against the rows that fixed a model's standardization, and its error.

Nothing is read but what the segments keep of their columns: quantile sketches, category counts, moments. Where a
segment of an older store has no sketch, normal distributions with the moments of both sides are compared instead, cut
off at their ranges; columns of two values are compared exactly all the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ridgestream.pipeline.dataset.feature_map_fit import find_scaling
from ridgestream.pipeline.features.one_vs_rest import Label
from ridgestream.pipeline.monitoring.population_stability import (
    CategoryBins,
    NumericBins,
    Shares,
    Shift,
    compare_shares,
    mean_shares,
)
from ridgestream.pipeline.prediction.progressive_validation import find_limits
from ridgestream.pipeline.sums.moments import Moments
from ridgestream.pipeline.sums.quantile_sketch import SAMPLE_ROWS, Sketch
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.segments import Segment, SegmentFacts, segment_path

if TYPE_CHECKING:
    import zarr

_AT_ONCE = 8
"""Segments asked for at once."""

QUANTILES, MOMENTS, COUNTS = "quantiles", "moments", "counts"


@dataclass(frozen=True)
class ColumnDrift:
    """One column of one partition, compared with the training rows."""

    column: str
    """Its name."""
    shift: Shift
    """How far it has moved."""
    missing: float
    """The share of the partition's rows that lack it."""
    compared: str
    """By what: quantiles, moments where there are no quantiles, or counts."""


@dataclass(frozen=True)
class PartitionDrift:
    """One partition, compared with the training rows and with the partitions learned before it."""

    segment: int
    """The number of its segment."""
    name: str
    """Its path relative to the source."""
    rows: int
    """Its rows."""
    columns: tuple[ColumnDrift, ...]
    """Features, then targets; none without a row that counts, or where no training row is left in the store."""
    progressive_error: float | None
    """Its error before it was learned, None where that is not known."""
    error_limit: float | None
    """Beyond this, the error is far above those of the partitions learned before; None where none was."""

    @property
    def largest(self) -> ColumnDrift | None:
        """The column that has moved farthest."""
        return max(self.columns, key=lambda column: column.shift.psi, default=None)

    @property
    def moved(self) -> tuple[ColumnDrift, ...]:
        """The columns that have moved far, the farthest first."""
        far = [column for column in self.columns if column.shift.is_large]
        return tuple(sorted(far, key=lambda column: -column.shift.psi))

    @property
    def erred(self) -> bool:
        """Whether the error is far above those before."""
        error, limit = self.progressive_error, self.error_limit
        return error is not None and limit is not None and error > limit

    @property
    def is_suspect(self) -> bool:
        """Whether it should be looked at before its model is served."""
        return bool(self.moved) or self.erred


@dataclass(frozen=True)
class Known:
    """What is known of a segment without reading a row."""

    facts: SegmentFacts
    """What it keeps of its columns."""
    rows: int
    """Its rows."""

    @property
    def weight(self) -> float:
        """The weight of its rows: of the target, which no row lacks."""
        return float(self.facts.moments[0, -1])

    @property
    def worth(self) -> float:
        """How many rows of equal weight its rows are worth."""
        if self.facts.sketch is None:
            return min(self.rows, SAMPLE_ROWS)
        return float(self.facts.sketch[-1, -1])

    def sketch(self, *, exact: bool) -> Sketch:
        """Return its sketch, or what stands for it by its moments."""
        if exact and self.facts.sketch is not None:
            return Sketch.from_array(self.facts.sketch)
        return Sketch.of_moments(Moments.from_array(self.facts.moments), self.rows)

    def missing(self, column: int) -> float:
        """Return the share of its rows' weight that lacks a numeric column."""
        return max(1 - float(self.facts.moments[0, column]) / self.weight, 0.0) if self.weight > 0 else 0.0

    def tables(self, schema: Schema) -> list[dict[Label, float]]:
        """Return the weight of each category of each column, and of each class where each is learned."""
        facts = self.facts
        tables = [*zip(facts.categories, facts.category_counts, strict=True)]
        counts: list[dict[Label, float]] = [dict(zip(*table, strict=True)) for table in tables]
        if schema.classes is not None:
            counts.append(dict(zip(facts.classes, facts.class_counts, strict=True)))
        return counts


class Segments:
    """What is known of the segments of a snapshot, each read once."""

    def __init__(self, root: "zarr.Group") -> None:
        self.root = root
        self._known: dict[int, Known] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._known or segment_path(number) in self.root

    def __getitem__(self, number: int) -> Known:
        self.fetch([number])
        return self._known[number]

    def fetch(self, numbers: Iterable[int]) -> None:
        """Read what is not known yet, several at once, since an object store takes its time for each."""
        wanted = [number for number in numbers if number not in self._known]
        if len(wanted) == 1:
            self._known[wanted[0]] = self._read(wanted[0])
        elif wanted:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="facts") as pool:
                self._known |= zip(wanted, pool.map(self._read, wanted), strict=True)

    def _read(self, number: int) -> Known:
        segment = Segment.open(self.root, number)
        return Known(segment.facts(), segment.rows)


class TrainingRows:
    """The partitions that fixed a model's standardization, binned column by column."""

    def __init__(self, schema: Schema, partitions: Iterable[Known]) -> None:
        self._schema, self._partitions = schema, [known for known in partitions if known.weight > 0]
        self._numeric = [f.name for f in schema.numeric] + ([] if schema.classes else list(schema.targets))
        self._counted = [f.name for f in schema.categorical] + (list(schema.targets) if schema.classes else [])
        self._weights = [known.weight for known in self._partitions]
        self._exact = all(known.facts.sketch is not None for known in self._partitions)

    def compare(self, now: Known) -> tuple[ColumnDrift, ...]:
        """Return how far each column of a partition has moved; nothing without rows on either side."""
        if not self._partitions or not now.weight > 0:
            return ()
        order = [f.name for f in self._schema.features] + list(self._schema.targets)
        drifts = [*self._compare_numbers(now), *self._compare_counts(now)]
        return tuple(sorted(drifts, key=lambda drift: order.index(drift.column)))

    def _compare_numbers(self, now: Known) -> Iterator[ColumnDrift]:
        exact = self._exact and now.facts.sketch is not None
        binned, sketch = self._by_quantiles if exact else self._by_moments, now.sketch(exact=exact)
        for name, (bins, training) in zip(self._numeric, binned, strict=True):
            missing = now.missing(bins.column)
            shift = self._shift(training, bins.count(sketch, missing))
            yield ColumnDrift(name, shift, missing, QUANTILES if exact else MOMENTS)

    def _compare_counts(self, now: Known) -> Iterator[ColumnDrift]:
        tables = now.tables(self._schema)
        for name, (bins, training), counts in zip(self._counted, self._by_counts, tables, strict=True):
            shift = self._shift(training, bins.count(counts, now.weight, now.worth))
            yield ColumnDrift(name, shift, max(1 - sum(counts.values()) / now.weight, 0.0), COUNTS)

    def _shift(self, training: Shares, now: Shares) -> Shift:
        return compare_shares(training, now, len(self._numeric) + len(self._counted))

    @cached_property
    def _by_quantiles(self) -> list[tuple[NumericBins, Shares]]:
        return self._bin([known.sketch(exact=True) for known in self._partitions])

    @cached_property
    def _by_moments(self) -> list[tuple[NumericBins, Shares]]:
        return self._bin([known.sketch(exact=False) for known in self._partitions])

    @cached_property
    def _by_counts(self) -> list[tuple[CategoryBins, Shares]]:
        tables = [known.tables(self._schema) for known in self._partitions]
        return [self._count([table[place] for table in tables]) for place in range(len(self._counted))]

    def _bin(self, sketches: Sequence[Sketch]) -> list[tuple[NumericBins, Shares]]:
        found = []
        for column in range(len(self._numeric)):
            low = min(float(known.facts.moments[3, column]) for known in self._partitions)
            high = max(float(known.facts.moments[4, column]) for known in self._partitions)
            bins = NumericBins.of(sketches, self._weights, column, low, high)
            pairs = zip(sketches, self._partitions, strict=True)
            found.append((bins, mean_shares([bins.count(s, k.missing(column)) for s, k in pairs], self._weights)))
        return found

    def _count(self, tables: Sequence[dict[Label, float]]) -> tuple[CategoryBins, Shares]:
        sums: dict[Label, float] = {}
        for table in tables:
            for value, weight in table.items():
                sums[value] = sums.get(value, 0.0) + weight
        bins = CategoryBins.of(sums)
        return bins, bins.count(sums, sum(self._weights), sum(known.worth for known in self._partitions))


def compare_partitions(
    segments: Segments,
    ledger: Ledger,
    record: ModelRecord,
    entries: Sequence[LedgerEntry],
    learned: Mapping[int, float | None] | None = None,
) -> tuple[PartitionDrift, ...]:
    """Return partitions of the ledger, compared with the training rows of a model; no row is read.

    `learned` are the segments, in order, that the model has learned since its record was made, with their progressive
    errors. O(columns · log(numbers of a sketch)) a partition. Raises StoreError where what a segment keeps is damaged.
    """
    if ledger.schema is None:
        return ()
    scaled_by = _scaled_by(segments, record)
    segments.fetch([*scaled_by, *(entry.segment for entry in entries)])
    training = TrainingRows(ledger.schema, (segments[number] for number in scaled_by))
    errors = _errors_of(record) | dict(learned or {})
    limits = _limits(ledger, record, [*record.learned, *(learned or ())], errors)
    return tuple(
        PartitionDrift(
            entry.segment,
            entry.name,
            entry.rows,
            training.compare(segments[entry.segment]),
            errors.get(entry.segment),
            limits.get(entry.segment),
        )
        for entry in entries
    )


def _scaled_by(segments: Segments, record: ModelRecord) -> list[int]:
    """Return the segments that fixed the model's standardization, as far as the store has them still.

    A model of an older release was standardized by the first that it learned in its first run.
    """
    if record.scaled_by or not record.history:
        return [number for number in record.scaled_by if number in segments]
    first = [number for number in record.learned[: len(record.history[0].partitions)] if number in segments]
    return list(find_scaling(segments.root, first, record.parameters["scaling_rows"]))


def _errors_of(record: ModelRecord) -> dict[int, float | None]:
    """Return the progressive error of each segment, that of the night in which it was learned last."""
    errors: dict[int, float | None] = {}
    for night in record.history:
        errors |= dict(zip(night.segments or (), night.progressive_errors or (), strict=False))
    return errors


def _limits(
    ledger: Ledger, record: ModelRecord, learned: Sequence[int], errors: Mapping[int, float | None]
) -> dict[int, float | None]:
    """Return the limit of the error of each segment that was learned.

    Of a night that was kept without the errors of its partitions, the error of all comes first.
    """
    before = [night.progressive_error for night in record.history if night.segments is None]
    sizes = {entry.segment: entry.rows for entry in ledger.entries}
    line = [*before, *(errors.get(number) for number in learned)]
    rows = [*(0 for _ in before), *(sizes.get(number, 0) for number in learned)]
    classes = ledger.schema is not None and ledger.schema.classifies
    return dict(zip(learned, find_limits(line, rows, classes=classes)[len(before) :], strict=True))
