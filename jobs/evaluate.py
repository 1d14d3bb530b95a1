"""The evaluate job: a model of the store against the job's held-out partitions."""

from typing import Any

from ridgestream.jobs.opening import evaluation_partitions, store_location
from ridgestream.jobs.process_memory import peak_rss_bytes
from ridgestream.jobs.settings import Job
from ridgestream.pipeline.evaluate import evaluate
from ridgestream.pipeline.executor import Executor
from ridgestream.pipeline.records import model_of
from ridgestream.pipeline.reporting import Reporter
from ridgestream.stores.errors import StoreError
from ridgestream.stores.guarding import naming
from ridgestream.stores.ledger import read_ledger
from ridgestream.stores.models import require_model
from ridgestream.stores.repository import Store


def run_evaluate(job: Job, executor: Executor, report: Reporter) -> dict[str, Any]:
    """Evaluate and return what is to be told of it; nothing in the store changes."""
    store = Store.open(store_location(job))
    snapshot = store.snapshot()
    root = store.root(snapshot)
    with naming(store.location.text):
        record, schema = require_model(root, job.model.name), read_ledger(root).schema
    if schema is None:
        raise StoreError(f"the store {store.location.text} holds no partition yet")
    found = evaluate(model_of(record), schema, evaluation_partitions(job), executor, report)
    told: dict[str, Any] = {"model": record.name, "weight": found.weight, "test_error": found.test_error}
    if found.classes:
        told |= {"positive": found.positive, "true_positive": found.true_positive}
    else:
        told["test_mse"] = found.test_mse
    return told | {"peak_rss_bytes": peak_rss_bytes(), "snapshot": snapshot}
