"""The plan command: prints what a run would do, and about how long it would take; changes and locks nothing."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import (
    policies,
    report_folder,
    schema_request,
    source_partitions,
    store_location,
)
from ridgestream.jobs.runs.job_plan import HeldOut, check_plan, plan_job
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.executor import Executor, InProcess, MemoryNeed, in_threads
from ridgestream.pipeline.base.memory_plan import (
    BatchPlan,
    MetricPlan,
    RefitPlan,
    TrainingPlan,
    bytes_in_threads,
    check_plans,
)
from ridgestream.pipeline.base.policies import ERROR
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.dataset.block_stream import block_need
from ridgestream.pipeline.dataset.feature_map_growth import encoding_of
from ridgestream.pipeline.dataset.task_label import partition_needs
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.ingest.partition_profile import profile_partition
from ridgestream.pipeline.ingest.source_schema import find_schema
from ridgestream.pipeline.planning.run_estimate import RunEstimate, estimate_run
from ridgestream.pipeline.planning.run_plan import RunPlan
from ridgestream.pipeline.planning.runtime_estimate import plan_sample_rows
from ridgestream.pipeline.planning.sample import Sample, sampled_files, take_sample
from ridgestream.pipeline.training.online.cell_number import cell_basis, most_cells
from ridgestream.pipeline.training.request import EXPERTS, OnlineRequest
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.errors.translation import prefix_errors
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import PartitionFile, count_rows, map_footers, read_arrow_schema
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.schema import Schema

MemoryPlan = TrainingPlan | BatchPlan | MetricPlan | RefitPlan
MemoryPlans = Sequence[MemoryPlan]


def run_plan(job: Job, executor: Executor, *, new_model: bool) -> dict[str, Any]:
    """Return what a run of the job on the executor would do, and about how long it would take.

    Raises what the run would raise about memory, workers, parameters and locations, with the same numbers.
    """
    files, held_out = source_partitions(job), HeldOut(job, Silent())
    plan, store_exists = _plan(job, files, held_out, new_model=new_model)
    schema = _check_files(job, plan, files)
    workers = executor.count_workers()
    with ExitStack() as stack:
        sample, reason = _take_sample(job, plan, files, schema, stack)
        n_features, n_outputs = _shape(plan, sample)
        memory_plans = plan.memory(n_features, n_outputs)
        check_plans(memory_plans, plan.memory_limit_bytes)
        _admit(plan, executor, memory_plans)
        if job.evaluate is not None and plan.is_due:
            held_out.check(_held_out_map(plan, sample, schema), schema, executor)
        facts: dict[str, Any] = {"model": plan.trainer.request.name, "method": job.model.method}
        facts |= {"store": store_location(job).text, "store_exists": store_exists} | _cell_facts(plan)
        facts |= _work_facts(plan, files, workers) | _memory_facts(plan, memory_plans, n_features, executor)
        if sample is None:
            return facts | {"based_on": reason}
        return facts | _time_facts(estimate_run(plan, sample, workers, in_threads(executor).count_workers()))


def _plan(job: Job, files: Sequence[PartitionFile], held_out: HeldOut, *, new_model: bool) -> tuple[RunPlan, bool]:
    """Return the run's plan, and whether the store exists; raises what a run raises before it ingests."""
    location = store_location(job)
    report_folder(job)
    store_exists = Store.exists(location)
    root = Store.open(location).root() if store_exists else None
    with prefix_errors(location.text):
        plan = plan_job(job, root, files, new_model=new_model)
        check_plan(job, plan, held_out)
    return plan, store_exists


def _check_files(job: Job, plan: RunPlan, files: tuple[PartitionFile, ...]) -> Schema:
    """Return the schema of the store to be; raises what an ingest raises about the footers of new files."""
    stops = job.source.on_bad == ERROR
    if stops:
        list(map_footers(count_rows, plan.fresh))
    schema = find_schema(plan.ledger, files, schema_request(job), policies(job), store_location(job).text, Silent())
    if stops:
        for file, arrow in zip(plan.fresh, map_footers(read_arrow_schema, plan.fresh), strict=True):
            Decoder(schema, str(file.path)).check(arrow)
    return schema


def _take_sample(
    job: Job, plan: RunPlan, files: tuple[PartitionFile, ...], schema: Schema, stack: ExitStack
) -> tuple[Sample | None, str]:
    """Return the first rows in a temporary store, or None and the reason why there is no sample.

    Raises PartitionError, naming the file, for rows that the run refuses.
    """
    if not plan.passes:
        return None, "nothing new to learn"
    stored = plan.ledger.by_name()  # without those in quarantine
    first = plan.fresh or tuple(file for file in files if file.name in stored) or files
    rows = plan_sample_rows(plan.trainer.request, plan.rows_per_pass)
    try:
        return stack.enter_context(take_sample(first, rows, schema_request(job), policies(job))), ""
    except (PartitionError, InputError) as error:
        if job.source.on_bad == ERROR:
            for file in sampled_files(first):
                profile_partition(file, schema, job.source.missing)
        return None, f"no estimate, since the first rows cannot be ingested: {error}"


def _shape(plan: RunPlan, sample: Sample | None) -> tuple[int, int]:
    """Return the number of features and outputs of the model; those of a new one are the sample's."""
    if plan.record is not None:
        feature_map = encoding_of(plan.record, plan.ledger.schema)
    elif sample is not None and sample.ledger.rows:
        feature_map = sample.feature_map(plan.trainer.request)
    else:
        return 1, 1
    return feature_map.n_features, feature_map.target.n_outputs


def _held_out_map(plan: RunPlan, sample: Sample | None, schema: Schema) -> FeatureMap | None:
    """Return the feature map of the model to be; None where only rows beyond the sample show its categories."""
    if plan.record is not None:
        return encoding_of(plan.record, schema)
    has_all_rows = sample is not None and sample.ledger.rows == plan.rows > 0
    return sample.feature_map(plan.trainer.request) if sample is not None and has_all_rows else None


def _admit(plan: RunPlan, executor: Executor, memory_plans: MemoryPlans) -> None:
    """Raise MemoryRefused if a worker has less memory than a task of the run needs."""
    executor.admit(partition_needs(plan.fresh))
    if plan.passes:
        executor.admit([_worker_need(memory_plans[0], executor.count_workers()) or block_need()])


def _worker_need(training: MemoryPlan, workers: int) -> MemoryNeed | None:
    """Return the memory of one of so many workers that share the training; None if they share none of it."""
    if isinstance(training, BatchPlan):
        return MemoryNeed(training.worker_bytes)
    return training.worker_need(workers) if isinstance(training, TrainingPlan) and training.experts > 1 else None


def _work_facts(plan: RunPlan, files: Sequence[PartitionFile], workers: int) -> dict[str, Any]:
    """Return what is read, in how many passes and tasks."""
    certain = plan.trainer.passes_are_certain(plan.record)
    return {
        "partitions": len(files),
        "new_partitions": len(plan.fresh),
        "new_rows": sum(plan.fresh_rows),
        "rows_to_learn": plan.new_rows,
        "rows": plan.rows,
        "new_bytes_on_disk": sum(file.size_bytes for file in plan.fresh),
        "passes": len(plan.passes) + (plan.refits or plan.tries_refit),
        "passes_are": "as planned" if certain else "a guess: the rows decide",
        "ingest_tasks": len(plan.fresh),
        "tasks_a_pass": plan.tasks_per_pass,
        "workers": workers,
    }


def _cell_facts(plan: RunPlan) -> dict[str, Any]:
    """Return the number of cells of local experts, or between which numbers the first training chooses."""
    request = plan.trainer.request
    if not isinstance(request, OnlineRequest):
        return {}
    if EXPERTS in request.chooses:
        most = most_cells(plan.rows, cell_basis(request))
        return {"experts": f"1 to {most}, chosen at the first training"}
    return {"experts": request.experts} if request.experts > 1 else {}


def _memory_facts(plan: RunPlan, memory_plans: MemoryPlans, n_features: int, executor: Executor) -> dict[str, Any]:
    need, limit = _worker_need(memory_plans[0], executor.count_workers()), plan.memory_limit_bytes
    threads = executor.threads if isinstance(executor, InProcess) else 1
    return {
        "n_features": n_features,
        "decoded_bytes": 8 * n_features * plan.rows,
        "process_memory_bytes": max(bytes_in_threads(each, limit, threads) for each in memory_plans),
        "worker_memory_bytes": need.bytes if need else None,
        "memory_limit_bytes": limit,
    }


def _time_facts(estimate: RunEstimate) -> dict[str, Any]:
    ingest, pilot = estimate.ingest_seconds, estimate.pilot_seconds
    train, refit = estimate.train_seconds, estimate.refit_seconds
    if train is None:
        return {"ingest_seconds": round(ingest, 2), "based_on": estimate.based_on}
    return {
        "ingest_seconds": round(ingest, 2),
        "pilot_seconds": round(pilot, 2),
        "train_seconds": round(train, 2),
        "refit_seconds": round(refit, 2),
        "total_seconds": round(ingest + pilot + train + refit, 2),
        "based_on": estimate.based_on,
    }
