"""The parts of a report about rows: the partitions of the night with their drift, and the held-out rows."""

from collections.abc import Sequence
from typing import Any

from ridgestream.jobs.console.confusion_table import binary_confusion, class_facts, confusion_facts
from ridgestream.jobs.report.stored_night import StoredNight
from ridgestream.pipeline.monitoring.drift import PartitionDrift, compare_partitions
from ridgestream.pipeline.monitoring.segment_statistics import StatisticsReader
from ridgestream.stores.catalog.models import CONFUSION

_MOVED_COLUMNS = 5
"""Columns that have moved and are named, at most."""


def partition_facts(stored: StoredNight, drifts: Sequence[PartitionDrift] | None) -> list[dict[str, Any]]:
    """Return the partitions of the night in the order of learning; drifts that are None are computed."""
    if drifts is None:
        drifts = compare_partitions(StatisticsReader(stored.root), stored.ledger, stored.record, stored.entries)
    dropped = {entry.segment: entry.dropped for entry in stored.entries}
    return [_partition(drift, dropped[drift.segment]) for drift in drifts]


def _partition(drift: PartitionDrift, dropped: int) -> dict[str, Any]:
    leading = drift.leading[0] if drift.leading else None
    return {
        "partition": drift.name,
        "rows": drift.rows,
        "dropped_rows": dropped,
        "progressive_error": drift.progressive_error,
        "error_limit": drift.error_limit,
        "largest_psi": leading.shift.psi if leading else None,
        "of_column": leading.column if leading else None,
        "moved": [column.column for column in drift.moved[:_MOVED_COLUMNS]],
        "began": [column.column for column in drift.began[:_MOVED_COLUMNS]],
        "settled": list(drift.news.settled[:_MOVED_COLUMNS]) if drift.news else [],
        "erred": drift.erred,
        "began_to_err": drift.began_to_err,
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
        return evaluation | _of_classes(confusion_facts(stored.record.encoding["classes"], weights))
    if stored.task == "binary" and schema.positive is not None:
        return evaluation | _of_classes(binary_confusion(schema.positive, evaluation))
    if stored.task == "regression":
        bars = [{"target": name, **histogram} for name, histogram in zip(schema.targets, residuals, strict=False)]
        return evaluation | {"residuals": bars, "targets": len(schema.targets)}
    return evaluation


def _of_classes(confusion: dict[str, Any]) -> dict[str, Any]:
    return {"confusion": confusion, **class_facts(confusion)}
