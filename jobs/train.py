"""The train job: teach the model what it has not learned yet, judge it on held-out rows, commit both."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from ridgestream.jobs.cluster import ClusterError
from ridgestream.jobs.opening import evaluation_partitions, memory_limit_bytes, model_request, store_location
from ridgestream.jobs.process_memory import peak_rss_bytes
from ridgestream.jobs.settings import Job
from ridgestream.pipeline.evaluate import Evaluation, check_partitions, evaluate
from ridgestream.pipeline.executor import Executor
from ridgestream.pipeline.features import FeatureMap
from ridgestream.pipeline.freezing import has_rows
from ridgestream.pipeline.planning import TrainingPlan
from ridgestream.pipeline.records import model_of
from ridgestream.pipeline.reporting import Reporter
from ridgestream.pipeline.stream import BLOCK_BYTES
from ridgestream.pipeline.train import Trained, check_request, find_unlearned, train
from ridgestream.stores.errors import PartitionError
from ridgestream.stores.guarding import naming
from ridgestream.stores.ledger import Ledger, read_ledger
from ridgestream.stores.models import ModelRecord, Night, check_not_overtaken, read_model, write_model
from ridgestream.stores.partitions import PartitionFile
from ridgestream.stores.repository import Store


def run_train(
    job: Job, executor: Executor, report: Reporter, wait_seconds: float, *, new_model: bool
) -> dict[str, Any]:
    """Train on what the store holds and return what is to be told of it."""
    began = perf_counter()
    store = Store.open(store_location(job))
    with naming(store.location.text), store.lock(wait_seconds):
        told = train_and_commit(job, store, executor, report, new_model=new_model)
    return told | {"seconds": round(perf_counter() - began, 3)}


def check_training(job: Job, store: Store, files: Sequence[PartitionFile], *, new_model: bool) -> FeatureMap | None:
    """Refuse before `files` are taken in what training would refuse after it; return the feature map of the model.

    Memory is looked at only if there is something new; a model that is yet to begin has no map.
    """
    root = store.root()
    ledger, request = read_ledger(root), model_request(job)
    record = None if new_model else read_model(root, request.name)
    if record is not None:
        check_request(record, request)
    if {file.name for file in files} - ledger.by_name().keys() or find_unlearned(ledger, record):
        TrainingPlan(request.max_basis, 1, BLOCK_BYTES).check(memory_limit_bytes(job))
        if job.evaluate is not None:
            evaluation_partitions(job)
    return FeatureMap.from_dict(record.encoding) if record else None


def train_and_commit(
    job: Job, store: Store, executor: Executor, report: Reporter, *, new_model: bool
) -> dict[str, Any]:
    """Train under the writer's lock; the model's state and its position in the ledger change by one commit."""
    snapshot = store.snapshot()
    root = store.root(snapshot)
    ledger, request = read_ledger(root), model_request(job)
    kept = read_model(root, request.name)
    record = None if new_model else kept
    if record is not None:
        check_request(record, request)
    unlearned = find_unlearned(ledger, record)
    if not unlearned or (record is None and not has_rows(root, ledger)):
        report.say("nothing new to learn", model=request.name, partitions=len(ledger.entries))
        return outcome(record, snapshot, 0, 0)
    if job.evaluate is not None and ledger.schema is not None:
        check_partitions(evaluation_partitions(job), ledger.schema)
    trained = train(root, ledger, record, request, memory_limit_bytes(job), report)
    judged, failure = None, None
    try:
        judged = _judge(job, trained.record, ledger, executor, report)
    except (PartitionError, ClusterError) as error:
        failure = error  # what was learned is kept all the same
    record = _with_night(trained, snapshot, judged)
    with store.write(f"Train {request.name} on {len(unlearned)} partitions") as writing:
        check_not_overtaken(kept, read_model(writing.root, request.name), store.location.text)
        write_model(writing.root, record)
    if failure is not None:
        raise type(failure)(f"{failure}; the model has learned and is kept, without a test error") from failure
    tell_of_oddities(ledger, record, trained, judged, report)
    return outcome(record, writing.snapshot or "", len(unlearned), sum(entry.rows for entry in unlearned))


def tell_of_oddities(
    ledger: Ledger, record: ModelRecord, trained: Trained, judged: Evaluation | None, report: Reporter
) -> None:
    """Say what is allowed but seldom meant: little to standardize by, one class only, nothing to judge on."""
    wanted = record.parameters["scaling_rows"]
    if not record.history[:-1] and wanted is not None and ledger.rows < wanted:
        report.say(
            "the standardization is now fixed for good, by fewer rows than scaling_rows",
            rows=ledger.rows,
            wanted=wanted,
        )
    if ledger.schema is not None and ledger.schema.positive is not None and trained.one_class:
        report.say(
            "all rows learned in this run are of one class; is it spelled right?", positive=ledger.schema.positive
        )
    if judged is not None and not judged.weight:
        report.say("the held-out partitions have no row to judge on")


def outcome(record: ModelRecord | None, snapshot: str, new_partitions: int, new_rows: int) -> dict[str, Any]:
    """Return what is told of a model after a run."""
    night = record.history[-1] if record and record.history else None
    told: dict[str, Any] = {
        "model": record.name if record else None,
        "rows_seen": int(record.counters["rows_seen"]) if record else 0,
        "n_basis": night.n_basis if night else 0,
        "test_error": night.test_error if night else None,
        "progressive_error": night.progressive_error if night else None,
        "partitions_consumed": len(record.learned) if record else 0,
        "new_partitions": new_partitions,
        "new_rows": new_rows,
        "train_seconds": night.seconds if night and new_partitions else 0.0,
        "peak_rss_bytes": peak_rss_bytes(),
        "snapshot": snapshot,
    }
    if night and night.test_mse is not None:
        told["test_mse"] = night.test_mse
    return told


def _judge(job: Job, record: ModelRecord, ledger: Ledger, executor: Executor, report: Reporter) -> Evaluation | None:
    if job.evaluate is None or ledger.schema is None:
        return None
    return evaluate(model_of(record), ledger.schema, evaluation_partitions(job), executor, report)


def _with_night(trained: Trained, snapshot: str, judged: Evaluation | None) -> ModelRecord:
    record, entries = trained.record, trained.entries
    night = Night(
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        partitions=tuple(entry.name for entry in entries),
        rows=sum(entry.rows for entry in entries),
        rows_seen=int(record.counters["rows_seen"]),
        n_basis=len(record.arrays["basis_vectors"]),
        progressive_error=trained.progressive_error,
        test_error=judged.test_error if judged else None,
        test_mse=judged.test_mse if judged else None,
        seconds=round(trained.seconds, 3),
    )
    learned = (*record.learned, *(entry.order for entry in entries))
    return replace(record, learned=learned, data_snapshot=snapshot, history=(*record.history, night))
