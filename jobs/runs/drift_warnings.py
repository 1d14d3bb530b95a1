"""Partitions that are unlike those before them: warnings of a run, and the table that `inspect` shows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Fact, Reporter
from ridgestream.pipeline.monitoring.drift import PartitionDrift, compare_partitions
from ridgestream.pipeline.monitoring.segment_statistics import StatisticsReader
from ridgestream.pipeline.monitoring.training_rows import ColumnDrift
from ridgestream.pipeline.training.training_result import Trained
from ridgestream.stores.catalog.ledger import Ledger

if TYPE_CHECKING:
    import zarr

_NAMED = 10
"""Partitions that a run names; of the others it reports the number."""

_COLUMNS = 5
"""Columns of a partition that are named."""


def warn_of_drift(root: "zarr.Group", ledger: Ledger, trained: Trained, report: Reporter) -> tuple[PartitionDrift, ...]:
    """Report suspect partitions among those learned in this run; return the drift of all of them."""
    if not trained.entries:
        return ()
    errors = trained.progressive_errors or (None,) * len(trained.entries)
    learned = {entry.segment: error for entry, error in zip(trained.entries, errors, strict=True)}
    drifts = compare_partitions(StatisticsReader(root), ledger, trained.record, trained.entries, learned)
    suspects = [drift for drift in drifts if drift.is_suspect]
    for drift in suspects[:_NAMED]:
        report.warn(events.DRIFT_PARTITION_UNLIKE_OTHERS, **_facts_of(drift))
    if len(suspects) > _NAMED:
        report.warn(events.DRIFT_MORE_PARTITIONS, partitions=len(suspects) - _NAMED)
    return drifts


def _facts_of(drift: PartitionDrift) -> dict[str, Fact]:
    facts: dict[str, Fact] = {"partition": drift.name}
    if drift.moved:
        facts["moved"] = _named(drift.moved)
    if drift.erred:
        facts |= {"progressive_error": drift.progressive_error, "usual_up_to": drift.error_limit}
    return facts


def _named(columns: Sequence[ColumnDrift]) -> str:
    """Return the first columns with their PSI, and how many there are beside them."""
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
    }


def drift_table(model: dict[str, Any], width: int) -> Any:  # noqa: ANN401
    """Return a table of a model's partitions: rows, progressive error, largest PSI and its column."""
    from ridgestream.jobs.console.tables import fitted_table

    any_suspect = any(drift["suspect"] for drift in model["drift"])
    numbers = ("rows", "progressive", "largest PSI")
    return fitted_table(
        f"model {model['name']}: partitions",
        ("partition", *numbers, "of column"),
        [_cells(drift) for drift in model["drift"]],
        width,
        first=("partition", "progressive", "largest PSI"),
        right=numbers,
        caption="! unlike those before it" if any_suspect else "",
    )


def _cells(drift: dict[str, Any]) -> tuple[str, ...]:
    name, column = max(drift["columns"].items(), key=lambda item: item[1]["psi"], default=("", None))
    error, limit = drift["progressive_error"], drift["error_limit"]
    far = error is not None and limit is not None and error > limit
    return (
        drift["partition"],
        f"{drift['rows']:,}",
        "" if error is None else f"{error:.4g}{' !' if far else ''}",
        "" if column is None else f"{column['psi']:.2g}{' !' if column['moved'] else ''}",
        name,
    )
