"""The ingest command: ingests the partitions that the store lacks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import open_or_create_store, policies, schema_request, source_partitions
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.events import Event
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.reporter import Fact, Reporter
from ridgestream.pipeline.ingest.ingest import ingest
from ridgestream.pipeline.ingest.ingest_report import IngestReport
from ridgestream.pipeline.ingest.positive_class import check_positive
from ridgestream.pipeline.models.learned_ranges import show_counts
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.errors.translation import prefix_errors

_NAMED = 10
"""Partitions that are named of each kind; of the others, their number is reported."""


def run_ingest(job: Job, executor: Executor, report: Reporter, wait_seconds: float) -> dict[str, Any]:
    """Ingest and return the result."""
    files = source_partitions(job, report)
    store = open_or_create_store(job, wait_seconds)
    with prefix_errors(store.location.text), store.lock(wait_seconds):
        if read_ledger(store.root()).schema is None:
            check_positive(schema_request(job), files)
        ingested = ingest(store, files, schema_request(job), executor, report, policies=policies(job))
    report_ingest(ingested, report)
    ledger = read_ledger(store.root())
    return {
        "new_partitions": len(ingested.added),
        "new_rows": sum(entry.rows for entry in ingested.added),
        "dropped_rows": sum(entry.dropped for entry in ingested.added),
        "partitions": len(ledger.entries),
        "rows": ledger.rows,
        "quarantined": len(ledger.quarantined),
        "peak_rss_bytes": peak_rss_bytes(),
        "snapshot": store.snapshot(),
    }


def report_ingest(ingested: IngestReport, report: Reporter) -> None:
    """Report what a user should know besides the counts."""
    if ingested.ignored_columns:
        report.say(events.INGEST_COLUMNS_IGNORED, columns=", ".join(ingested.ignored_columns))
    if ingested.gone:
        report.say(events.INGEST_PARTITIONS_GONE, partitions=len(ingested.gone), first=ingested.gone[0])
    repeated = [{"partition": name, "older": older} for name, older in ingested.duplicates]
    _name_first(report.warn, events.INGEST_PARTITION_REPEATED, repeated)
    _report_missing_values(ingested, report)
    renamed = [{"partition": new, "was": old} for old, new in ingested.renamed]
    _name_first(report.say, events.INGEST_PARTITION_RENAMED, renamed)
    _name_first(report.warn, events.INGEST_PARTITION_CHANGED, [{"partition": name} for name in ingested.changed])
    _name_first(report.say, events.INGEST_PARTITION_REBUILT, [{"partition": name} for name in ingested.rebuilt])
    refused = [{"partition": each.name, "reason": each.reason} for each in ingested.new_quarantine]
    _name_first(report.warn, events.INGEST_PARTITION_QUARANTINED, refused)
    if ingested.quarantined:
        report.warn(
            events.INGEST_PARTITIONS_IN_QUARANTINE,
            partitions=len(ingested.quarantined),
            first=ingested.quarantined[0].name,
        )


def _name_first(report: Callable[..., None], event: Event, partitions: Sequence[Mapping[str, Fact]]) -> None:
    """Report an event of each of the first partitions, and how many others there are."""
    for facts in partitions[:_NAMED]:
        report(event, **facts)
    if len(partitions) > _NAMED:
        report(events.INGEST_MORE_PARTITIONS, partitions=len(partitions) - _NAMED, like=event.code)


def _report_missing_values(ingested: IngestReport, report: Reporter) -> None:
    dropped, columns = sum(entry.dropped for entry in ingested.added), show_counts(ingested.missing_values)
    if dropped:
        report.say(events.INGEST_ROWS_LEFT_OUT, rows=dropped, lacking=columns)
    elif columns:
        report.say(events.INGEST_VALUES_MISSING, lacking=columns)
