"""What a run report holds, as JSON takes it: a night of a model, from the store alone; or a run that failed."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import store_location
from ridgestream.jobs.console.confusion_table import tell_confusion
from ridgestream.jobs.console.log_format import finite
from ridgestream.jobs.report.summary_text import tell_in_words, tell_of_failure
from ridgestream.jobs.runs.guard import night_served
from ridgestream.jobs.runs.recorder import Recorder
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.models.model_record import fitted_of, is_batch, is_refitted
from ridgestream.pipeline.monitoring.drift import PartitionDrift, Segments, compare_partitions
from ridgestream.pipeline.online.diagnostics import Numerics
from ridgestream.pipeline.selection.fit_result import Path
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, read_ledger
from ridgestream.stores.catalog.models import CONFUSION, ModelRecord, Night, night_tag, require_model
from ridgestream.stores.catalog.snapshots import snapshot_of_night
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import prefix_errors
from ridgestream.stores.files.credentials import hide_secrets
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.class_labels import class_name
from ridgestream.stores.segments.segments import segment_path

if TYPE_CHECKING:
    import zarr

REPORT_FORMAT = 1
"""The version of the JSON: goes up when a key changes its meaning."""

POINTS = 200
"""Points of a curve at most."""


@dataclass(frozen=True)
class _Told:
    """A night, and the store as it left it."""

    root: "zarr.Group"
    snapshot: str
    ledger: Ledger
    record: ModelRecord

    @property
    def night(self) -> Night:
        return self.record.history[-1]

    @property
    def run(self) -> dict[str, Any]:
        """What the run told of itself; nothing where an older release made it, or for a rollback."""
        return self.record.run if self.record.run.get("night") == self.night.number else {}

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """The partitions of the night that the store still has."""
        segments = set(self.night.segments or ())
        return tuple(entry for entry in self.ledger.entries if entry.segment in segments)

    @property
    def task(self) -> str:
        """One of regression, binary and classes."""
        schema = self.ledger.schema
        if schema is None or not schema.classifies:
            return "regression"
        return "classes" if self.record.encoding.get("classes") else "binary"


def tell_night(
    store: Store, model: str, number: int | None = None, drifts: Sequence[PartitionDrift] | None = None
) -> dict[str, Any]:
    """Return the report of a night of the model, the last one if no number is given; no row is read.

    The same whenever it is asked for; `drifts` of the night's partitions need not be found again where they are known.
    Raises ModelError if there is no such model or night.
    """
    with prefix_errors(store.location.text):
        told = _open(store, model, number)
        facts = _tell(told, drifts) | {"store": store.location.text}
    hidden: dict[str, Any] = hide_secrets(finite(facts))
    return hidden | {"words": tell_in_words(hidden)}


def tell_failure(job: Job, recorder: Recorder, error: BaseException) -> dict[str, Any]:
    """Return the report of a run that ended in an error before its commit: what it was, and how far it had come."""
    where = recorder.interrupt()
    run = recorder.as_dict()
    facts = {
        "report_format": REPORT_FORMAT,
        "model": job.model.name,
        "night": run["night"],
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "event": "failed",
        "method": job.model.method,
        "store": _place(job),
        "failure": (str(error) or type(error).__name__)[:2000],
        "error": type(error).__name__,
        "where": where,
        "stages": _stages(run, None),
        "arrivals": _arrivals(run),
        "said": _said(run),
        "unsaid": run["unsaid"],
        "peak_rss_bytes": run["peak_rss_bytes"],
        "versions": run["versions"],
        "machine": run["machine"],
    }
    hidden: dict[str, Any] = hide_secrets(finite(facts))
    return hidden | {"words": tell_of_failure(hidden)}


def _place(job: Job) -> str:
    try:
        return store_location(job).text
    except StoreError:  # then that is what failed
        return job.store


def _open(store: Store, model: str, number: int | None) -> _Told:
    snapshot = store.snapshot()
    if number is None:
        number = require_model(store.root(snapshot), model).history[-1].number
    if number and night_tag(model, number) in store.tags():
        snapshot = snapshot_of_night(store, model, number)
    record = require_model(store.root(snapshot), model)
    if record.history[-1].number != number:
        snapshot = snapshot_of_night(store, model, number)  # which says what nights there are
    root = store.root(snapshot)
    return _Told(root, snapshot, read_ledger(root), require_model(root, model))


def _tell(told: _Told, drifts: Sequence[PartitionDrift] | None) -> dict[str, Any]:
    night, record, run = told.night, told.record, told.run
    return {
        "report_format": REPORT_FORMAT,
        "model": record.name,
        "night": night.number,
        "finished_at": night.finished_at,
        "event": night.event or ("train" if night.rows or night.partitions else "refit"),
        "task": told.task,
        "method": record.parameters["method"],
        "snapshot": told.snapshot,
        "data_snapshot": record.data_snapshot,
        "recorded": bool(run),
        "served_night": night_served(record),
        "held": bool(night.held),
        "guard": run.get("guard"),
        "failure": run.get("failure"),
        "figures": _figures(told),
        "numerics": _numerics(record),
        "nights": [_tell_night(each) for each in _thinned(record.history)],
        "course": run.get("course", {}),
        "path": _tell_path(record),
        "stages": _stages(run, _row_bytes(told)),
        "partitions": _partitions(told, drifts),
        "arrivals": _arrivals(run),
        "evaluation": _evaluation(told),
        "said": _said(run),
        "unsaid": run.get("unsaid", 0),
        "doubtful": _is_doubtful(run),
        "card": _card(told),
    }


def _figures(told: _Told) -> dict[str, Any]:
    night, record = told.night, told.record
    return {
        "rows_seen": night.rows_seen,
        "new_rows": night.rows,
        "new_partitions": len(night.partitions),
        "partitions_consumed": len(record.learned),
        "n_basis": night.n_basis,
        "swaps": record.counters.get("swaps"),
        "test_error": night.test_error,
        "test_mse": night.test_mse,
        "test_mse_of": night.test_mse_of,
        "progressive_error": night.progressive_error,
        "progressive_mse_of": night.progressive_mse_of,
        "refitted": night.refitted,
        "train_seconds": night.seconds,
        "peak_rss_bytes": told.run.get("peak_rss_bytes"),
        "excluded_partitions": len(record.excluded),
    }


def _numerics(record: ModelRecord) -> dict[str, Any]:
    """Return condition, drift and jitter; nothing for a model that was kept without them."""
    counters = record.counters
    if is_batch(record):
        return {name: value for name, value in sorted(fitted_of(record).notes.items()) if name != "rows"}
    if not counters.get("normal_condition"):
        return {}
    digits = max(16 - math.log10(counters["normal_condition"]), 0.0)
    kept = {each.name: counters[each.name] for each in fields(Numerics) if each.name in counters}
    return kept | {"digits": round(digits, 1)}


def _tell_night(night: Night) -> dict[str, Any]:
    names = ("number", "finished_at", "event", "rows", "rows_seen", "n_basis", "progressive_error", "seconds")
    test = night.test_error if night.test_error is not None else night.test_mse
    return {name: getattr(night, name) for name in names} | {
        "test_error": test,
        "partitions": len(night.partitions),
        "refitted": night.refitted,
        "held": bool(night.held),
    }


def _thinned(items: Sequence[Any], most: int = POINTS) -> list[Any]:
    """Return at most so many, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def _tell_path(record: ModelRecord) -> dict[str, Any]:
    """Return the least criterion at each size that a batch method looked at; nothing where it chose nothing."""
    path = fitted_of(record).path if is_batch(record) else None
    if path is None:
        return {}
    chosen = path.chosen
    best = sorted(_best(path).items())
    return {
        "criterion": path.criterion,
        "models": len(path.value),
        "chosen": {"n_basis": int(path.n_basis[chosen]), "value": float(path.value[chosen])},
        "n_basis": [size for size, _ in _thinned(best)],
        "value": [value for _, value in _thinned(best)],
    }


def _best(path: Path) -> dict[int, float]:
    best: dict[int, float] = {}
    for size, value in zip(path.n_basis.tolist(), path.value.tolist(), strict=True):
        best[size] = min(value, best.get(size, math.inf))
    return best


def _arrivals(run: dict[str, Any]) -> dict[str, Any]:
    """Return what was unlike the rest among what came in, by kind."""
    return {key: value for key, value in run.get("ingest", {}).items() if isinstance(value, dict)}


def _said(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events that the run reported, each with its facts; codes are missing in runs of release 0.1.0."""
    said = run.get("said", ())
    codes = run.get("said_codes", [None] * len(said))
    return [{"code": code, "message": message, **facts} for code, (message, facts) in zip(codes, said, strict=True)]


def _is_doubtful(run: dict[str, Any]) -> bool:
    """Return whether an event casts doubt on the model; release 0.1.0 recorded sentences only."""
    return bool(run.get("doubtful", any("singular" in message for message, _ in run.get("said", ()))))


def _stages(run: dict[str, Any], row_bytes: float | None) -> list[dict[str, Any]]:
    """Return each stage with seconds, rows and bytes: of Parquet files, or of rows as the store keeps them."""
    parquet = {
        name: run[key]["bytes"] for name, key in (("ingest", "ingest"), ("evaluate", "evaluation")) if key in run
    }
    stages = []
    for name, times, rows, seconds in run.get("steps", ()):
        read = parquet.get(name, None if row_bytes is None else round(rows * row_bytes))
        stages.append({"stage": name, "times": times, "rows": rows, "seconds": seconds, "bytes": read})
    return stages


def _row_bytes(told: _Told) -> float | None:
    """Return what a row takes uncompressed in the segments of the night, or in all that were learned."""
    numbers = [entry.segment for entry in told.entries] or list(told.record.learned)
    numbers = [number for number in _thinned(numbers, 8) if segment_path(number) in told.root]
    sizes = [_size_of(told.root, number) for number in numbers]
    rows = sum(n for n, _ in sizes)
    return sum(size for _, size in sizes) / rows if rows else None


def _size_of(root: "zarr.Group", number: int) -> tuple[int, int]:
    arrays = {name: array for name, array in root[segment_path(number)].arrays() if name != "moments"}  # type: ignore[union-attr]
    return arrays["targets"].shape[0], sum(int(array.nbytes) for array in arrays.values())


def _partitions(told: _Told, drifts: Sequence[PartitionDrift] | None) -> list[dict[str, Any]]:
    """Return the partitions of the night in the order of learning."""
    if drifts is None:
        drifts = compare_partitions(Segments(told.root), told.ledger, told.record, told.entries)
    dropped = {entry.segment: entry.dropped for entry in told.entries}
    return [_tell_partition(drift, dropped[drift.segment]) for drift in drifts]


def _tell_partition(drift: PartitionDrift, dropped: int) -> dict[str, Any]:
    largest = drift.largest
    return {
        "partition": drift.name,
        "rows": drift.rows,
        "dropped_rows": dropped,
        "progressive_error": drift.progressive_error,
        "error_limit": drift.error_limit,
        "largest_psi": largest.shift.psi if largest else None,
        "of_column": largest.column if largest else None,
        "moved": [column.column for column in drift.moved[:5]],
        "erred": drift.erred,
        "suspect": drift.is_suspect,
    }


def _evaluation(told: _Told) -> dict[str, Any]:
    """Return what is known of the held-out rows, beside the errors in the figures."""
    found, schema = dict(told.run.get("evaluation") or {}), told.ledger.schema
    if not found or schema is None:
        return {}
    residuals = found.pop("residuals")
    if told.task == "classes" and CONFUSION in told.record.arrays:
        found["confusion"] = tell_confusion(told.record.encoding["classes"], told.record.arrays[CONFUSION].tolist())
    elif told.task == "binary":
        found["confusion"] = _two_classes("" if schema.positive is None else class_name(schema.positive), found)
    elif told.task == "regression":
        found["residuals"] = [
            {"target": target, **bars} for target, bars in zip(schema.targets, residuals, strict=False)
        ]
        found["targets"] = len(schema.targets)
    return found


def _two_classes(positive: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return the confusion of one class against the rest, from the counts of an evaluation."""
    missed = found["positive"] - found["true_positive"]
    wrong = max(found["mistakes"] - missed, 0.0)
    rest = max(found["weight"] - found["positive"] - wrong, 0.0)
    return {"classes": [positive, "all others"], "weights": [[found["true_positive"], missed], [wrong, rest]]}


def _card(told: _Told) -> dict[str, Any]:
    record, schema = told.record, told.ledger.schema
    return {
        "parameters": {name: value for name, value in record.parameters.items() if name != "learner"},
        "regularization": record.parameters["learner"]["regularization"],
        "kernel": record.parameters["learner"]["kernel"],
        "parameters_hash": record.parameters_hash,
        "target": list(schema.targets) if schema else [],
        "positive": schema.positive if schema else None,
        "classes": record.encoding.get("classes") or None,
        "weight_column": schema.weight if schema else None,
        "features": _features(told),
        "n_features": FeatureMap.from_dict(record.encoding).n_features,
        "standardized_by": _names(told.ledger.entries, record.scaled_by),
        "rows_in_store": told.ledger.rows,
        "partitions_in_store": len(told.ledger.entries),
        "refitted": is_refitted(record),
        "versions": told.run.get("versions", {}),
        "machine": told.run.get("machine", {}),
    }


def _features(told: _Told) -> list[dict[str, Any]]:
    """Return each column with its kind and what it is standardized by, or its categories."""
    features, schema = FeatureMap.from_dict(told.record.encoding), told.ledger.schema
    kinds = {feature.name: feature.kind for feature in schema.features} if schema else {}
    listed: list[dict[str, Any]] = [
        {"column": c.name, "kind": kinds.get(c.name, "numeric"), "centre": c.centre, "scale": c.scale}
        for c in features.numeric
    ]
    return listed + [
        {
            "column": c.name,
            "kind": kinds.get(c.name, "categorical"),
            "categories": len(c.categories),
            "first": list(c.categories[:12]),
        }
        for c in features.categorical
    ]


def _names(entries: Iterable[LedgerEntry], segments: Sequence[int]) -> dict[str, Any]:
    names = {entry.segment: entry.name for entry in entries}
    return {"count": len(segments), "first": [names[number] for number in segments[:20] if number in names]}
