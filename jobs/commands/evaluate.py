"""The evaluate command: the error of a model on the held-out partitions, also of a night that lacks it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import (
    Served,
    evaluation_partitions,
    is_ordered,
    open_served,
    store_location,
)
from ridgestream.jobs.console.confusion_table import binary_confusion, class_facts, confusion_facts
from ridgestream.jobs.console.log_format import describe_run
from ridgestream.jobs.report.report_files import concluded, recorded, report_night
from ridgestream.jobs.runs.guard import compare_with_served, night_served
from ridgestream.jobs.runs.job_plan import evaluate_held_out
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.jobs.runs.recorder import coverage_facts, evaluation_notes, uncertainty_facts
from ridgestream.jobs.runs.run_outcome import with_errors
from ridgestream.jobs.runs.shortcomings import warn_of_coverage
from ridgestream.jobs.runs.trivial_errors import Comparison, mean_of
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.reporter import Reporter, Silent
from ridgestream.pipeline.prediction.evaluate import Evaluation
from ridgestream.pipeline.prediction.trivial_model import skill_of
from ridgestream.stores.catalog.models import ModelRecord, require_model, write_model
from ridgestream.stores.errors.exceptions import ModelError, PartitionError
from ridgestream.stores.errors.translation import prefix_errors
from ridgestream.stores.parquet.partitions import PartitionFile
from ridgestream.stores.repository.repository import Store


def run_evaluate(job: Job, executor: Executor, report: Reporter, *, snapshot: str | None = None) -> dict[str, Any]:
    """Evaluate the model and return the result; the store does not change."""
    served = open_served(job, snapshot)
    describe_run(night=night_served(served.record) or None)
    served.warn_if_held(report)
    files = evaluation_partitions(job, report)
    return _facts(job, served, _evaluate(job, served, served.record, files, executor, report), report)


def run_evaluate_night(job: Job, executor: Executor, reporter: Reporter, wait_seconds: float) -> dict[str, Any]:
    """Evaluate the last night, which could not be, commit its errors, and return the result.

    A night that the guard has held back for lack of an error is served if the guard lets it.
    """
    store = Store.open(store_location(job))
    with recorded(job, reporter) as report, prefix_errors(store.location.text), store.lock(wait_seconds):
        served = open_served(job)
        record = require_model(served.root, job.model.name)
        last = record.history[-1]
        describe_run(night=last.number)
        if last.test_error is not None or last.test_mse is not None:
            raise ModelError(
                f"night {last.number} of the model {record.name!r} has its errors on held-out rows already"
            )
        files = evaluation_partitions(job, report)
        evaluation = _evaluate(job, served, record, files, executor, report)
        if not evaluation.weight:
            raise PartitionError(f"the held-out partitions of {job.model.name!r} have no rows to evaluate the model on")
        before = _evaluate(job, served, served.record, files, executor, Silent()) if record.serves else evaluation
        verdict = compare_with_served(record, before, evaluation, job.model.guard or 0.0)
        record = with_errors(record, evaluation, served.schema.targets, ordered=is_ordered(job, served.schema))
        record = _with_evaluation(
            record, evaluation, files, served.schema.targets, is_worse=bool(verdict and verdict.served)
        )
        with store.write(f"Evaluate night {last.number} of {record.name}") as writing:
            write_model(writing.root, record)
        report.is_committed = True
        served = replace(served, record=record, snapshot=writing.snapshot or "")
        result = _facts(job, served, evaluation, report)
        written = report_night(job, store, record, report)
    return concluded(result | {"night": last.number, "served_night": night_served(record), "report": written}, report)


def _with_evaluation(
    record: ModelRecord,
    evaluation: Evaluation,
    files: Sequence[PartitionFile],
    targets: tuple[str, ...],
    *,
    is_worse: bool,
) -> ModelRecord:
    """Return the record with the evaluation of its last night, which is served unless it is worse."""
    run = {key: value for key, value in record.run.items() if key != "failure"}
    *earlier, last = record.history
    comparison = Comparison.of_evaluation(evaluation, targets)
    night = replace(
        last,
        no_better_in=comparison.no_better_in if comparison else None,
        held=last.held if is_worse else None,
        evaluated_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    notes = {"evaluation": evaluation_notes(evaluation, files, targets)}
    return replace(record, run=run | notes, history=(*earlier, night), serves=record.serves if is_worse else 0)


def _evaluate(
    job: Job, served: Served, record: ModelRecord, files: Sequence[PartitionFile], executor: Executor, report: Reporter
) -> Evaluation:
    return evaluate_held_out(job, served.root, served.schema, record, files, executor, report)


def _facts(job: Job, served: Served, evaluation: Evaluation, report: Reporter) -> dict[str, Any]:
    """Return the errors of an evaluation as JSON prints them."""
    result: dict[str, Any] = {
        "model": served.record.name,
        "weight": evaluation.weight,
        "test_error": evaluation.test_error,
    }
    if evaluation.classes:
        result |= _of_classes(served, evaluation)
    else:
        result["test_mse"] = evaluation.test_mse
    if len(evaluation.test_mse_of) > 1:
        result["test_mse_of"] = dict(zip(served.schema.targets, evaluation.test_mse_of, strict=True))
    result |= uncertainty_facts(evaluation, served.schema.targets)
    warn_of_coverage(report, coverage_facts(evaluation, served.schema.targets))
    result |= _against_constant(served, evaluation, report)
    if is_ordered(job, served.schema) and evaluation.last_value.errors:
        last = mean_of(evaluation.last_value.errors)
        result |= {"last_value_error": last, "skill_over_last_value": skill_of(mean_of(evaluation.test_errors), last)}
    if evaluation.rows_outside:
        result |= {"rows_outside_range": evaluation.rows_outside, "outside_range": dict(evaluation.outside)}
    if evaluation.left_out:
        result["left_out"] = evaluation.left_out
    return result | {"peak_rss_bytes": peak_rss_bytes(), "snapshot": served.snapshot}


def _of_classes(served: Served, evaluation: Evaluation) -> dict[str, Any]:
    """Return the confusion matrix and the figures of each class; of one class against the rest, also its counts."""
    positive, classes = served.schema.positive, served.record.encoding.get("classes")
    if classes or positive is None:
        confusion = confusion_facts(classes or (), evaluation.confusion)
        return {**class_facts(confusion), "confusion": confusion}
    counts = {name: getattr(evaluation, name) for name in ("positive", "true_positive")}
    confusion = binary_confusion(positive, counts | {"weight": evaluation.weight, "mistakes": evaluation.mistakes})
    return {**counts, **class_facts(confusion), "confusion": confusion}


def _against_constant(served: Served, evaluation: Evaluation, report: Reporter) -> dict[str, Any]:
    """Return the error of the constant that fits the learned rows best, and the skill; warn if there is none."""
    comparison = Comparison.of_evaluation(evaluation, served.schema.targets)
    if comparison is None:
        return {}
    comparison.warn(report)
    error, trivial_error = mean_of(comparison.errors), mean_of(comparison.trivial_errors)
    facts: dict[str, Any] = {"trivial_error": trivial_error, "skill": skill_of(error, trivial_error)}
    if len(comparison.targets) > 1:
        skills = map(skill_of, comparison.errors, comparison.trivial_errors)
        facts["skill_of"] = dict(zip(comparison.targets, skills, strict=True))
    return facts
