"""The evaluate job: a model of the store against the job's held-out partitions."""

from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import evaluation_partitions, open_served, policies
from ridgestream.jobs.console.confusion_table import confusion_facts
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.models.model_record import model_of
from ridgestream.pipeline.prediction.evaluate import evaluate


def run_evaluate(job: Job, executor: Executor, report: Reporter, *, snapshot: str | None = None) -> dict[str, Any]:
    """Evaluate and return what is to be told of it; nothing in the store changes."""
    served = open_served(job, snapshot)
    served.tell(report)
    model = model_of(served.record)
    found = evaluate(model, served.schema, evaluation_partitions(job), executor, report, policies(job))
    told: dict[str, Any] = {"model": served.record.name, "weight": found.weight, "test_error": found.test_error}
    if model.feature_map.target.classes:
        told["confusion"] = confusion_facts(model.feature_map.target.classes, found.confusion)
    elif found.classes:
        told |= {"positive": found.positive, "true_positive": found.true_positive}
    else:
        told["test_mse"] = found.test_mse
    if len(found.test_mse_of) > 1:
        told["test_mse_of"] = dict(zip(served.schema.targets, found.test_mse_of, strict=True))
    if found.left_out:
        told["left_out"] = found.left_out
    return told | {"peak_rss_bytes": peak_rss_bytes(), "snapshot": served.snapshot}
