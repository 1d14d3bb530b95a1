"""The run command, the same every night: ingest new partitions, learn them, evaluate, commit."""

from time import perf_counter
from typing import Any

from ridgestream.jobs.commands.ingest import report_ingest
from ridgestream.jobs.commands.train import train_and_commit
from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import open_or_create_store, policies, schema_request, source_partitions
from ridgestream.jobs.report.report_files import Concluded, concluded, recorded
from ridgestream.jobs.runs.job_plan import HeldOut, check_plan, plan_job
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.ingest.ingest import ingest
from ridgestream.stores.catalog.models import next_night_number
from ridgestream.stores.errors.translation import prefix_errors


def run_job(job: Job, executor: Executor, report: Reporter, wait_seconds: float, *, new_model: bool) -> dict[str, Any]:
    """Run the whole job and return its summary; with nothing new it changes nothing."""
    started = perf_counter()
    with recorded(job, report) as recorder:
        files, held_out = source_partitions(job, recorder), HeldOut(job, recorder)
        store = open_or_create_store(job, wait_seconds)
        with prefix_errors(store.location.text), store.lock(wait_seconds):
            plan = plan_job(job, store.root(), files, new_model=new_model)
            recorder.night = next_night_number(plan.standing.stored)
            check_plan(job, plan, held_out)
            ingested = ingest(store, files, schema_request(job), executor, recorder, plan.feature_map, policies(job))
            report_ingest(ingested, recorder)
            recorder.note_ingest(ingested)
            dropped = {"dropped_rows": sum(entry.dropped for entry in ingested.added)}
            try:
                summary = train_and_commit(job, store, executor, recorder, held_out, new_model=new_model)
            except Concluded as ended:
                ended.result |= dropped | {"seconds": round(perf_counter() - started, 3)}
                raise
    return concluded(summary | dropped | {"seconds": round(perf_counter() - started, 3)}, recorder)
