"""The ingest job: take in the partitions that the store lacks."""

from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import open_or_create_store, policies, schema_request, source_partitions
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.ingest.ingest import IngestReport, ingest
from ridgestream.pipeline.prediction.input_checks import show_counts
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.errors.translation import naming


def run_ingest(job: Job, executor: Executor, report: Reporter, wait_seconds: float) -> dict[str, Any]:
    """Ingest and return what is to be told of it."""
    files = source_partitions(job)
    store = open_or_create_store(job, wait_seconds)
    with naming(store.location.text), store.lock(wait_seconds):
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
        report.say("columns that are not in the schema are not read", columns=", ".join(done.ignored_columns))
    if done.missing:
        report.say(
            "partitions are gone from the source; their rows stay in the store",
            partitions=len(done.missing),
            first=done.missing[0],
        )
    for name, older in done.twins:
        report.warn(
            "a partition has exactly the rows of an older one: they now count twice", partition=name, older=older
        )
    _tell_of_missing_values(done, report)
    for old, new in done.renamed:
        report.say("a partition has another name now; it is not learned again", partition=new, was=old)
    for name in done.changed:
        report.warn("a partition has changed since it was taken in; its rows stay as they were", partition=name)
    for name in done.rebuilt:
        report.say(
            "a partition had changed and was taken in anew; models that had learned it begin anew", partition=name
        )
    for each in done.rejected:
        report.warn("a partition cannot be used and is in quarantine now", partition=each.name, reason=each.reason)
    if done.quarantined:
        report.warn(
            "partitions are in quarantine and are not learned",
            partitions=len(done.quarantined),
            first=done.quarantined[0].name,
        )


def _tell_of_missing_values(done: IngestReport, report: Reporter) -> None:
    dropped, columns = sum(entry.dropped for entry in done.added), show_counts(done.missing_values)
    if dropped:
        report.say("rows that lack a value were left out", rows=dropped, lacking=columns)
    elif columns:
        report.say("values are missing; they are imputed where they are learned", lacking=columns)
