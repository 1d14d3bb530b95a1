"""The train job: train the model on partitions that it has not learned, evaluate it on held-out rows, commit."""

from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from ridgestream.jobs.cluster.cluster_error import ClusterError
from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.model_section import AUTO_REFIT
from ridgestream.jobs.config.requests import is_ordered, memory_limit_bytes, store_location
from ridgestream.jobs.report.report_files import Concluded, concluded, recorded, report_night
from ridgestream.jobs.runs.drift_warnings import check_columns, warn_of_drift, with_drift
from ridgestream.jobs.runs.guard import Verdict, compare_with_served, hold_back, night_served, report_held_back
from ridgestream.jobs.runs.job_plan import HeldOut, evaluate_held_out, plan_job
from ridgestream.jobs.runs.recorder import Recorder, coverage_facts, with_run
from ridgestream.jobs.runs.run_outcome import learned_by, outcome, warn_of_unusual_runs, with_night
from ridgestream.jobs.runs.shortcomings import warn_of_coverage
from ridgestream.jobs.runs.trivial_errors import compare, warn_of_last_value
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.errors import MemoryRefused, NumericalBreakdown
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.memory_plan import check_plans
from ridgestream.pipeline.base.reporter import Reporter, Silent, Stopped
from ridgestream.pipeline.models.model_record import is_refitted
from ridgestream.pipeline.planning.run_plan import RunPlan
from ridgestream.pipeline.prediction.evaluate import Evaluation
from ridgestream.pipeline.training.calibrate import calibrate
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.refit import plan_refit_of, refit, refit_if_better
from ridgestream.pipeline.training.trainer import train
from ridgestream.pipeline.training.training_result import Trained
from ridgestream.stores.catalog.checkpoints import Checkpoints
from ridgestream.stores.catalog.ledger import Ledger, read_ledger
from ridgestream.stores.catalog.models import (
    ModelRecord,
    check_not_overtaken,
    next_night_number,
    night_tag,
    read_model,
    with_history,
    write_model,
)
from ridgestream.stores.catalog.snapshots import served_record
from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.errors.translation import prefix_errors
from ridgestream.stores.repository.repository import Store, WriteSession
from ridgestream.stores.segments.segments import Segments

if TYPE_CHECKING:
    import zarr

Trouble = PartitionError | ClusterError | MemoryRefused | NumericalBreakdown
"""Errors after learning that do not discard what was learned."""

TROUBLES = (PartitionError, ClusterError, MemoryRefused, NumericalBreakdown)


def run_train(
    job: Job, executor: Executor, report: Reporter, wait_seconds: float, *, new_model: bool
) -> dict[str, Any]:
    """Train on what the store holds and return what the command prints."""
    start = perf_counter()
    with recorded(job, report) as recorder:
        store = Store.open(store_location(job))
        with prefix_errors(store.location.text), store.lock(wait_seconds):
            held_out = HeldOut(job, recorder)
            summary = train_and_commit(job, store, executor, recorder, held_out, new_model=new_model)
    return concluded(summary | {"seconds": round(perf_counter() - start, 3)}, recorder)


def train_and_commit(
    job: Job, store: Store, executor: Executor, report: Recorder, held_out: HeldOut, *, new_model: bool
) -> dict[str, Any]:
    """Train and refit under the writer's lock; the state, its position and what is served change by one commit.

    A stopped training saves a checkpoint, from which the next one resumes.
    """
    store.restore_tags()
    training = _TrainJob.of(job, store, executor, report, held_out, new_model=new_model)
    if not training.plan.is_due:
        return training.report_nothing()
    training.report_start()
    try:
        return _train(training)
    except Stopped:
        training.keep()
        raise


def _train(training: "_TrainJob") -> dict[str, Any]:
    """Learn, refit, evaluate and commit, and return what the command prints."""
    job, report = training.job, training.report
    training.check()
    trained = training.learn()
    drifts, trained = warn_of_drift(training.root, training.ledger, trained, job.drift.exempt, report)
    trained, evaluation, failure = training.refit_and_evaluate(trained)
    verdict, failure = training.guard(evaluation, failure)
    training.executor.release()
    record = training.with_night(trained, evaluation, held=failure is not None or bool(verdict and verdict.served))
    warn_of_unusual_runs(job, training.ledger, record, trained, report)
    report.note_end(trained.course, verdict, job.model.guard or 0.0, failure)
    record = with_run(with_drift(record, drifts), report)
    snapshot = training.commit(record)
    written = report_night(job, training.store, record, report, drifts)
    if failure is not None:
        raise type(failure)(f"{failure}; the model has learned and is kept, {_lacks(job, record)}") from failure
    suspects = [drift.name for drift in drifts if drift.is_suspect]
    summary = outcome(record, snapshot, trained.entries) | {"suspects": suspects, "report": written}
    if verdict and verdict.served:
        report_held_back(verdict, [entry.name for entry in trained.entries], report)
        raise Held(summary)
    return summary


def _lacks(job: Job, record: ModelRecord) -> str:
    """Return what a night that failed after its learning lacks, and what makes up for it."""
    if is_refitted(record) or job.model.refit is not True:
        return "without a test error: `ridgestream evaluate JOB.toml --record` makes up for it"
    return "without its refit and a test error: the same command makes up for both"


def _after_learning(trained: Trained, error: Trouble) -> Trouble:
    """Return an error that came after learning; raise it if nothing was learned that could be kept."""
    if not trained.entries and not is_refitted(trained.record):
        raise error
    return error


class Held(Concluded):
    """The model has learned and is kept, but is held back by the guard."""

    def __init__(self, summary: dict[str, Any]) -> None:
        super().__init__(f"the model of night {summary['served_night']} continues to be served", summary)


@dataclass(frozen=True)
class _TrainJob:
    """One run of the train job, from what the store holds to the commit."""

    job: Job
    store: Store
    executor: Executor
    report: Recorder
    held_out: HeldOut
    new_model: bool
    snapshot: str
    root: "zarr.Group"
    plan: RunPlan
    checkpoints: Checkpoints

    @classmethod
    def of(
        cls, job: Job, store: Store, executor: Executor, report: Recorder, held_out: HeldOut, *, new_model: bool
    ) -> Self:
        """Read the last commit; raise ModelError if the stored model has other parameters."""
        snapshot = store.snapshot()
        root = store.root(snapshot)
        plan = plan_job(job, root, (), new_model=new_model)
        report.night = next_night_number(plan.standing.stored)
        plan.check_request()
        return cls(
            job=job,
            store=store,
            executor=executor,
            report=report,
            held_out=held_out,
            new_model=new_model,
            snapshot=snapshot,
            root=root,
            plan=plan,
            checkpoints=Checkpoints(store, plan.trainer.request.name),
        )

    @property
    def ledger(self) -> Ledger:
        return self.plan.ledger

    def report_start(self) -> None:
        """Report that a model is trained from the first row because the store no longer has the rows it had learned."""
        stored = self.plan.standing.stored
        if stored is None or self.new_model or self.plan.record is not None:
            return
        excluded = read_ledger(self.root).rows - self.ledger.rows
        before = stored.history[-1].rows_seen
        self.report.warn(events.TRAIN_FROM_FIRST_ROW, rows=self.ledger.rows, rows_before=before, rows_excluded=excluded)

    def report_nothing(self) -> dict[str, Any]:
        """Report why nothing is learned; raises PartitionError if there is no model, and every partition is bad."""
        set_aside = self.ledger.quarantined
        if self.plan.record is None and set_aside and not self.ledger.entries:
            raise PartitionError(
                f"there is nothing to learn from: each of the {len(set_aside)} partitions is in quarantine, "
                f"{set_aside[0].name} for this reason: {set_aside[0].reason}; mend the files, or release what was set "
                "aside by hand with `ridgestream quarantine JOB.toml PARTITION --release`"
            )
        facts: dict[str, Any] = {"model": self.plan.trainer.request.name, "partitions": len(self.ledger.entries)}
        if self.plan.record is None:
            weight = self.ledger.schema.weight if self.ledger.schema else None
            self.report.warn(events.TRAIN_NO_ROWS, rows=self.ledger.rows, weight=weight, **facts)
        else:
            self.report.say(events.TRAIN_NOTHING_NEW, **facts)
        record = self.plan.standing.stored
        written = report_night(self.job, self.store, record, self.report, overwrite=False) if record else None
        return outcome(self.plan.record, self.snapshot, None) | {"report": written}

    def check(self) -> None:
        """Raise early the errors of the refit, the held-out partitions and the job file that need no training."""
        check_columns("drift.exempt", self.job.drift.exempt, self.ledger.schema)
        self.plan.check_memory()
        if self.job.evaluate is not None and self.ledger.schema is not None:
            self.held_out.check(self.plan.held_out_feature_map(self.root), self.ledger.schema, self.executor)

    @property
    def context(self) -> TrainingContext:
        return TrainingContext(
            segments=Segments(self.root),
            ledger=self.ledger,
            record=self.plan.record,
            memory_limit_bytes=memory_limit_bytes(self.job),
            report=self.report,
            executor=self.executor,
            keeper=self.checkpoints,
        )

    def learn(self) -> Trained:
        return train(self.plan.trainer, self.context)

    def keep(self) -> None:
        """Save the state at the last refresh, or the sums of a pass, because the run is stopped."""
        try:
            if self.checkpoints.save_pending():
                self.report.say(events.TRAIN_STOPPED_WITH_CHECKPOINT)
        except StoreError as error:
            self.report.warn(events.TRAIN_STOPPED_WITHOUT_CHECKPOINT, reason=str(error))

    def refit_and_evaluate(self, trained: Trained) -> tuple[Trained, Evaluation | None, Trouble | None]:
        """Return the result, its evaluation and the first failure; what was learned before the failure is kept.

        A model whose refit failed is calibrated as it is.
        """
        evaluation, failure = None, None
        try:
            trained = self._refit(trained)
        except TROUBLES as error:
            failure = _after_learning(trained, error)
        try:
            trained = calibrate(self.context, trained, learned_by(trained))
            evaluation = None if failure else self._evaluate(trained.record, self.report)
            if evaluation is not None:
                self.report.note_evaluation(evaluation, self.held_out.files(), self.context.targets)
        except TROUBLES as error:
            failure = failure or _after_learning(trained, error)
        return trained, evaluation, failure

    def _refit(self, trained: Trained) -> Trained:
        """Return the result with a refit, where the job asks for one, or leaves it to the rows and they gain by it."""
        start, learned = perf_counter(), learned_by(trained)
        if self.job.model.refit == AUTO_REFIT:
            trained = refit_if_better(self.context, self.plan.trainer.request, trained, learned)
        elif self.job.model.refit:
            check_plans([plan_refit_of(trained.record, self.ledger)], memory_limit_bytes(self.job))
            trained = replace(trained, record=refit(self.context, trained.record, learned))
        return replace(trained, seconds=trained.seconds + perf_counter() - start)

    def _evaluate(self, record: ModelRecord, report: Reporter) -> Evaluation | None:
        if self.job.evaluate is None or self.ledger.schema is None:
            return None
        where = self.root, self.ledger.schema, record, self.held_out.files()
        return evaluate_held_out(self.job, *where, self.executor, report)

    @property
    def guarded(self) -> ModelRecord | None:
        """The record whose model may continue to be served; None without a guard, or where its night has no number."""
        stored = self.plan.standing.stored
        return stored if self.job.model.guard is not None and stored and night_served(stored) else None

    def guard(self, evaluation: Evaluation | None, failure: Trouble | None) -> tuple[Verdict | None, Trouble | None]:
        """Return the guard's verdict, and the first failure."""
        stored = self.guarded
        if stored is None or evaluation is None or failure is not None:
            return None, failure
        try:
            before = self._evaluate(served_record(self.store, stored), Silent()) or evaluation
        except TROUBLES as error:
            return None, error
        return compare_with_served(stored, before, evaluation, self.job.model.guard or 0.0), None

    def with_night(self, trained: Trained, evaluation: Evaluation | None, *, held: bool) -> ModelRecord:
        """Return the record to commit."""
        stored, schema = self.plan.standing.stored, self.ledger.schema
        if stored and self.plan.record is None and not self.new_model:
            trained = replace(trained, record=with_history(trained.record, stored))
        targets = schema.targets if schema else ()
        comparison = compare(trained, evaluation, targets)
        if comparison is not None:
            comparison.warn(self.report)
        arguments = trained, next_night_number(stored), self.snapshot, evaluation, targets, comparison
        record = with_night(*arguments, ordered=is_ordered(self.job, schema))
        warn_of_last_value(record.history[-1], self.report)
        new_rows = record.history[-1].rows
        warn_of_coverage(self.report, coverage_facts(evaluation, targets), trained.coverage, new_rows)
        return hold_back(record, night_served(self.guarded)) if self.guarded and held else record

    def commit(self, record: ModelRecord) -> str:
        """Commit the record, delete its training's checkpoints, and return the snapshot."""
        name, partitions = record.name, len(record.history[-1].partitions)
        message = f"Train {name} on {partitions} partitions" if partitions else f"Refit {name}"
        writing: WriteSession | None = None
        try:
            with self.store.write(message, night_tag(name, record.history[-1].number)) as writing:
                now = read_model(writing.root, name, with_arrays=False)
                check_not_overtaken(self.plan.standing.stored, now, self.store.location.text)
                write_model(writing.root, record)
        finally:  # an error of the commit's tag does not undo the commit
            self.report.is_committed = writing is not None and writing.snapshot is not None
        self.checkpoints.delete()
        return writing.snapshot or ""
