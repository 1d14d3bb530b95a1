"""The select command: every combination of metric, γ, λ and size compared on the job's first rows; changes nothing."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ridgestream.jobs.cluster.freed_memory import share_freed_memory
from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import (
    memory_limit_bytes,
    model_request,
    policies,
    report_folder,
    schema_request,
    source_partitions,
    store_location,
)
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.selection.grid_page import write_page
from ridgestream.pipeline.base.blas_threads import most_threads
from ridgestream.pipeline.base.executor import Executor, InThreads
from ridgestream.pipeline.base.memory_plan import check_plans, threads_within
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.ingest.source_diff import count_usable_rows, diff_source
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.settings import FULL_FEATURES, MetricName
from ridgestream.pipeline.models.model_record import LSTD
from ridgestream.pipeline.planning.sample import MOST_ROWS, Sample, take_sample
from ridgestream.pipeline.sums.row_set import RowSet
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.model_grid import FITTED_SHARE, GridPoint, GridSearch, Loss, best_and_simplest
from ridgestream.pipeline.training.pilot import kernel_family, plan_pilot
from ridgestream.pipeline.training.request import Request, with_pilot
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.parquet.partitions import PartitionFile
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.segments.segments import Segments


def run_select(job: Job, report: Reporter) -> dict[str, Any]:
    """Return the error of every combination on folds of the job's first rows, at most 32,768, and write a page of it.

    The rows are in a temporary store, and read by this process; partitions in quarantine are left out.

    The models are expansions over random rows; λ is for as many rows as the source has now, or for those of the pilot
    if the online learner is to have it. Raises MemoryRefused if the sums do not fit, PartitionError for bad rows.
    """
    if job.model.method == LSTD:
        raise JobFileError(
            "select compares models by the errors of their targets, and rewards are no values: give method lstd its "
            "kernel.gamma, regularization and max_basis, and compare by evaluate"
        )
    share_freed_memory()
    files = _without_quarantined(job, source_partitions(job, report))
    request, n_rows = with_pilot(model_request(job)), sum(count_usable_rows(files))
    plan = plan_pilot(request, None, n_features=1, n_rows=MOST_ROWS)
    check_plans([plan] if plan else [], memory_limit_bytes(job))
    threads = threads_within(plan, memory_limit_bytes(job), most_threads()) if plan else 1
    with take_sample(files, MOST_ROWS, schema_request(job), policies(job)) as sample:
        points = _judge(job, sample, request, report, InThreads(threads))
        rows = sample.ledger.rows
        classifies = bool(sample.ledger.schema and sample.ledger.schema.classifies)
    learned = min(n_rows, request.pilot.rows) if job.model.is_online and request.pilot else n_rows
    scaled = [replace(point, regularization=point.regularization * FITTED_SHARE * rows / learned) for point in points]
    best, simplest = best_and_simplest(scaled)
    facts: dict[str, Any] = {
        "model": request.name,
        "rows": rows,
        "criterion": "share misclassified" if classifies else "mean squared error",
        "best": _described(best),
        "simplest": _described(simplest),
        "points": [asdict(point) for point in scaled],
    }
    return facts | {"page": write_page(report_folder(job), facts, scaled)}


def _without_quarantined(job: Job, files: Sequence[PartitionFile]) -> list[PartitionFile]:
    """Return the files that are not in quarantine in the job's store, if there is one."""
    location = store_location(job)
    if not Store.exists(location):
        return list(files)
    left_out = {each.name for each in diff_source(read_ledger(Store.open(location).root()), files).quarantined}
    return [file for file in files if file.name not in left_out]


def _judge(job: Job, sample: Sample, request: Request, report: Reporter, executor: Executor) -> list[GridPoint]:
    feature_map, ledger = sample.feature_map(request), sample.ledger
    context = TrainingContext(
        segments=Segments(sample.root),
        ledger=ledger,
        record=None,
        memory_limit_bytes=memory_limit_bytes(job),
        report=report,
        executor=executor,
    )

    def rows(metric: Metric | None) -> RowSet:
        return context.rows((entry.segment for entry in ledger.entries), replace(feature_map, metric=metric))

    loss = Loss(feature_map.target, context.classifies)
    family = kernel_family(request, feature_map.n_fitted)
    search = GridSearch(rows, family, request.pilot_options, loss, report, executor.threads)
    forms: list[MetricName] = ["standardized", "diagonal", "full"]
    return [p for form in forms[: 3 if feature_map.n_features <= FULL_FEATURES else 2] for p in search.points(form)]


def _described(point: GridPoint) -> dict[str, Any]:
    """Return a point, with the options that set it."""
    gamma = {} if point.gamma is None else {"kernel.gamma": point.gamma}
    values = {"metric": point.metric, **gamma, "regularization": point.regularization, "max_basis": point.max_basis}
    return asdict(point) | {"set": " ".join(f"--set model.{name}={_shown(value)}" for name, value in values.items())}


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
