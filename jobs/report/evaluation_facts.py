"""The parts of a report about rows: the partitions of the night with their drift, and the held-out rows."""

from collections.abc import Sequence
from typing import Any

from ridgestream.jobs.console.confusion_table import confusion_facts
from ridgestream.jobs.report.stored_night import StoredNight
from ridgestream.pipeline.monitoring.drift import PartitionDrift, compare_partitions
from ridgestream.pipeline.monitoring.segment_statistics import StatisticsReader
from ridgestream.stores.catalog.models import CONFUSION
from ridgestream.stores.schema.class_labels import class_name

_MOVED_COLUMNS = 5
"""Columns that have moved and are named, at most."""


def partition_facts(stored: StoredNight, drifts: Sequence[PartitionDrift] | None) -> list[dict[str, Any]]:
    """Return the partitions of the night in the order of learning; drifts that are None are computed."""
    if drifts is None:
        drifts = compare_partitions(StatisticsReader(stored.root), stored.ledger, stored.record, stored.entries)
    dropped = {entry.segment: entry.dropped for entry in stored.entries}
    return [_partition(drift, dropped[drift.segment]) for drift in drifts]


def _partition(drift: PartitionDrift, dropped: int) -> dict[str, Any]:
    largest = drift.largest
    return {
        "partition": drift.name,
        "rows": drift.rows,
        "dropped_rows": dropped,
        "progressive_error": drift.progressive_error,
        "error_limit": drift.error_limit,
        "largest_psi": largest.shift.psi if largest else None,
        "of_column": largest.column if largest else None,
        "moved": [column.column for column in drift.moved[:_MOVED_COLUMNS]],
        "erred": drift.erred,
        "suspect": drift.is_suspect,
    }


def evaluation_facts(stored: StoredNight) -> dict[str, Any]:
    """Return the counts of the held-out rows, with the confusion matrix or the histograms of residuals."""
    evaluation, schema = dict(stored.run.get("evaluation") or {}), stored.ledger.schema
    if not evaluation or schema is None:
        return {}
    residuals = evaluation.pop("residuals")
    if stored.task == "classes" and CONFUSION in stored.record.arrays:
        weights = stored.record.arrays[CONFUSION].tolist()
        return evaluation | {"confusion": confusion_facts(stored.record.encoding["classes"], weights)}
    if stored.task == "binary":
        positive = "" if schema.positive is None else class_name(schema.positive)
        return evaluation | {"confusion": _binary_confusion(positive, evaluation)}
    if stored.task == "regression":
        bars = [{"target": name, **histogram} for name, histogram in zip(schema.targets, residuals, strict=False)]
        return evaluation | {"residuals": bars, "targets": len(schema.targets)}
    return evaluation


def _binary_confusion(positive: str, evaluation: dict[str, Any]) -> dict[str, Any]:
    """Return the confusion matrix of one class against the rest, from the counts of an evaluation."""
    true_positive = evaluation["true_positive"]
    missed = evaluation["positive"] - true_positive
    wrong = max(evaluation["mistakes"] - missed, 0.0)
    rest = max(evaluation["weight"] - evaluation["positive"] - wrong, 0.0)
    return {"classes": [positive, "all others"], "weights": [[true_positive, missed], [wrong, rest]]}
