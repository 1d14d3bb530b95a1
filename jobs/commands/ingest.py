"""The ingest job: take in the partitions that the store lacks."""

from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import open_or_create_store, policies, schema_request, source_partitions
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.ingest.ingest import ingest
from ridgestream.pipeline.ingest.ingest_report import IngestReport
from ridgestream.pipeline.prediction.input_checks import show_counts
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.errors.translation import prefix_errors


def run_ingest(job: Job, executor: Executor, report: Reporter, wait_seconds: float) -> dict[str, Any]:
    """Ingest and return what is to be told of it."""
    files = source_partitions(job)
    store = open_or_create_store(job, wait_seconds)
    with prefix_errors(store.location.text), store.lock(wait_seconds):
        done = ingest(store, files, schema_request(job), executor, report, policies=policies(job))
    tell_of_ingest(done, report)
    ledger = read_ledger(store.root())
    return {
        "new_partitions": len(done.added),
        "new_rows": sum(entry.rows for entry in done.added),
        "dropped_rows": sum(entry.dropped for entry in done.added),
        "partitions": len(ledger.entries),
        "rows": ledger.rows,
        "quarantined": len(ledger.quarantined),
        "peak_rss_bytes": peak_rss_bytes(),
        "snapshot": store.snapshot(),
    }


def tell_of_ingest(done: IngestReport, report: Reporter) -> None:
    """Say what a user should know beyond the counts."""
    if done.ignored_columns:
        report.say(events.INGEST_COLUMNS_IGNORED, columns=", ".join(done.ignored_columns))
    if done.gone:
        report.say(events.INGEST_PARTITIONS_GONE, partitions=len(done.gone), first=done.gone[0])
    for name, older in done.duplicates:
        report.warn(events.INGEST_PARTITION_REPEATED, partition=name, older=older)
    _tell_of_missing_values(done, report)
    for old, new in done.renamed:
        report.say(events.INGEST_PARTITION_RENAMED, partition=new, was=old)
    for name in done.changed:
        report.warn(events.INGEST_PARTITION_CHANGED, partition=name)
    for name in done.rebuilt:
        report.say(events.INGEST_PARTITION_REBUILT, partition=name)
    for each in done.new_quarantine:
        report.warn(events.INGEST_PARTITION_QUARANTINED, partition=each.name, reason=each.reason)
    if done.quarantined:
        report.warn(
            events.INGEST_PARTITIONS_IN_QUARANTINE,
            partitions=len(done.quarantined),
            first=done.quarantined[0].name,
        )


def _tell_of_missing_values(done: IngestReport, report: Reporter) -> None:
    dropped, columns = sum(entry.dropped for entry in done.added), show_counts(done.missing_values)
    if dropped:
        report.say(events.INGEST_ROWS_LEFT_OUT, rows=dropped, lacking=columns)
    elif columns:
        report.say(events.INGEST_VALUES_MISSING, lacking=columns)
