"""Between the store's record of a model and the objects that compute: learner, feature map, served model."""

from dataclasses import fields, replace
from typing import Any, cast

import numpy as np

from ridgestream.pipeline.features import FeatureMap
from ridgestream.pipeline.learners.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.learners.online_state import OnlineParameters, OnlineState
from ridgestream.pipeline.model import Model
from ridgestream.pipeline.uncertainty import Uncertainty
from ridgestream.stores.errors import ModelError
from ridgestream.stores.models import Arrays, ModelRecord

PUBLISHED = "coefficients"
_COUNTERS = ("rows_seen", "weight_seen", "penalty", "swaps")


def learner_of(record: ModelRecord) -> OnlineLSSVM:
    """Return a learner that goes on from the record's state; raise ModelError if its arrays are not a state."""
    return OnlineLSSVM.from_state(state_of(record))


def state_of(record: ModelRecord) -> OnlineState:
    """Return the learner's state in a record."""
    parameters = OnlineParameters.from_dict(record.parameters["learner"])
    values: dict[str, Any] = {"parameters": parameters}
    for item in fields(OnlineState):
        if item.name in _COUNTERS:
            values[item.name] = record.counters[item.name]
        elif item.name != "parameters":
            if item.name not in record.arrays:
                raise ModelError(f"the model {record.name!r} lacks the array {item.name}: its record is damaged")
            values[item.name] = record.arrays[item.name]
    return OnlineState(**values)


def with_learner(record: ModelRecord, learner: OnlineLSSVM) -> ModelRecord:
    """Return the record with the learner's state and its published coefficients."""
    state = learner.state()
    arrays = {f.name: getattr(state, f.name) for f in fields(state) if f.name not in (*_COUNTERS, "parameters")}
    arrays[PUBLISHED] = np.ascontiguousarray(learner.coefficients())
    counters = {name: getattr(state, name) for name in _COUNTERS}
    return replace(record, arrays=cast("Arrays", arrays), counters=counters)


def model_of(record: ModelRecord, *, with_uncertainty: bool = False) -> Model:
    """Return the served model of a record, with what error bars need if asked for; O(n_basis³) then."""
    state = state_of(record)
    coefficients = cast("np.ndarray[tuple[int, int], np.dtype[np.float64]]", record.arrays[PUBLISHED])
    feature_map = FeatureMap.from_dict(record.encoding)
    uncertainty = Uncertainty.of(state) if with_uncertainty else None
    return Model(state.parameters.kernel, state.centre, state.basis_vectors, coefficients, feature_map, uncertainty)
