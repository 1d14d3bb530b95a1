"""The evaluate job: a model of the store against the job's held-out partitions."""

from typing import Any

from ridgestream.jobs.confusion import tell_confusion
from ridgestream.jobs.opening import evaluation_partitions, open_served, policies
from ridgestream.jobs.process_memory import peak_rss_bytes
from ridgestream.jobs.settings import Job
from ridgestream.pipeline.evaluate import evaluate
from ridgestream.pipeline.executor import Executor
from ridgestream.pipeline.records import model_of
from ridgestream.pipeline.reporting import Reporter


def run_evaluate(job: Job, executor: Executor, report: Reporter, *, snapshot: str | None = None) -> dict[str, Any]:
    """Evaluate and return what is to be told of it; nothing in the store changes."""
    served = open_served(job, snapshot)
    served.tell(report)
    model = model_of(served.record)
    found = evaluate(model, served.schema, evaluation_partitions(job), executor, report, policies(job))
    told: dict[str, Any] = {"model": served.record.name, "weight": found.weight, "test_error": found.test_error}
    if model.feature_map.classes:
        told["confusion"] = tell_confusion(model.feature_map.classes, found.confusion)
    elif found.classes:
        told |= {"positive": found.positive, "true_positive": found.true_positive}
    else:
        told["test_mse"] = found.test_mse
    if len(found.test_mse_of) > 1:
        told["test_mse_of"] = dict(zip(served.schema.targets, found.test_mse_of, strict=True))
    if found.left_out:
        told["left_out"] = found.left_out
    return told | {"peak_rss_bytes": peak_rss_bytes(), "snapshot": served.snapshot}
