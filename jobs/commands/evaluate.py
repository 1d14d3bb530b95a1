"""The evaluate command: the error of a model in the store on the job's held-out partitions."""

from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import evaluation_partitions, open_served, policies
from ridgestream.jobs.console.confusion_table import confusion_facts
from ridgestream.jobs.console.log_format import describe_run
from ridgestream.jobs.runs.guard import night_served
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.models.model_record import model_of
from ridgestream.pipeline.prediction.evaluate import evaluate


def run_evaluate(job: Job, executor: Executor, report: Reporter, *, snapshot: str | None = None) -> dict[str, Any]:
    """Evaluate the model and return the result; the store does not change."""
    served = open_served(job, snapshot)
    describe_run(night=night_served(served.record) or None)
    served.warn_if_held(report)
    model = model_of(served.record)
    evaluation = evaluate(model, served.schema, evaluation_partitions(job, report), executor, report, policies(job))
    result: dict[str, Any] = {
        "model": served.record.name,
        "weight": evaluation.weight,
        "test_error": evaluation.test_error,
    }
    if model.feature_map.target.classes:
        result["confusion"] = confusion_facts(model.feature_map.target.classes, evaluation.confusion)
    elif evaluation.classes:
        result |= {"positive": evaluation.positive, "true_positive": evaluation.true_positive}
    else:
        result["test_mse"] = evaluation.test_mse
    if len(evaluation.test_mse_of) > 1:
        result["test_mse_of"] = dict(zip(served.schema.targets, evaluation.test_mse_of, strict=True))
    if evaluation.left_out:
        result["left_out"] = evaluation.left_out
    return result | {"peak_rss_bytes": peak_rss_bytes(), "snapshot": served.snapshot}
