"""Drift: each partition of a store compared with the rows that determined a model's standardization, and its error.

The segments' stored summaries are read: quantile sketches, category counts, moments; of short segments, the rows. If a
segment of an older store has no sketch, truncated normal distributions with the moments of both sides are compared
instead; for columns with two different values this is still exact.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from ridgestream.pipeline.dataset.feature_map_fit import find_scaling
from ridgestream.pipeline.dataset.feature_map_growth import feature_map_of
from ridgestream.pipeline.features.metric_summary import column_importance
from ridgestream.pipeline.monitoring.column_course import ColumnCourse, News
from ridgestream.pipeline.monitoring.drift_course import POOL_ROWS, POOLED, DriftFollower
from ridgestream.pipeline.monitoring.segment_statistics import SegmentStatistics, StatisticsReader
from ridgestream.pipeline.monitoring.training_rows import ColumnDrift, ColumnDrifts, TrainingRows
from ridgestream.pipeline.prediction.progressive_validation import FACTOR, find_limits
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.errors.exceptions import ModelError
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
    erred_before: bool = False
    """Whether the error of the partition learned before it is an outlier too, and not much smaller."""
    news: News | None = None
    """What it is news of; None where that is not known: it is not learned, or an older release learned it."""
    is_reference: bool = False
    """Whether it is one of the training rows, which are no news."""

    @property
    def leading(self) -> tuple[ColumnDrift, ...]:
        """The columns with a large shift, or else the one with the largest, among those whose drift may be news."""
        return self.columns.leading if isinstance(self.columns, ColumnDrifts) else ()

    @cached_property
    def moved(self) -> tuple[ColumnDrift, ...]:
        """The columns with a large shift, the largest first."""
        return self.columns.moved if isinstance(self.columns, ColumnDrifts) else ()

    @property
    def began(self) -> tuple[ColumnDrift, ...]:
        """The columns that begin to drift with it; where that is not known, those with a large shift."""
        news = self.news
        return self.moved if news is None else tuple(column for column in self.columns if column.column in news.began)

    @property
    def erred(self) -> bool:
        """Whether the error is an outlier."""
        return _is_outlier(self.progressive_error, self.error_limit)

    @property
    def began_to_err(self) -> bool:
        """Whether its error is an outlier, the one before it erred much less, and no accepted drift explains it."""
        is_explained = self.news is not None and bool(self.news.accepted)
        return self.erred and not (self.erred_before or self.is_reference or is_explained)

    @property
    def is_suspect(self) -> bool:
        """Whether it should be inspected before its model is served."""
        began = self.moved if self.news is None else self.news.began
        return bool(began) or self.began_to_err


def compare_partitions(
    statistics: StatisticsReader, ledger: Ledger, record: ModelRecord, entries: Sequence[LedgerEntry]
) -> tuple[PartitionDrift, ...]:
    """Return the drift of partitions of the ledger relative to a model's training rows, with what its nights reported.

    No row is read but those of short partitions, which have no sketch. O(columns · log(size of a sketch)) per
    partition. Raises StoreError for damaged statistics.
    """
    if ledger.schema is None:
        return ()
    reference = _scaled_by(statistics, record)
    training = TrainingRows(ledger.schema, statistics.read(reference), column_weights(record))
    compared = ACTIVITY.counted(entries, "the drift of partitions")
    columns = [training.compare(now) for _, now in zip(compared, _read(statistics, entries), strict=True)]
    news = _news_of(record) | dict.fromkeys(reference, News())
    reported = [news.get(entry.segment) for entry in entries]
    return _drifts(ledger, record, {}, entries, columns, reported, reference)


def recall_partitions(ledger: Ledger, record: ModelRecord) -> tuple[PartitionDrift, ...]:
    """Return what the partitions of a model's last night are news of now, without their columns."""
    news = _news_of(record)
    entries = [entry for entry in ledger.entries if entry.segment in (record.history[-1].segments or ())]
    reported = [news.get(entry.segment) for entry in entries]
    return _drifts(ledger, record, {}, entries, [()] * len(entries), reported, record.scaled_by)


def follow_partitions(
    statistics: StatisticsReader,
    ledger: Ledger,
    record: ModelRecord,
    errors: Mapping[int, float | None],
    exempt: Sequence[str] = (),
) -> tuple[tuple[PartitionDrift, ...], dict[str, Any]]:
    """Return the drift of the partitions that a model has learned since its record was written, and what to record.

    `errors` maps their segments, in order, to their progressive errors. The columns of `exempt` are not followed.
    """
    schema, weights = ledger.schema, column_weights(record, exempt)
    if schema is None:
        return (), record.drift
    reference = _scaled_by(statistics, record)
    training = TrainingRows(schema, statistics.read(reference), weights)
    follower = DriftFollower(statistics, schema, training, courses_of(record, exempt), weights)
    by_segment = {entry.segment: entry for entry in ledger.entries}
    entries = [by_segment[segment] for segment in errors]
    learned = [by_segment[s] for s in record.learned[-POOLED:] if s in by_segment and s not in reference]
    before = _judged_with(entries[0], learned)
    for entry, now in zip(before, _read(statistics, before), strict=True):
        follower.remember(entry.segment, now)
    compared = ACTIVITY.counted(entries, "the drift of partitions")
    followed = [
        (training.compare(now), News()) if entry.segment in reference else follower.follow(entry.segment, now)
        for entry, now in zip(compared, _read(statistics, entries), strict=True)
    ]
    columns, news = zip(*followed, strict=True)
    plain = {name: course.as_plain() for name, course in follower.courses.items()}
    drifts = _drifts(ledger, record, errors, entries, columns, news, reference)
    return drifts, {"exempt": [*exempt], "columns": plain}


def courses_of(record: ModelRecord, exempt: Sequence[str] = ()) -> dict[str, ColumnCourse]:
    """Return the course of each column that has drifted, but for those of `exempt`."""
    courses = record.drift.get("columns", {})
    return {name: ColumnCourse.from_plain(plain) for name, plain in courses.items() if name not in exempt}


def accept_columns(record: ModelRecord, columns: Sequence[str]) -> ModelRecord:
    """Return the record after what these columns are now has become normal, which its last night is not news of.

    Raises ModelError if one does not drift.
    """
    courses, drifting = courses_of(record), drifting_columns(record)
    calm = [name for name in columns if name not in drifting]
    if calm:
        raise ModelError(
            f"{', '.join(calm)} does not drift in the model {record.name!r}; drifting: {', '.join(drifting) or 'none'}"
        )
    accepted = {name: courses[name].accepted().as_plain() for name in columns}
    drift = record.drift | {"columns": record.drift["columns"] | accepted}
    *earlier, last = record.history
    return replace(record, drift=drift, history=(*earlier, replace(last, drift=_without(last.drift, columns))))


def _without(
    recorded: Mapping[str, Mapping[str, Sequence[str]]] | None, columns: Sequence[str]
) -> dict[str, Any] | None:
    """Return what each segment is news of, as a night records it, without the drift of these columns."""
    if recorded is None:
        return None
    news = {segment: News.from_plain(plain).without(columns).as_plain() for segment, plain in recorded.items()}
    return {segment: plain for segment, plain in news.items() if plain}


def drifting_columns(record: ModelRecord) -> list[str]:
    """Return the columns whose drift has begun and not ended."""
    return [name for name, course in courses_of(record).items() if course.since is not None]


def column_weights(record: ModelRecord, exempt: Sequence[str] | None = None) -> dict[str, float]:
    """Return the importance of columns where it is not 1: by the model's features, and 0 for those of `exempt`.

    If `exempt` is None, they are those of the model's last night.
    """
    exempt = record.drift.get("exempt", ()) if exempt is None else exempt
    return column_importance(feature_map_of(record)) | dict.fromkeys(exempt, 0.0)


def _drifts(
    ledger: Ledger,
    record: ModelRecord,
    learned: Mapping[int, float | None],
    entries: Sequence[LedgerEntry],
    columns: Sequence[ColumnDrifts | tuple[ColumnDrift, ...]],
    news: Sequence[News | None],
    reference: Collection[int],
) -> tuple[PartitionDrift, ...]:
    errors = _errors_of(record) | dict(learned)
    order = [*record.learned, *learned]
    limits = _limits(ledger, record, order, errors, {entry.segment for entry in entries})
    go_on_erring = {
        segment
        for before, segment in pairwise(order)
        if _is_outlier(errors.get(before), limits.get(before))
        and (errors.get(segment) or 0.0) <= FACTOR * (errors.get(before) or 0.0)
    }
    return tuple(
        PartitionDrift(
            segment=entry.segment,
            name=entry.name,
            rows=entry.rows,
            columns=of_columns,
            progressive_error=errors.get(entry.segment),
            error_limit=limits.get(entry.segment),
            erred_before=entry.segment in go_on_erring,
            news=of_partition,
            is_reference=entry.segment in reference,
        )
        for entry, of_columns, of_partition in zip(entries, columns, news, strict=True)
    )


def _is_outlier(error: float | None, limit: float | None) -> bool:
    return error is not None and limit is not None and error > limit


def _read(statistics: StatisticsReader, entries: Sequence[LedgerEntry]) -> Iterator[SegmentStatistics]:
    return statistics.read([entry.segment for entry in entries])


def _judged_with(first: LedgerEntry, learned: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Return the last partitions learned that may be judged together with the next one."""
    rows, last = first.rows, list[LedgerEntry]()
    for entry in reversed(learned):
        rows += entry.rows
        if rows > POOL_ROWS:
            break
        last.insert(0, entry)
    return last


def _news_of(record: ModelRecord) -> dict[int, News]:
    """Return what each segment was news of in the last night that learned it, as far as nights have recorded it."""
    news: dict[int, News] = {}
    for night in record.history:
        if night.drift is not None:
            recorded = {int(segment): News.from_plain(plain) for segment, plain in night.drift.items()}
            news |= {segment: recorded.get(segment, News()) for segment in night.segments or ()}
    return news


def _scaled_by(segments: StatisticsReader, record: ModelRecord) -> list[int]:
    """Return the segments that determined the model's standardization, as far as they are still in the store.

    Models of older releases were standardized by the first segments of their first run.
    """
    if record.scaled_by or not record.history:
        return [number for number in record.scaled_by if number in segments]
    first = [number for number in record.learned[: len(record.history[0].partitions)] if number in segments]
    return list(find_scaling(segments.segments, first, record.parameters["scaling_rows"]))


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
    """Return the error limit of each learned segment from the one before the first wanted one on.

    Nights without errors of single partitions count as one partition, before all others.
    """
    before = [night.progressive_error for night in record.history if night.segments is None]
    sizes = {entry.segment: entry.rows for entry in ledger.entries}
    sequence = [*before, *(errors.get(number) for number in learned)]
    rows = [*(0 for _ in before), *(sizes.get(number, 0) for number in learned)]
    classes = ledger.schema is not None and ledger.schema.classifies
    wanted_from = next((position for position, number in enumerate(learned) if number in wanted), len(learned))
    first = max(wanted_from - 1, 0)
    limits = find_limits(sequence, rows, classes=classes, first=len(before) + first)
    return dict(zip(learned[first:], limits, strict=True))
