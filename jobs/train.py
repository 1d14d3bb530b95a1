"""The train job: teach the model what it has not learned yet, judge it on held-out rows, commit both."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgestream.jobs.cluster import ClusterError
from ridgestream.jobs.drift import tell_of_drift
from ridgestream.jobs.guard import Verdict, hold_back, judge_against_served, night_served
from ridgestream.jobs.opening import evaluation_partitions, memory_limit_bytes, model_request, policies, store_location
from ridgestream.jobs.process_memory import peak_rss_bytes
from ridgestream.jobs.settings import Job
from ridgestream.pipeline.arrivals import count_usable_rows, sort_arrivals
from ridgestream.pipeline.errors import MemoryRefused, NumericalBreakdown
from ridgestream.pipeline.evaluate import Evaluation, check_partitions, evaluate
from ridgestream.pipeline.executor import Executor
from ridgestream.pipeline.features import FeatureMap
from ridgestream.pipeline.freezing import has_rows
from ridgestream.pipeline.keeping import Keeper
from ridgestream.pipeline.records import is_refitted, model_of
from ridgestream.pipeline.refit import check_refit_memory, refit
from ridgestream.pipeline.reporting import Reporter, Silent
from ridgestream.pipeline.trained import Trained, find_unlearned, standing_of
from ridgestream.pipeline.training import Request, check_asked, check_memory, is_changed, learn
from ridgestream.stores.checkpoints import Checkpoints
from ridgestream.stores.errors import PartitionError
from ridgestream.stores.guarding import naming
from ridgestream.stores.ledger import Ledger, LedgerEntry, read_ledger
from ridgestream.stores.models import (
    CONFUSION,
    ModelRecord,
    Night,
    begin_anew,
    check_not_overtaken,
    next_number,
    night_tag,
    read_model,
    write_model,
)
from ridgestream.stores.partitions import PartitionFile
from ridgestream.stores.repository import Store

if TYPE_CHECKING:
    import zarr

Trouble = PartitionError | ClusterError | MemoryRefused | NumericalBreakdown
"""What may go wrong after the model has learned; what it has learned is kept."""


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
    root, request = store.root(), model_request(job)
    standing = standing_of(root, request.name, new_model=new_model)
    ledger, record = standing.ledger, standing.record
    if record is not None:
        check_asked(ledger, record, request)
    new = sort_arrivals(read_ledger(root), files).fresh
    learns = bool(new or find_unlearned(ledger, record))
    if learns:
        check_memory(ledger, count_usable_rows(new), record, request, memory_limit_bytes(job))
    learns = learns or is_changed(record, request)
    if refits(job, record, learns=learns):
        check_refit_memory(ledger, _most_basis(request, record), memory_limit_bytes(job))
    if job.evaluate is not None and (learns or refits(job, record, learns=learns)):
        evaluation_partitions(job)
    return FeatureMap.from_dict(record.encoding) if record else None


def train_and_commit(
    job: Job, store: Store, executor: Executor, report: Reporter, *, new_model: bool
) -> dict[str, Any]:
    """Train and refit under the writer's lock; the state, its position and what is served change by one commit."""
    store.mend_tags()
    snapshot = store.snapshot()
    root = store.root(snapshot)
    request = model_request(job)
    standing = standing_of(root, request.name, new_model=new_model)
    ledger, record, kept = standing.ledger, standing.record, standing.kept
    if record is not None:
        check_asked(ledger, record, request)
    unlearned = find_unlearned(ledger, record)
    learns = is_changed(record, request) or (bool(unlearned) and (record is not None or has_rows(root, ledger)))
    if not learns and not refits(job, record, learns=learns):
        nothing = (
            "nothing new to learn" if record else "no row of weight above zero to learn from: there is no model yet"
        )
        report.say(nothing, model=request.name, partitions=len(ledger.entries))
        return outcome(record, snapshot, None)
    if job.evaluate is not None and ledger.schema is not None:
        check_partitions(evaluation_partitions(job), ledger.schema)
    if refits(job, record, learns=learns):
        check_refit_memory(ledger, _most_basis(request, record), memory_limit_bytes(job))
    checkpoints = Checkpoints(store, request.name)
    trained = learn(root, ledger, record, request, memory_limit_bytes(job), executor, report, checkpoints)
    suspects = tell_of_drift(root, ledger, trained, report)
    trained, judged, failure = _refit_and_judge(job, root, ledger, trained, executor, report, checkpoints)
    verdict: Verdict | None = None
    guarded = kept if job.model.guard is not None and kept and night_served(kept) else None
    if guarded and judged and failure is None:
        verdict, failure = _guard(job, store, ledger, guarded, judged, executor)
    if kept and record is None and not new_model:
        trained = replace(trained, record=begin_anew(trained.record, kept))
    record = _with_night(trained, next_number(kept), snapshot, judged, ledger.schema.targets if ledger.schema else ())
    if guarded and (failure or (verdict and verdict.served)):
        record = hold_back(record, night_served(guarded))
    with store.write(_message(record), night_tag(record.name, record.history[-1].number)) as writing:
        check_not_overtaken(kept, read_model(writing.root, request.name, with_arrays=False), store.location.text)
        write_model(writing.root, record)
    checkpoints.drop()
    if failure is not None:
        lacks = "a test error" if is_refitted(record) or not job.model.refit else "its refit and a test error"
        raise type(failure)(f"{failure}; the model has learned and is kept, without {lacks}") from failure
    tell_of_oddities(ledger, record, trained, judged, report)
    told = outcome(record, writing.snapshot or "", trained.entries) | {"suspects": list(suspects)}
    if verdict and verdict.served:
        report.say(
            "the model is worse than the guard allows and is not served; it has learned",
            error=verdict.error_now,
            served_night=verdict.served,
            its_error=verdict.error_before,
        )
        raise Held(told)
    return told


class Held(Exception):
    """The model has learned and is kept, but is held back by the guard; `told` is what a run would have returned."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(f"the model of night {told['served_night']} goes on being served")
        self.told = told


def _guard(
    job: Job, store: Store, ledger: Ledger, kept: ModelRecord, judged: Evaluation, executor: Executor
) -> tuple[Verdict | None, Trouble | None]:
    """Return what the guard says, or what went wrong on the way."""

    def evaluated(record: ModelRecord) -> Evaluation:
        return _judge(job, record, ledger, executor, Silent()) or judged

    try:
        return judge_against_served(store, kept, judged, job.model.guard or 0.0, evaluated), None
    except (PartitionError, ClusterError, MemoryRefused, NumericalBreakdown) as error:
        return None, error


def refits(job: Job, record: ModelRecord | None, *, learns: bool) -> bool:
    """Tell whether a run is to refit: where the job asks for it, and the coefficients are not those of a refit yet."""
    return job.model.refit and (learns or (record is not None and not is_refitted(record)))


def tell_of_oddities(
    ledger: Ledger, record: ModelRecord, trained: Trained, judged: Evaluation | None, report: Reporter
) -> None:
    """Say what is allowed but seldom meant: little to standardize by, one class, nothing to judge on, a refit lost."""
    wanted = record.parameters["scaling_rows"]
    if not record.history[:-1] and wanted is not None and ledger.rows < wanted:
        report.say(
            "the standardization is now fixed for good, by fewer rows than scaling_rows",
            rows=ledger.rows,
            wanted=wanted,
        )
    if trained.one_class:
        schema = ledger.schema
        asked = {"positive": schema.positive} if schema and schema.positive is not None else {}
        report.say("all rows learned in this run are of one class; is it spelled right?", **asked)
    if judged is not None and not judged.weight:
        report.say("the held-out partitions have no row to judge on")
    if [night.refitted for night in record.history[-2:]] == [True, False]:
        report.say("the coefficients are those of the stream again: this run was not asked to refit")


def outcome(record: ModelRecord | None, snapshot: str, entries: Sequence[LedgerEntry] | None) -> dict[str, Any]:
    """Return what is told of a model after a run that learned `entries`; None if it changed nothing."""
    nights = record.history if record else ()
    night = nights[-1] if nights else None
    progressive = [n.progressive_error for n in nights if n.progressive_error is not None]
    told: dict[str, Any] = {
        "model": record.name if record else None,
        "rows_seen": int(record.counters["rows_seen"]) if record else 0,
        "n_basis": night.n_basis if night else 0,
        "test_error": night.test_error if night else None,
        "progressive_error": progressive[-1] if progressive else None,
        "refitted": is_refitted(record) if record else False,
        "partitions_consumed": len(record.learned) if record else 0,
        "condition": record.counters.get("normal_condition") if record else None,
        "drift": record.counters.get("drift") if record else None,
        "largest_jitter": record.counters.get("largest_jitter") if record else None,
        "new_partitions": len(entries or ()),
        "new_rows": sum(entry.rows for entry in entries or ()),
        "train_seconds": night.seconds if night and entries is not None else 0.0,
        "peak_rss_bytes": peak_rss_bytes(),
        "snapshot": snapshot,
        "served_night": night_served(record) if record else 0,
        "suspects": [],
    }
    if night and night.test_mse is not None:
        told["test_mse"] = night.test_mse
    for name in ("progressive_mse_of", "test_mse_of"):
        if night and getattr(night, name) is not None:
            told[name] = getattr(night, name)
    return told


def _most_basis(request: Request, record: ModelRecord | None) -> int:
    """Return the size of the largest dictionary that there can be; without a cap, of the one that there is."""
    return request.max_basis or max(len(record.arrays["basis_vectors"]) if record else 0, 1)


def _refit_and_judge(
    job: Job,
    root: "zarr.Group",
    ledger: Ledger,
    trained: Trained,
    executor: Executor,
    report: Reporter,
    keeper: Keeper,
) -> tuple[Trained, Evaluation | None, Trouble | None]:
    """Return what came of it, and what went wrong on the way; what was learned before that is to be kept."""
    judged = None
    try:
        if job.model.refit:
            check_refit_memory(ledger, len(trained.record.arrays["basis_vectors"]), memory_limit_bytes(job))
            trained = _refit(root, ledger, trained, executor, report, keeper)
        judged = _judge(job, trained.record, ledger, executor, report)
    except (PartitionError, ClusterError, MemoryRefused, NumericalBreakdown) as error:
        if not trained.entries and not is_refitted(trained.record):
            raise
        return trained, judged, error
    return trained, judged, None


def _refit(
    root: "zarr.Group", ledger: Ledger, trained: Trained, executor: Executor, report: Reporter, keeper: Keeper
) -> Trained:
    began = perf_counter()
    record = refit(root, ledger, trained.record, _learned(trained), executor, report, keeper)
    return replace(trained, record=record, seconds=trained.seconds + perf_counter() - began)


def _learned(trained: Trained) -> tuple[int, ...]:
    return (*trained.record.learned, *(entry.segment for entry in trained.entries))


def _message(record: ModelRecord) -> str:
    partitions = len(record.history[-1].partitions)
    return f"Train {record.name} on {partitions} partitions" if partitions else f"Refit {record.name}"


def _judge(job: Job, record: ModelRecord, ledger: Ledger, executor: Executor, report: Reporter) -> Evaluation | None:
    if job.evaluate is None or ledger.schema is None:
        return None
    return evaluate(model_of(record), ledger.schema, evaluation_partitions(job), executor, report, policies(job))


def _with_night(
    trained: Trained, number: int, snapshot: str, judged: Evaluation | None, targets: tuple[str, ...]
) -> ModelRecord:
    record, entries = trained.record, trained.entries
    rows = sum(entry.rows for entry in entries)
    night = Night(
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        partitions=tuple(entry.name for entry in entries),
        rows=rows,
        rows_seen=int(record.counters["rows_seen"]),
        n_basis=len(record.arrays["basis_vectors"]),
        progressive_error=trained.progressive_error if rows else None,
        test_error=judged.test_error if judged else None,
        test_mse=judged.test_mse if judged else None,
        seconds=round(trained.seconds, 3),
        refitted=is_refitted(record),
        progressive_mse_of=_by_target(targets, trained.progressive_mse_of),
        test_mse_of=_by_target(targets, judged.test_mse_of if judged else ()),
        regularization=record.parameters["learner"]["regularization"],
        number=number,
        progressive_errors=trained.progressive_errors if rows else None,
        segments=tuple(entry.segment for entry in entries),
    )
    arrays = record.arrays | ({CONFUSION: np.array(judged.confusion)} if judged and judged.confusion else {})
    history = (*record.history, night)
    return replace(record, learned=_learned(trained), data_snapshot=snapshot, history=history, arrays=arrays, serves=0)


def _by_target(targets: tuple[str, ...], errors: tuple[float, ...]) -> dict[str, float] | None:
    """Return the error of each of several targets by its name; None where one number says all."""
    return dict(zip(targets, errors, strict=True)) if len(errors) > 1 else None
