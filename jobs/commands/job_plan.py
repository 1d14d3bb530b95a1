"""The run plan of a job, which `run` and `train` carry out and `plan` prints."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import evaluation_partitions, memory_limit_bytes, model_request
from ridgestream.pipeline.planning.run_plan import RunPlan, plan_run
from ridgestream.pipeline.training.trainer import trainer_of
from ridgestream.stores.parquet.partitions import PartitionFile

if TYPE_CHECKING:
    import zarr


def plan_job(job: Job, root: "zarr.Group | None", files: Sequence[PartitionFile], *, new_model: bool) -> RunPlan:
    """Return the plan of a run of the job over these files; `root` is the store's last commit, None without a store."""
    return plan_run(
        root,
        files,
        trainer_of(model_request(job)),
        asks_refit=job.model.refit,
        memory_limit_bytes=memory_limit_bytes(job),
        new_model=new_model,
    )


def check_plan(job: Job, plan: RunPlan) -> None:
    """Refuse before files are ingested what training would refuse after it: another model, too little memory."""
    plan.check_request()
    plan.check_memory()
    if job.evaluate is not None and plan.is_due:
        evaluation_partitions(job)
