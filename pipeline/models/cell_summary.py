"""What the cells of local experts are like: rows, error, dictionary and drift of each, and where they lie."""

from typing import Any

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.dataset.feature_map_growth import feature_map_of
from ridgestream.pipeline.features.metric_summary import describe_direction
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.models.experts_record import experts_of, is_local
from ridgestream.pipeline.models.uncertainty import accumulated_sums, estimate_noise
from ridgestream.pipeline.online.experts.experts_state import ExpertsState
from ridgestream.pipeline.online.experts.packed_cell import SWAPS, n_basis_of, numerics_of, rows_seen_of
from ridgestream.stores.catalog.models import ModelRecord

WEAK = 2.0
"""A cell is weak whose error is above so many times that of all cells."""

STARVED = 5
"""A cell is starved that has fewer rows than so many for each of its vectors, or none."""


def summarize_cells(record: ModelRecord) -> dict[str, Any]:
    """Return the cells of a record as a JSON object; empty for a model of one dictionary. O(n_basis³) a cell.

    A cell's error is its mean squared residual by its own sums, in squared units of the target or of ±1 scores, with
    the degrees of freedom of its dictionary taken off: about that of new rows. `x` and `y` are its centre along the two
    leading directions of the metric or, without one, of the centres.
    """
    if not is_local(record):
        return {}
    state, feature_map = experts_of(record), feature_map_of(record)
    axes = _axes(state.cells.centres, feature_map.metric)
    places = state.cells.centres @ axes.T
    units = np.square(feature_map.target.scale)
    cells = [
        _cell(state, number, units) | dict(zip("xy", places[number].tolist(), strict=True))
        for number in range(len(state.cells))
    ]
    error, known = _mean_error(cells), [each for each in cells if each["error"] is not None]
    weakest = sorted(known, key=lambda each: -each["error"])
    return {
        "count": len(cells),
        "error": error,
        "weak": [each["cell"] for each in weakest if each["error"] > WEAK * (error or 0.0)],
        "starved": [each["cell"] for each in cells if each["rows"] < STARVED * max(each["n_basis"], 1)],
        "directions": [describe_direction(axis, feature_map) for axis in axes],
        "cells": cells,
    }


def _cell(state: ExpertsState, number: int, units: Floats) -> dict[str, Any]:
    packed = state.packed[number]
    return {
        "cell": number,
        "rows": rows_seen_of(packed),
        "n_basis": n_basis_of(packed),
        "swaps": int(packed[SWAPS]) if len(packed) else 0,
        "error": _error(state, number, units),
        "rounding_error": numerics_of(packed).rounding_error if len(packed) else None,
    }


def _error(state: ExpertsState, number: int, units: Floats) -> float | None:
    """Return a cell's error; None without a row of positive weight, and where P has no factor."""
    own = state.state_of(number)
    if not own.weight_seen:
        return None
    if not own.n_basis:
        return float(np.mean(units * np.diagonal(own.target_square)) / own.weight_seen)
    sums = accumulated_sums(own)
    try:
        with one_blas_thread():
            normal = sums.factorize(own.gram, own.parameters.published_regularization(own.weight_seen))
            return float(np.mean(units * estimate_noise(sums, normal)))
    except NumericalBreakdown:
        return None


def _mean_error(cells: list[dict[str, Any]]) -> float | None:
    known = [(each["error"], each["rows"]) for each in cells if each["error"] is not None]
    rows = sum(own for _, own in known)
    return sum(error * own for error, own in known) / rows if rows else None


def _axes(centres: Floats, metric: Metric | None) -> Floats:
    """Return two directions in the space of the centres, (2, n_features), the second zero for a single feature."""
    axes = np.zeros((2, centres.shape[1]))
    if metric is not None:
        found = np.array([direction.axis for direction in metric.directions(2)])
    else:
        found = np.linalg.svd(centres - centres.mean(axis=0), full_matrices=False)[2][:2]
        found = (
            found * np.where(found[np.arange(len(found)), np.argmax(np.abs(found), axis=1)] < 0, -1, 1)[:, np.newaxis]
        )
    axes[: len(found)] = found
    return axes
