"""Drift: each partition of a store compared with the rows that determined a model's standardization, and its error.

The segments' stored summaries are read: quantile sketches, category counts, moments; of short segments, the rows. If a
segment of an older store has no sketch, truncated normal distributions with the moments of both sides are compared
instead; for columns with two different values this is still exact.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ridgestream.pipeline.dataset.feature_map_fit import find_scaling
from ridgestream.pipeline.monitoring.segment_statistics import StatisticsReader
from ridgestream.pipeline.monitoring.training_rows import ColumnDrift, ColumnDrifts, TrainingRows
from ridgestream.pipeline.prediction.progressive_validation import find_limits
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.requests.activity import ACTIVITY


@dataclass(frozen=True)
class PartitionDrift:
    """A partition compared with the training rows and with the partitions learned before it."""

    segment: int
    """The number of its segment."""
    name: str
    """Its path relative to the source."""
    rows: int
    """Number of rows."""
    columns: ColumnDrifts | tuple[ColumnDrift, ...]
    """Features, then targets; empty without weighted rows, or if no training row is left in the store."""
    progressive_error: float | None
    """Its error before it was learned, None if unknown."""
    error_limit: float | None
    """The limit above which the error is an outlier; None if no partition was learned before."""

    @property
    def largest(self) -> ColumnDrift | None:
        """The column with the largest shift."""
        return self.columns.largest if isinstance(self.columns, ColumnDrifts) else None

    @cached_property
    def moved(self) -> tuple[ColumnDrift, ...]:
        """The columns with a large shift, the largest first."""
        return self.columns.moved if isinstance(self.columns, ColumnDrifts) else ()

    @property
    def erred(self) -> bool:
        """Whether the error is an outlier."""
        error, limit = self.progressive_error, self.error_limit
        return error is not None and limit is not None and error > limit

    @property
    def is_suspect(self) -> bool:
        """Whether it should be inspected before its model is served."""
        return bool(self.moved) or self.erred


def compare_partitions(
    statistics: StatisticsReader,
    ledger: Ledger,
    record: ModelRecord,
    entries: Sequence[LedgerEntry],
    learned: Mapping[int, float | None] | None = None,
) -> tuple[PartitionDrift, ...]:
    """Return the drift of partitions of the ledger relative to a model's training rows.

    No row is read but those of short partitions, which have no sketch.

    `learned` maps the segments, in order, that the model has learned since its record was written to their progressive
    errors. O(columns · log(size of a sketch)) per partition. Raises StoreError for damaged statistics.
    """
    if ledger.schema is None:
        return ()
    training = TrainingRows(ledger.schema, statistics.read(_scaled_by(statistics, record)))
    errors = _errors_of(record) | dict(learned or {})
    limits = _limits(ledger, record, [*record.learned, *(learned or ())], errors, {entry.segment for entry in entries})
    compared = ACTIVITY.counted(entries, "the drift of partitions")
    return tuple(
        PartitionDrift(
            segment=entry.segment,
            name=entry.name,
            rows=entry.rows,
            columns=training.compare(now),
            progressive_error=errors.get(entry.segment),
            error_limit=limits.get(entry.segment),
        )
        for entry, now in zip(compared, statistics.read([entry.segment for entry in entries]), strict=True)
    )


def _scaled_by(segments: StatisticsReader, record: ModelRecord) -> list[int]:
    """Return the segments that determined the model's standardization, as far as they are still in the store.

    Models of older releases were standardized by the first segments of their first run.
    """
    if record.scaled_by or not record.history:
        return [number for number in record.scaled_by if number in segments]
    first = [number for number in record.learned[: len(record.history[0].partitions)] if number in segments]
    return list(find_scaling(segments.root, first, record.parameters["scaling_rows"]))


def _errors_of(record: ModelRecord) -> dict[int, float | None]:
    """Return the progressive error of each segment, from the last night that learned it."""
    errors: dict[int, float | None] = {}
    for night in record.history:
        errors |= dict(zip(night.segments or (), night.progressive_errors or (), strict=False))
    return errors


def _limits(
    ledger: Ledger,
    record: ModelRecord,
    learned: Sequence[int],
    errors: Mapping[int, float | None],
    wanted: Collection[int],
) -> dict[int, float | None]:
    """Return the error limit of each learned segment from the first wanted one on.

    Nights without errors of single partitions count as one partition, before all others.
    """
    before = [night.progressive_error for night in record.history if night.segments is None]
    sizes = {entry.segment: entry.rows for entry in ledger.entries}
    sequence = [*before, *(errors.get(number) for number in learned)]
    rows = [*(0 for _ in before), *(sizes.get(number, 0) for number in learned)]
    classes = ledger.schema is not None and ledger.schema.classifies
    first = next((position for position, number in enumerate(learned) if number in wanted), len(learned))
    limits = find_limits(sequence, rows, classes=classes, first=len(before) + first)
    return dict(zip(learned[first:], limits, strict=True))
