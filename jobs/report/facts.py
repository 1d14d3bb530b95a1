"""The contents of a run report as plain JSON: a night of a model, from the store alone, or a run that failed."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import store_location
from ridgestream.jobs.console.log_format import finite
from ridgestream.jobs.report.evaluation_facts import evaluation_facts, partition_facts
from ridgestream.jobs.report.model_card import card_facts, numerics_facts
from ridgestream.jobs.report.run_facts import (
    arrival_facts,
    event_facts,
    is_doubtful,
    mean_row_bytes,
    stage_facts,
    thinned,
)
from ridgestream.jobs.report.stored_night import StoredNight, open_night
from ridgestream.jobs.report.summary_text import summarize_failure, summarize_night
from ridgestream.jobs.runs.guard import night_served
from ridgestream.jobs.runs.recorder import Recorder
from ridgestream.jobs.runs.trivial_errors import night_skills
from ridgestream.pipeline.models.cell_summary import summarize_cells
from ridgestream.pipeline.models.cell_trials import trials_of
from ridgestream.pipeline.models.model_record import fitted_of, is_batch
from ridgestream.pipeline.monitoring.drift import PartitionDrift, drifting_columns
from ridgestream.pipeline.selection.fit_result import Path
from ridgestream.stores.catalog.models import ModelRecord, Night
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import prefix_errors
from ridgestream.stores.files.credentials import hide_secrets
from ridgestream.stores.repository.repository import Store

REPORT_FORMAT = 1
"""The version of the JSON, increased if the meaning of a key changes."""

MAX_POINTS = 200
"""The largest number of points of a curve."""


def night_facts(
    store: Store, model: str, number: int | None = None, drifts: Sequence[PartitionDrift] | None = None
) -> dict[str, Any]:
    """Return the report of a night of the model, the last one if no number is given; no row is read.

    It is the same whenever it is made; `drifts` are those of the night's partitions, computed if they are None. Raises
    ModelError if there is no such model or night.
    """
    with prefix_errors(store.location.text):
        stored = open_night(store, model, number)
        facts = _facts_of(stored, drifts) | {"store": store.location.text}
    hidden: dict[str, Any] = hide_secrets(finite(facts))
    return hidden | {"words": summarize_night(hidden)}


def failure_facts(job: Job, recorder: Recorder, error: BaseException) -> dict[str, Any]:
    """Return the report of a run that ended in an error before its commit: why, and how far it had come."""
    where = recorder.interrupt()
    run = recorder.as_dict()
    facts = {
        "report_format": REPORT_FORMAT,
        "model": job.model.name,
        "night": run["night"],
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "event": "failed",
        "method": job.model.method,
        "store": _location_text(job),
        "failure": (str(error) or type(error).__name__)[:2000],
        "error": type(error).__name__,
        "where": where,
        "stages": stage_facts(run, None),
        "arrivals": arrival_facts(run),
        "said": event_facts(run),
        "unsaid": run["unsaid"],
        "peak_rss_bytes": run["peak_rss_bytes"],
        "versions": run["versions"],
        "machine": run["machine"],
    }
    hidden: dict[str, Any] = hide_secrets(finite(facts))
    return hidden | {"words": summarize_failure(hidden)}


def _location_text(job: Job) -> str:
    try:
        return store_location(job).text
    except StoreError:  # then that is what failed
        return job.store


def _facts_of(stored: StoredNight, drifts: Sequence[PartitionDrift] | None) -> dict[str, Any]:
    night, record, run = stored.night, stored.record, stored.run
    return {
        "report_format": REPORT_FORMAT,
        "model": record.name,
        "night": night.number,
        "finished_at": night.finished_at,
        "event": night.event or ("train" if night.rows or night.partitions else "refit"),
        "task": stored.task,
        "method": record.parameters["method"],
        "snapshot": stored.snapshot,
        "data_snapshot": record.data_snapshot,
        "recorded": bool(run),
        "served_night": night_served(record),
        "held": bool(night.held),
        "guard": run.get("guard"),
        "failure": run.get("failure"),
        "figures": _figures(stored),
        "numerics": numerics_facts(record),
        "cells": summarize_cells(record),
        "cell_trials": trials_of(record),
        "nights": [_night(each) for each in thinned(record.history, MAX_POINTS)],
        "course": run.get("course", {}),
        "path": _path(record),
        "stages": stage_facts(run, mean_row_bytes(stored)),
        "partitions": partition_facts(stored, drifts),
        "drifting": drifting_columns(record),
        "arrivals": arrival_facts(run),
        "evaluation": evaluation_facts(stored),
        "said": event_facts(run),
        "unsaid": run.get("unsaid", 0),
        "doubtful": is_doubtful(run),
        "card": card_facts(stored),
    }


def _figures(stored: StoredNight) -> dict[str, Any]:
    night, record = stored.night, stored.record
    return night_skills(night) | {
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
        "no_better_in": list(night.no_better_in or ()),
        "refitted": night.refitted,
        "refit_gain": night.refit_gain,
        "coverage": night.coverage,
        "train_seconds": night.seconds,
        "peak_rss_bytes": stored.run.get("peak_rss_bytes"),
        "excluded_partitions": len(record.excluded),
    }


def _night(night: Night) -> dict[str, Any]:
    names = ("number", "finished_at", "event", "rows", "rows_seen", "n_basis", "progressive_error", "seconds")
    return {name: getattr(night, name) for name in names} | {
        "test_error": night.test_error if night.test_error is not None else night.test_mse,
        "partitions": len(night.partitions),
        "refitted": night.refitted,
        "held": bool(night.held),
    }


def _path(record: ModelRecord) -> dict[str, Any]:
    """Return the least criterion at each size that a batch method tried; empty if it chose among no models."""
    path = fitted_of(record).path if is_batch(record) else None
    if path is None:
        return {}
    chosen = path.chosen
    best = thinned(sorted(_least_by_size(path).items()), MAX_POINTS)
    return {
        "criterion": path.criterion,
        "models": len(path.value),
        "chosen": {"n_basis": int(path.n_basis[chosen]), "value": float(path.value[chosen])},
        "n_basis": [size for size, _ in best],
        "value": [value for _, value in best],
    }


def _least_by_size(path: Path) -> dict[int, float]:
    least: dict[int, float] = {}
    for size, value in zip(path.n_basis.tolist(), path.value.tolist(), strict=True):
        least[size] = min(value, least.get(size, math.inf))
    return least
