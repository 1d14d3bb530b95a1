"""The evaluate command: the error of a model in the store on the job's held-out partitions."""

from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import Served, evaluation_partitions, open_served, policies
from ridgestream.jobs.console.confusion_table import binary_confusion, class_facts, confusion_facts
from ridgestream.jobs.console.log_format import describe_run
from ridgestream.jobs.runs.guard import night_served
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.jobs.runs.trivial_errors import Comparison, mean_of
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.models.model_record import model_of
from ridgestream.pipeline.prediction.evaluate import Evaluation, evaluate
from ridgestream.pipeline.prediction.trivial_model import learned_targets, skill_of


def run_evaluate(job: Job, executor: Executor, report: Reporter, *, snapshot: str | None = None) -> dict[str, Any]:
    """Evaluate the model and return the result; the store does not change."""
    served = open_served(job, snapshot)
    describe_run(night=night_served(served.record) or None)
    served.warn_if_held(report)
    model = model_of(served.record)
    schema, files = served.schema, evaluation_partitions(job, report)
    learned = learned_targets(served.root, schema, served.record)
    evaluation = evaluate(model, schema, files, executor, report, policies(job), learned=learned)
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
    result |= _against_constant(served, evaluation, report)
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
