"""The plan of a job: what a run would read, hold and take, and whether it fits; nothing is changed, nothing locked."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ridgestream.jobs.commands.train import check_training, refits
from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import (
    evaluation_partitions,
    memory_limit_bytes,
    model_request,
    policies,
    report_folder,
    schema_request,
    source_partitions,
    store_location,
)
from ridgestream.jobs.runs.recorder import Recorder
from ridgestream.pipeline.base.errors import DictionaryError, InputError, NumericalBreakdown
from ridgestream.pipeline.base.executor import Executor, MemoryNeed
from ridgestream.pipeline.base.memory_plan import BatchPlan, RefitPlan, TrainingPlan
from ridgestream.pipeline.base.policies import ERROR
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.method import PassPlan
from ridgestream.pipeline.dataset.block_stream import block_need
from ridgestream.pipeline.dataset.stored_rows import TASK_ROWS
from ridgestream.pipeline.dataset.task_label import partition_needs
from ridgestream.pipeline.ingest.partition_profile import profile_partition
from ridgestream.pipeline.ingest.source_diff import diff_source, usable_rows
from ridgestream.pipeline.ingest.source_schema import find_schema
from ridgestream.pipeline.planning.runtime_estimate import (
    Estimate,
    Sample,
    calibrate,
    plan_sample_rows,
    sampled,
    take_sample,
    time_sums,
)
from ridgestream.pipeline.training.refit import plan_refit
from ridgestream.pipeline.training.request import Request
from ridgestream.pipeline.training.trainer import Trainer, trainer_of
from ridgestream.pipeline.training.training_result import Standing, find_unlearned, standing_of
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.errors.translation import prefix_errors
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import PartitionFile, count_rows, map_footers, read_arrow_schema
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.schema import Schema


def run_plan(job: Job, executor: Executor, *, new_model: bool) -> dict[str, Any]:
    """Return what a run of the job on the executor would do, and about how long it would take.

    Raises what the run would raise of memory, workers, parameters and places, with the same numbers.
    """
    planning = _Planning.of(job, executor, new_model=new_model)
    with ExitStack() as stack:
        sample, why_not = planning.sample(stack)
        plans = planning.plans(sample)
        for plan in plans:
            plan.check(planning.limit)
        planning.admit(executor, plans)
        told = planning.tell() | planning.tell_memory(plans)
        return told | (planning.tell_time(sample) if sample else {"based_on": why_not})


@dataclass(frozen=True)
class _Planning:
    """What is known without reading a row."""

    job: Job
    trainer: Trainer
    standing: Standing
    store_exists: bool
    files: tuple[PartitionFile, ...]
    """All partitions of the source."""
    fresh: tuple[PartitionFile, ...]
    """Those that the store lacks."""
    fresh_rows: tuple[int, ...]
    """Their rows."""
    schema: Schema
    """What is which column: the store's, or what it is going to be."""
    limit: int
    """What this process may use."""
    workers: int
    """The processes that tasks are shared by."""

    @classmethod
    def of(cls, job: Job, executor: Executor, *, new_model: bool) -> "_Planning":
        """Look at the source's footers and the store; raise what a run raises before its first row."""
        files, trainer, location = source_partitions(job), trainer_of(model_request(job)), store_location(job)
        report_folder(job)
        exists = Store.exists(location)
        if exists:
            store = Store.open(location)
            with prefix_errors(location.text):
                check_training(job, store, files, Recorder(Silent()), new_model=new_model)
                standing = standing_of(store.root(), trainer.request.name, new_model=new_model)
        else:
            standing = Standing(Ledger(), None, None)
        fresh = diff_source(standing.ledger, files).fresh
        count = count_rows if job.source.on_bad == ERROR else usable_rows
        rows = tuple(map_footers(count, fresh))
        schema = find_schema(standing.ledger, files, schema_request(job), policies(job), location.text, Silent())
        if job.source.on_bad == ERROR:
            for file, arrow in zip(fresh, map_footers(read_arrow_schema, fresh), strict=True):
                Decoder(schema, str(file.path)).check(arrow)
        limit = memory_limit_bytes(job)
        if not exists:
            trainer.check_memory(Ledger(), None, sum(rows), limit)
            if job.evaluate is not None:
                evaluation_partitions(job)
        return cls(
            job=job,
            trainer=trainer,
            standing=standing,
            store_exists=exists,
            files=files,
            fresh=fresh,
            fresh_rows=rows,
            schema=schema,
            limit=limit,
            workers=executor.count_workers(),
        )

    @property
    def rows(self) -> int:
        """All rows that there are to be."""
        return self.standing.ledger.rows + sum(self.fresh_rows)

    @property
    def new_rows(self) -> int:
        """The rows that the model is to learn."""
        return sum(self.fresh_rows) + sum(e.rows for e in find_unlearned(self.standing.ledger, self.standing.record))

    @property
    def request(self) -> Request:
        return self.trainer.request

    @property
    def is_changed(self) -> bool:
        """Whether the job asks for another regularization than the model has."""
        return self.trainer.is_changed(self.standing.record)

    @property
    def learns(self) -> bool:
        """Whether the model is going to be another one, by new rows or without any."""
        return bool(self.new_rows) or self.is_changed

    @property
    def chooses(self) -> bool:
        """Whether a batch method is fitted to all rows, not to new ones alone."""
        return self.trainer.reads_all_rows(self.standing.record)

    @property
    def passed_rows(self) -> int:
        """The rows that each pass of learning reads."""
        return self.rows if self.chooses else self.new_rows

    @property
    def refits(self) -> bool:
        return refits(self.job, self.standing.record, learns=self.learns)

    def passes(self) -> tuple[PassPlan, ...]:
        """Return the passes of learning over the rows, the refit not among them."""
        if not (self.learns and self.passed_rows):
            return ()
        return self.trainer.passes(self.standing.record, self.rows, self.new_rows)

    def _most_basis(self) -> int:
        record = self.standing.record
        begun = len(record.arrays["basis_vectors"]) if record else 1
        return begun if self.request.max_basis is None else self.request.max_basis

    def sample(self, stack: ExitStack) -> tuple[Sample | None, str]:
        """Return the first of the rows in a store of their own, or why there are none."""
        if not self.passes():
            return None, "nothing new to learn"
        files, rows = self.fresh or self.files, plan_sample_rows(self.request, self.passed_rows)
        try:
            return stack.enter_context(take_sample(files, rows, schema_request(self.job), policies(self.job))), ""
        except (PartitionError, InputError) as error:
            if self.job.source.on_bad == ERROR:
                self._raise_of_rows(files)
            return None, f"no estimate, since the first rows cannot be taken in: {error}"

    def _raise_of_rows(self, files: Sequence[PartitionFile]) -> None:
        """Raise what the run raises of the first rows, with their own places."""
        for file in sampled(files):
            profile_partition(file, self.schema, self.job.source.missing)

    def plans(self, sample: Sample | None) -> "list[TrainingPlan | BatchPlan | RefitPlan]":
        """Return what the run admits itself by; the features of a new model are those of the sample."""
        n_features, n_outputs = self._shape(sample)
        plans: list[TrainingPlan | BatchPlan | RefitPlan] = []
        plans.append(self.trainer.plan_memory(self.standing.record, self.rows, n_features, n_outputs))
        if self.refits:
            plans.append(plan_refit(n_features, self._most_basis()))
        return plans

    def admit(self, executor: Executor, plans: "Sequence[TrainingPlan | BatchPlan | RefitPlan]") -> None:
        """Raise MemoryRefused where a worker may not use what a task of the run needs."""
        executor.admit(partition_needs(self.fresh))
        if self.job.evaluate is not None and self.learns:
            executor.admit(partition_needs(evaluation_partitions(self.job)))
        if self.passes():
            shares = [MemoryNeed(plan.worker_bytes) for plan in plans if isinstance(plan, BatchPlan)]
            executor.admit(shares or [block_need()])

    def _shape(self, sample: Sample | None) -> tuple[int, int]:
        """Return how many features and outputs the model has."""
        from ridgestream.pipeline.dataset.feature_map_growth import encoding_of

        record = self.standing.record
        if record is not None:
            known = encoding_of(record, self.standing.ledger.schema)
        elif sample is not None and sample.ledger.rows:
            known = sample.feature_map(self.request)
        else:
            return 1, 1
        return known.n_features, known.target.n_outputs

    def tell(self) -> dict[str, Any]:
        """Return what is read."""
        passes = self.passes()
        return {
            "model": self.request.name,
            "method": self.job.model.method,
            "store": store_location(self.job).text,
            "store_exists": self.store_exists,
            "partitions": len(self.files),
            "new_partitions": len(self.fresh),
            "new_rows": sum(self.fresh_rows),
            "rows_to_learn": self.new_rows,
            "rows": self.rows,
            "new_bytes_on_disk": sum(file.size_bytes for file in self.fresh),
            "passes": len(passes) + self.refits,
            "passes_are": "as planned" if self._is_sure() else "a guess: the rows decide",
            "ingest_tasks": len(self.fresh),
            "tasks_a_pass": self._tasks() if self.trainer.shares_passes and passes else 0,
            "workers": self.workers,
        }

    def _is_sure(self) -> bool:
        return self.trainer.passes_are_certain(self.standing.record)

    def _tasks(self) -> int:
        entries = self.standing.ledger.entries if self.chooses else find_unlearned(*self._known())
        return sum(-(-rows // TASK_ROWS) for rows in (*(entry.rows for entry in entries), *self.fresh_rows))

    def _known(self) -> tuple[Ledger, Any]:
        return self.standing.ledger, self.standing.record

    def tell_memory(self, plans: "Sequence[TrainingPlan | BatchPlan | RefitPlan]") -> dict[str, Any]:
        """Return what is held."""
        learning = plans[0]
        return {
            "n_features": learning.n_features,
            "decoded_bytes": 8 * learning.n_features * self.rows,
            "process_memory_bytes": max(plan.total_bytes for plan in plans),
            "worker_memory_bytes": learning.worker_bytes if isinstance(learning, BatchPlan) else None,
            "memory_limit_bytes": self.limit,
        }

    def tell_time(self, sample: Sample) -> dict[str, Any]:
        """Return how long it takes, by what the sample took."""
        ingest = sample.ingest_row_seconds * sum(self.fresh_rows) / self.workers
        try:
            estimate = calibrate(sample, self.request, self.passed_rows, self.limit)
        except (InputError, NumericalBreakdown) as error:
            if isinstance(error, DictionaryError) and self.standing.record is None:
                raise
            return {"ingest_seconds": round(ingest, 2), "based_on": f"no estimate of learning: {error}"}
        train = self._train_seconds(estimate)
        refit = 0.0
        if self.refits:
            row_seconds = time_sums(sample, sample.feature_map(self.request), self._most_basis())
            refit = row_seconds * self.rows / self.workers
        return {
            "ingest_seconds": round(ingest, 2),
            "train_seconds": round(train, 2),
            "refit_seconds": round(refit, 2),
            "total_seconds": round(ingest + train + refit, 2),
            "based_on": f"the first {estimate.rows:,} rows, learned in {estimate.seconds:.1f} s by one process of this "
            f"machine; {'O(rows³)' if self._is_dense() else 'O(rows · n²)'}",
        }

    def _train_seconds(self, estimate: Estimate) -> float:
        """Return the seconds of learning: only passes are shared by workers, not a stream nor what is chosen."""
        shared = min(self.workers, max(1, self._tasks())) if self.trainer.shares_passes else 1
        passes = self.passes()
        if self.trainer.shares_passes and not self.chooses:
            chosen = sum(each.row_seconds for each in self.trainer.passes(None, self.passed_rows, self.passed_rows))
            share = sum(each.row_seconds for each in passes) / max(chosen, 1e-12)
            return estimate.row_seconds * share * self.passed_rows / shared
        return estimate.row_seconds * self.passed_rows / shared + estimate.fixed_seconds

    def _is_dense(self) -> bool:
        return self.trainer.is_dense
