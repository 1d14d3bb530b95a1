"""The entry of a night in a model's history, the result of a run, and warnings about unusual runs."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import source_partitions
from ridgestream.jobs.runs.guard import night_served
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.jobs.runs.trivial_errors import Comparison, mean_of, night_skills
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Fact, Reporter
from ridgestream.pipeline.metric.settings import MetricRequest, MetricSettings
from ridgestream.pipeline.models.experts_record import is_local
from ridgestream.pipeline.models.model_record import is_refitted, n_basis_of
from ridgestream.pipeline.prediction.evaluate import Evaluation
from ridgestream.pipeline.prediction.trivial_model import TargetMoments
from ridgestream.pipeline.training.request import CHOSEN
from ridgestream.pipeline.training.training_result import Trained
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import CONFUSION, TARGET_MOMENTS, Arrays, ModelRecord, Night
from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.parquet.partitions import read_batches
from ridgestream.stores.schema.class_labels import class_name
from ridgestream.stores.schema.schema import Schema

LEAST_SCALING_ROWS = 500
"""So many rows determine a column's deviation within some three per cent."""

OUTGROWN = 10
"""After so many times the rows of a first night that was too small for its pilot, others may be chosen."""

_NAMED = 10
"""Classes, or targets, that are named."""


def with_night(
    trained: Trained,
    number: int,
    snapshot: str,
    evaluation: Evaluation | None,
    targets: tuple[str, ...],
    comparison: Comparison | None,
    *,
    ordered: bool,
) -> ModelRecord:
    """Return the record to commit, with one more night in its history; it serves its own model.

    `ordered` says whether rows are ordered in time.
    """
    record, entries = trained.record, trained.entries
    rows = sum(entry.rows for entry in entries)
    night = Night(
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        partitions=tuple(entry.name for entry in entries),
        rows=rows,
        rows_seen=int(record.counters["rows_seen"]),
        n_basis=n_basis_of(record),
        progressive_error=trained.progressive_error if rows else None,
        test_error=None,
        test_mse=None,
        seconds=round(trained.seconds, 3),
        refitted=is_refitted(record),
        progressive_mse_of=_by_target(targets, trained.progressive_mse_of),
        regularization=record.parameters["learner"]["regularization"],
        number=number,
        progressive_errors=trained.progressive_errors if rows else None,
        segments=tuple(entry.segment for entry in entries),
        progressive_trivial_error=mean_of(trained.trivial_errors),
        progressive_trivial_mse_of=_by_target(targets, trained.trivial_errors),
        progressive_last_value_error=mean_of(trained.last_value_errors) if ordered else None,
        no_better_in=comparison.no_better_in if comparison else None,
        coverage=trained.coverage,
        refit_gain=trained.refit_gain,
    )
    history = (*record.history, night)
    record = replace(record, learned=learned_by(trained), data_snapshot=snapshot, history=history, serves=0)
    return with_errors(record, evaluation, targets, ordered=ordered) if evaluation else record


def with_errors(record: ModelRecord, evaluation: Evaluation, targets: tuple[str, ...], *, ordered: bool) -> ModelRecord:
    """Return the record with the errors on the test rows in its last night."""
    *earlier, last = record.history
    night = replace(
        last,
        test_error=evaluation.test_error,
        test_mse=evaluation.test_mse,
        test_mse_of=_by_target(targets, evaluation.test_mse_of),
        trivial_error=mean_of(evaluation.trivial_errors),
        trivial_mse_of=_by_target(targets, evaluation.trivial_errors),
        last_value_error=mean_of(evaluation.last_value.errors) if ordered else None,
    )
    confusion: Arrays = {CONFUSION: np.array(evaluation.confusion)} if evaluation.confusion else {}
    return replace(record, history=(*earlier, night), arrays=record.arrays | confusion)


def _by_target(targets: tuple[str, ...], errors: tuple[float, ...]) -> dict[str, float] | None:
    """Return the error of each target by its name; None if there is one target only."""
    return dict(zip(targets, errors, strict=True)) if len(errors) > 1 else None


def learned_by(trained: Trained) -> tuple[int, ...]:
    """Return the segments that the model has learned after a training."""
    return (*trained.record.learned, *(entry.segment for entry in trained.entries))


def outcome(record: ModelRecord | None, snapshot: str, entries: Sequence[LedgerEntry] | None) -> dict[str, Any]:
    """Return the result of a run that learned `entries`, as JSON prints it; entries are None if nothing was due."""
    nights = record.history if record else ()
    night = nights[-1] if nights else None
    result: dict[str, Any] = {
        "model": record.name if record else None,
        "rows_seen": int(record.counters["rows_seen"]) if record else 0,
        "n_basis": night.n_basis if night else 0,
        "test_error": night.test_error if night else None,
        "progressive_error": _progressive_error(nights),
        "refitted": is_refitted(record) if record else False,
        "partitions_consumed": len(record.learned) if record else 0,
        "condition": record.counters.get("normal_condition") if record else None,
        "rounding_error": record.counters.get("rounding_error") if record else None,
        "largest_jitter": record.counters.get("largest_jitter") if record else None,
        "new_partitions": len(entries or ()),
        "new_rows": sum(entry.rows for entry in entries or ()),
        "train_seconds": night.seconds if night and entries is not None else 0.0,
        "peak_rss_bytes": peak_rss_bytes(),
        "snapshot": snapshot,
        "served_night": night_served(record) if record else 0,
        "suspects": [],
    }
    if night and night.test_mse is not None:
        result["test_mse"] = night.test_mse
    for name in ("progressive_mse_of", "test_mse_of"):
        if night and getattr(night, name) is not None:
            result[name] = getattr(night, name)
    return result | {name: value for name, value in (night_skills(night) if night else {}).items() if value is not None}


def _progressive_error(nights: Sequence[Night]) -> float | None:
    """Return the last progressive error of the nights since a rollback; None if there is none."""
    last = (night for night in reversed(nights) if night.progressive_error is not None or night.event is not None)
    return next((night.progressive_error for night in last), None)


def warn_of_unusual_runs(job: Job, ledger: Ledger, record: ModelRecord, trained: Trained, report: Reporter) -> None:
    """Report what is allowed but rarely intended: scaling by few rows, one class, one target value, no refit again.

    The same of settings that few rows have chosen.
    """
    _warn_of_early_scaling(ledger, record, trained, report)
    _warn_of_outgrown_pilot(record, trained, report)
    schema = ledger.schema
    if trained.one_class:
        report.warn(events.TRAIN_ONE_CLASS, **_positive_facts(job, schema, trained))
    if constant := _constant_targets(schema, record):
        report.warn(events.TRAIN_TARGET_CONSTANT, columns=", ".join(constant[:_NAMED]))
    if [night.refitted for night in record.history[-2:]] == [True, False]:
        report.say(events.TRAIN_NOT_REFITTED)


def _positive_facts(job: Job, schema: Schema | None, trained: Trained) -> dict[str, Fact]:
    """Return the class that is learned against the rest, and the classes that there are; empty if each is learned."""
    if schema is None or schema.positive is None:
        return {}
    return {"positive": schema.positive, "classes": _first_classes(job, schema, trained)}


def _first_classes(job: Job, schema: Schema, trained: Trained) -> str:
    """Return the first classes in the first of the partitions learned, as far as the source still has it."""
    learned, names = {entry.name for entry in trained.entries}, dict[str, None]()
    with suppress(PartitionError, StoreError):
        file = next((file for file in source_partitions(job) if file.name in learned), None)
        for batch in read_batches(file, list(schema.targets)) if file else ():
            labels = batch.column(0).unique().to_pylist()
            names |= dict.fromkeys(class_name(label) for label in labels if label is not None)
    shown = sorted(names)[:_NAMED]
    return ", ".join(shown) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _constant_targets(schema: Schema | None, record: ModelRecord) -> tuple[str, ...]:
    """Return the targets of a regression that have one value in all rows learned."""
    moments = record.arrays.get(TARGET_MOMENTS)
    if schema is None or schema.classifies or moments is None:
        return ()
    learned = TargetMoments.from_array(np.asarray(moments, dtype=np.float64))
    errors = learned.constant_errors(learned, classes=False)
    return tuple(name for name, error in zip(schema.targets, errors, strict=False) if error == 0.0)


def _warn_of_early_scaling(ledger: Ledger, record: ModelRecord, trained: Trained, report: Reporter) -> None:
    """Warn once if few rows have fixed the standardization: when the first rows are learned that could have, too."""
    fixed_by, tonight = set(record.scaled_by), {entry.segment for entry in trained.entries}
    before = set(record.learned) - tonight
    rows = sum(entry.rows for entry in ledger.entries if entry.segment in fixed_by)
    if before and before <= fixed_by and tonight and rows < LEAST_SCALING_ROWS:
        report.warn(events.TRAIN_SCALING_FIXED_EARLY, rows=rows)


def _warn_of_outgrown_pilot(record: ModelRecord, trained: Trained, report: Reporter) -> None:
    """Warn once if a first night of fewer rows than a pilot asks for has chosen settings, and is a tenth of all now."""
    chosen, metric = [*record.parameters.get(CHOSEN, ())], MetricRequest.of(record.parameters)
    settings = [*(["metric"] if metric else []), *(["cells"] if is_local(record) else []), *chosen]
    nights = [night for night in record.history if night.rows]
    if not trained.entries or len(nights) < 2 or not settings:
        return
    first, before, now = nights[0].rows, nights[-2].rows_seen, nights[-1].rows_seen
    if first < (metric.options if metric else MetricSettings()).rows and before < OUTGROWN * first <= now:
        report.warn(events.PILOT_OUTGROWN, rows=first, rows_now=now, settings=", ".join(settings))
