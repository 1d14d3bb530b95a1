"""The run plan of a job, which `run` and `train` carry out and `plan` prints."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.model_section import AUTO_REFIT
from ridgestream.jobs.config.requests import (
    evaluation_partitions,
    memory_limit_bytes,
    model_request,
    policies,
    schema_request,
)
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.calibration.intervals import COVERAGE_LEVEL
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.ingest.positive_class import check_positive
from ridgestream.pipeline.models.calibration import calibrated_model_of
from ridgestream.pipeline.models.learned_ranges import learned_ranges
from ridgestream.pipeline.models.model_record import is_policy
from ridgestream.pipeline.planning.run_plan import RunPlan, plan_run
from ridgestream.pipeline.prediction.evaluate import Evaluation, evaluate
from ridgestream.pipeline.prediction.held_out import check_held_out
from ridgestream.pipeline.prediction.trivial_model import learned_targets
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.partitions import PartitionFile, read_arrow_schema
from ridgestream.stores.schema.schema import Schema, infer_schema
from ridgestream.stores.segments.segments import Segments

if TYPE_CHECKING:
    import zarr


def plan_job(job: Job, root: "zarr.Group | None", files: Sequence[PartitionFile], *, new_model: bool) -> RunPlan:
    """Return the plan of a run of the job over these files; `root` is the store's last commit, None without a store."""
    return plan_run(
        root,
        files,
        model_request(job),
        asks_refit=job.model.refit is True,
        may_refit=job.model.refit == AUTO_REFIT,
        memory_limit_bytes=memory_limit_bytes(job),
        new_model=new_model,
    )


class HeldOut:
    """The held-out partitions of a job, listed once in a run: what is checked is what is evaluated."""

    def __init__(self, job: Job, report: Reporter) -> None:
        self._job, self._report = job, report
        self._files: tuple[PartitionFile, ...] | None = None

    def files(self) -> tuple[PartitionFile, ...]:
        """Return the partitions; reports, the first time, the files that are passed over."""
        if self._files is None:
            self._files = evaluation_partitions(self._job, self._report)
        return self._files

    def check(self, feature_map: FeatureMap | None, schema: Schema, executor: Executor) -> None:
        """Refuse before the first row is learned what the evaluation would refuse after the last, naming the value.

        Without a feature map, which categories and classes the model will have is not known, and they are not checked.
        """
        schema = evaluated_schema(self._job, schema)
        check_held_out(self.files(), feature_map, schema, executor, self._report, policies(self._job))


def check_plan(job: Job, plan: RunPlan, held_out: HeldOut) -> None:
    """Refuse before files are ingested what training would refuse after it: another model, too little memory.

    A store that begins is refused if no row has the class that is to be learned against the rest.
    """
    plan.check_request()
    plan.check_memory(_count_features(job, plan))
    if plan.ledger.schema is None:
        check_positive(schema_request(job), plan.fresh)
    if job.evaluate is not None and plan.is_due:
        held_out.files()


def _count_features(job: Job, plan: RunPlan) -> int | None:
    """Return the columns that are the features of a new store, by its first file; None where the ledger has them.

    How many categories a column has is known once it is ingested. What is wrong with the file, the ingest reports.
    """
    if plan.ledger.schema is None:
        with suppress(PartitionError):
            for file in plan.fresh[:1]:
                return len(infer_schema(schema_request(job), read_arrow_schema(file), str(file.path)).features)
    return None


def evaluated_schema(job: Job, schema: Schema) -> Schema:
    """Return the schema of held-out partitions, with the column of true values as target if the job names one."""
    values = job.evaluate.values if job.evaluate else None
    return schema if values is None else replace(schema, target=values, ahead=(), done=None)


def evaluate_held_out(
    job: Job,
    root: "zarr.Group",
    schema: Schema,
    record: ModelRecord,
    files: Sequence[PartitionFile],
    executor: Executor,
    report: Reporter,
) -> Evaluation:
    """Return the evaluation of a record's calibrated model on held-out partitions, as the job asks for it.

    No constant is compared with a value function: the rewards learned do not say which fits values best.
    """
    segments = Segments(root)
    learned = None if is_policy(record) else learned_targets(segments, schema, record)
    ranges = learned_ranges(segments, record)
    level = job.evaluate.interval if job.evaluate else COVERAGE_LEVEL
    where = evaluated_schema(job, schema), files, executor, report, policies(job)
    return evaluate(calibrated_model_of(record), *where, learned=learned, level=level, ranges=ranges)
