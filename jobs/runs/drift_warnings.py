"""Partitions that are unlike those before them: warnings of a run, and the table that `inspect` shows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ridgestream.jobs.config.values import JobFileError
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Fact, Reporter
from ridgestream.pipeline.monitoring.drift import PartitionDrift, follow_partitions
from ridgestream.pipeline.monitoring.segment_statistics import StatisticsReader
from ridgestream.pipeline.monitoring.training_rows import ColumnDrift
from ridgestream.pipeline.training.training_result import Trained
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.schema.schema import Schema

if TYPE_CHECKING:
    import zarr

_NAMED = 10
"""Partitions that a run names; of the others it reports the number."""

_COLUMNS = 5
"""Columns of a partition that are named."""


def warn_of_drift(
    root: "zarr.Group", ledger: Ledger, trained: Trained, exempt: Sequence[str], report: Reporter
) -> tuple[tuple[PartitionDrift, ...], Trained]:
    """Report what the partitions learned in this run are news of; return their drift, and the training with it.

    The columns of `exempt` are never news.
    """
    if not trained.entries:
        return (), trained
    given = trained.progressive_errors or (None,) * len(trained.entries)
    errors = {entry.segment: error for entry, error in zip(trained.entries, given, strict=True)}
    drifts, course = follow_partitions(StatisticsReader(root), ledger, trained.record, errors, exempt)
    suspects = [drift for drift in drifts if drift.is_suspect]
    for drift in suspects[:_NAMED]:
        report.warn(events.DRIFT_PARTITION_UNLIKE_OTHERS, **_facts_of(drift))
    if len(suspects) > _NAMED:
        report.warn(events.DRIFT_MORE_PARTITIONS, partitions=len(suspects) - _NAMED)
    _say_ends(drifts, report)
    return drifts, replace(trained, record=replace(trained.record, drift=course))


def _say_ends(drifts: Sequence[PartitionDrift], report: Reporter) -> None:
    """Report the columns whose drift has become the new normal, or has ended, with the last partition that shows it."""
    for event, kind in ((events.DRIFT_NEW_NORMAL, "settled"), (events.DRIFT_ENDED, "ended")):
        last = {column: drift.name for drift in drifts for column in getattr(drift.news, kind, ())}
        for column, partition in list(last.items())[:_NAMED]:
            report.say(event, column=column, partition=partition)


def with_drift(record: ModelRecord, drifts: Sequence[PartitionDrift]) -> ModelRecord:
    """Return the record with what its last night is news of."""
    *earlier, last = record.history
    by_segment = {str(drift.segment): drift.news.as_plain() for drift in drifts if drift.news}
    news = {segment: plain for segment, plain in by_segment.items() if plain}
    return replace(record, history=(*earlier, replace(last, drift=news if drifts else None)))


def check_columns(where: str, columns: Sequence[str], schema: Schema | None) -> None:
    """Raise JobFileError if one of the columns that are named there is neither a feature nor a target."""
    names = [*(f.name for f in schema.features), *schema.targets] if schema else columns
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise JobFileError(
            f"{where} names {', '.join(unknown)}, which the model does not use; its columns: {', '.join(names)}"
        )


def _facts_of(drift: PartitionDrift) -> dict[str, Fact]:
    facts: dict[str, Fact] = {"partition": drift.name}
    if drift.began:
        facts["moved"] = _named(drift.began)
    if drift.began_to_err:
        facts |= {"progressive_error": drift.progressive_error, "usual_up_to": drift.error_limit}
    return facts


def _named(columns: Sequence[ColumnDrift]) -> str:
    """Return the first columns with their PSI, and how many others there are."""
    names = [f"{column.column} (PSI {column.shift.psi:.3g})" for column in columns[:_COLUMNS]]
    more = len(columns) - _COLUMNS
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def drift_facts(drifts: Sequence[PartitionDrift]) -> list[dict[str, Any]]:
    """Return the drift of the partitions as plain JSON."""
    return [
        {
            "partition": drift.name,
            "segment": drift.segment,
            "rows": drift.rows,
            "progressive_error": drift.progressive_error,
            "error_limit": drift.error_limit,
            "suspect": drift.is_suspect,
            "began_to_err": drift.began_to_err,
            "began": [column.column for column in drift.began],
            "leading": [column.column for column in drift.leading],
            "news": drift.news.as_plain() if drift.news else {},
            "columns": {column.column: _column_facts(column) for column in drift.columns},
        }
        for drift in drifts
    ]


def _column_facts(column: ColumnDrift) -> dict[str, Any]:
    return {
        "psi": column.shift.psi,
        "by_chance": column.shift.chance,
        "missing": column.missing,
        "compared": column.compared,
        "moved": column.shift.is_large,
        "importance": column.shift.importance,
    }


def drift_table(model: dict[str, Any], width: int) -> Any:  # noqa: ANN401
    """Return a table of a model's partitions: rows, progressive error, largest PSI and the columns that lead."""
    from ridgestream.jobs.console.tables import fitted_table

    any_suspect = any(drift["suspect"] for drift in model["drift"])
    numbers = ("rows", "progressive", "largest PSI")
    return fitted_table(
        f"model {model['name']}: partitions",
        ("partition", *numbers, "of column"),
        [drift_cells(drift) for drift in model["drift"]],
        width,
        first=("partition", "progressive", "largest PSI"),
        right=numbers,
        caption="! unlike the partitions before it, which is news" if any_suspect else "",
    )


def drift_cells(drift: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of a partition in the table; what is news of it is marked."""
    leading = drift["leading"][:_COLUMNS]
    column = drift["columns"][leading[0]] if leading else None
    error = drift["progressive_error"]
    return (
        drift["partition"],
        f"{drift['rows']:,}",
        "" if error is None else f"{error:.4g}{' !' if drift['began_to_err'] else ''}",
        "" if column is None else f"{column['psi']:.2g}{' !' if leading[0] in drift['began'] else ''}",
        ", ".join(leading),
    )
