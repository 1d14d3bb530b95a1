"""Between the store's record of a model and the objects that compute: learner, feature map, served model."""

from dataclasses import asdict, fields, replace
from typing import Any, cast

import numpy as np

from ridgestream.pipeline.arrays import Floats
from ridgestream.pipeline.block_statistics import BlockStatistics
from ridgestream.pipeline.features import FeatureMap
from ridgestream.pipeline.learners.numerics import Numerics
from ridgestream.pipeline.learners.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.learners.online_state import OnlineParameters, OnlineState
from ridgestream.pipeline.model import Model
from ridgestream.pipeline.uncertainty import Uncertainty
from ridgestream.stores.errors import ModelError
from ridgestream.stores.models import Arrays, ModelRecord

PUBLISHED = "coefficients"
_REFIT = {"products": "refit_products", "rhs": "refit_rhs", "target_square": "refit_target_square"}
_REFIT_COUNTERS = {"weight": "refit_weight", "rows": "refit_rows"}
_COUNTERS = ("rows_seen", "weight_seen", "penalty", "swaps")
_NO_ARRAYS = (*_COUNTERS, "parameters", "numerics")


def learner_of(record: ModelRecord) -> OnlineLSSVM:
    """Return a learner that goes on from the record's state; raise ModelError if its arrays are not a state."""
    return OnlineLSSVM.from_state(state_of(record))


def state_of(record: ModelRecord) -> OnlineState:
    """Return the learner's state in a record."""
    parameters = OnlineParameters.from_dict(record.parameters["learner"])
    numerics = {f.name: record.counters[f.name] for f in fields(Numerics) if f.name in record.counters}
    values: dict[str, Any] = {"parameters": parameters, "numerics": Numerics(**cast("dict[str, Any]", numerics))}
    for item in fields(OnlineState):
        if item.name in _COUNTERS:
            values[item.name] = record.counters[item.name]
        elif item.name not in _NO_ARRAYS:
            if item.name not in record.arrays:
                raise ModelError(f"the model {record.name!r} lacks the array {item.name}: its record is damaged")
            values[item.name] = record.arrays[item.name]
    return OnlineState(**values)


def with_learner(record: ModelRecord, learner: OnlineLSSVM) -> ModelRecord:
    """Return the record with the learner's state and its published coefficients."""
    state = learner.state()
    arrays = {f.name: getattr(state, f.name) for f in fields(state) if f.name not in _NO_ARRAYS}
    arrays[PUBLISHED] = np.ascontiguousarray(learner.coefficients())
    counters = {name: getattr(state, name) for name in _COUNTERS} | asdict(state.numerics)
    return replace(record, arrays=cast("Arrays", arrays), counters=counters)


def with_refit(record: ModelRecord, sums: BlockStatistics, coefficients: Floats) -> ModelRecord:
    """Return the record with other published coefficients and the sums that they come from; learning drops both.

    The learner's state stays as it is.
    """
    arrays = {key: getattr(sums, name) for name, key in _REFIT.items()}
    arrays[PUBLISHED] = np.ascontiguousarray(coefficients)
    counters = {key: getattr(sums, name) for name, key in _REFIT_COUNTERS.items()}
    return replace(record, arrays={**record.arrays, **arrays}, counters={**record.counters, **counters})


def is_refitted(record: ModelRecord) -> bool:
    """Tell whether the published coefficients are those of a refit."""
    return all(key in record.arrays for key in _REFIT.values())


def refit_of(record: ModelRecord) -> BlockStatistics | None:
    """Return the sums of the refit that the published coefficients come from, None if there was none."""
    if not is_refitted(record):
        return None
    arrays: dict[str, Any] = {name: record.arrays[key] for name, key in _REFIT.items()}
    counters: dict[str, Any] = {name: record.counters[key] for name, key in _REFIT_COUNTERS.items()}
    return BlockStatistics(**arrays, **counters)


def model_of(record: ModelRecord, *, with_uncertainty: bool = False) -> Model:
    """Return the served model of a record, with what error bars need if asked for; O(n_basis³) then."""
    state = state_of(record)
    coefficients = cast("np.ndarray[tuple[int, int], np.dtype[np.float64]]", record.arrays[PUBLISHED])
    feature_map = FeatureMap.from_dict(record.encoding)
    uncertainty = Uncertainty.of(state, refit_of(record)) if with_uncertainty else None
    return Model(state.parameters.kernel, state.centre, state.basis_vectors, coefficients, feature_map, uncertainty)
