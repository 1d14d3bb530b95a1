"""The model card of a report: parameters, columns with their encoding, numerics."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from ridgestream.jobs.report.stored_night import StoredNight
from ridgestream.pipeline.dataset.feature_map_growth import feature_map_of
from ridgestream.pipeline.features.metric_summary import summarize_metric
from ridgestream.pipeline.models.model_record import fitted_of, is_batch, is_refitted
from ridgestream.pipeline.online.diagnostics import Numerics
from ridgestream.stores.catalog.ledger import LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord

_NAMES = 20
"""Partitions that are named at most."""

_CATEGORIES = 12
"""Categories of a column that are named at most."""


def card_facts(stored: StoredNight) -> dict[str, Any]:
    """Return what the model was trained on and how, with the versions and the machine of its last run."""
    record, schema = stored.record, stored.ledger.schema
    return {
        "parameters": {name: value for name, value in record.parameters.items() if name != "learner"},
        "regularization": record.parameters["learner"]["regularization"],
        "kernel": record.parameters["learner"]["kernel"],
        "parameters_hash": record.parameters_hash,
        "target": list(schema.targets) if schema else [],
        "positive": schema.positive if schema else None,
        "classes": record.encoding.get("classes") or None,
        "weight_column": schema.weight if schema else None,
        "features": _columns(stored),
        "n_features": feature_map_of(record).n_features,
        "metric": summarize_metric(feature_map_of(record)),
        "standardized_by": _partition_names(stored.ledger.entries, record.scaled_by),
        "rows_in_store": stored.ledger.rows,
        "partitions_in_store": len(stored.ledger.entries),
        "refitted": is_refitted(record),
        "versions": stored.run.get("versions", {}),
        "machine": stored.run.get("machine", {}),
    }


def numerics_facts(record: ModelRecord) -> dict[str, Any]:
    """Return condition numbers, rounding error and jitter; empty for a model that was stored without them."""
    counters = record.counters
    if is_batch(record):
        return {name: value for name, value in sorted(fitted_of(record).notes.items()) if name != "rows"}
    if not counters.get("normal_condition"):
        return {}
    digits = max(16 - math.log10(counters["normal_condition"]), 0.0)
    numerics = {each.name: counters[each.name] for each in fields(Numerics) if each.name in counters}
    return numerics | {"digits": round(digits, 1)}


def _columns(stored: StoredNight) -> list[dict[str, Any]]:
    """Return each column with its kind and its standardization, or its categories."""
    features, schema = feature_map_of(stored.record), stored.ledger.schema
    kinds = {feature.name: feature.kind for feature in schema.features} if schema else {}
    numeric: list[dict[str, Any]] = [
        {
            "column": c.name,
            "kind": kinds.get(c.name, "numeric"),
            "centre": c.centre if c.is_linear else None,
            "scale": c.scale if c.is_linear else None,
            "scale_is_open": c.distinct < 2,
            "is_compressed": c.spread > 0,
            "circles": list(c.cycles),
        }
        for c in features.numeric
    ]
    return numeric + [
        {
            "column": c.name,
            "kind": kinds.get(c.name, "categorical"),
            "categories": len(c.categories),
            "first": list(c.categories[:_CATEGORIES]),
        }
        for c in features.categorical
    ]


def _partition_names(entries: Iterable[LedgerEntry], segments: Sequence[int]) -> dict[str, Any]:
    names = {entry.segment: entry.name for entry in entries}
    return {"count": len(segments), "first": [names[number] for number in segments[:_NAMES] if number in names]}
