"""Value functions as records: the dictionary, the sums over transitions, and, online, the state of what selects."""

from dataclasses import replace
from typing import Any, cast

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.models.model_record import (
    LSTD,
    PUBLISHED,
    basis_of,
    check_shape,
    state_of,
    with_state,
)
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.policy.policy_state import PolicyState
from ridgestream.pipeline.policy.value_function import LSTDSettings, ValueFunction
from ridgestream.pipeline.sums.temporal_differences import TransitionStatistics
from ridgestream.stores.catalog.models import Arrays, ModelRecord

_SUMS = {"products": "transition_products", "rhs": "transition_rhs"}


def with_values(
    record: ModelRecord, values: ValueFunction, places: Integers, online: OnlineState | None = None
) -> ModelRecord:
    """Return the record with a value function, whose vectors were these transitions, and with what selects."""
    values, sums = values.checked(), values.sums
    if online is not None:
        record = with_state(record, online)
    arrays: dict[str, Any] = {key: getattr(sums, name) for name, key in _SUMS.items()}
    arrays |= {"basis_vectors": values.basis.vectors, "basis_rows": places, "centre": values.basis.centre}
    arrays[PUBLISHED] = np.ascontiguousarray(values.coefficients)
    counters = {"rows_seen": sums.rows, "weight_seen": sums.weight, "ended": sums.ended}
    kernel = values.basis.kernel
    alone = {"kernel": {"name": kernel.name, **kernel.parameters()}, "regularization": values.settings.regularization}
    learner = online.parameters.as_dict() if online else alone
    return replace(
        record,
        parameters=record.parameters | {"learner": learner},
        arrays=record.arrays | cast("Arrays", arrays),
        counters=record.counters | counters,
    )


def values_of(record: ModelRecord) -> ValueFunction:
    """Return the value function of a record; raises ModelError if its arrays do not fit together."""
    basis, (n_basis, n_rewards) = basis_of(record), record.arrays[PUBLISHED].shape
    for name, shape in (("products", (n_basis, n_basis)), ("rhs", (n_basis, n_rewards))):
        check_shape(record, _SUMS[name], shape)
    arrays = {name: cast("Floats", record.arrays[key]) for name, key in _SUMS.items()}
    counters = record.counters
    sums = TransitionStatistics(
        **arrays, weight=counters["weight_seen"], rows=int(counters["rows_seen"]), ended=counters["ended"]
    )
    settings = LSTDSettings(record.parameters[LSTD]["discount"], record.parameters["regularization"])
    return ValueFunction(basis, settings, sums)


def policy_state_of(record: ModelRecord) -> PolicyState:
    """Return the state from which an online value function continues; raises ModelError if it is damaged.

    While the dictionary may change, what selects has seen every transition; afterwards it sees none.
    """
    return PolicyState.of(state_of(record), values_of(record).sums)
