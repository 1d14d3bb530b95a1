"""Conversion between stored model records and learners, feature maps and served models."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any, cast

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import MemoryRefused, NumericalBreakdown
from ridgestream.pipeline.dataset.feature_map_growth import METRIC, feature_map_of, with_feature_map
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.kernels import make_kernel
from ridgestream.pipeline.models.cell_trials import TRIALS
from ridgestream.pipeline.models.experts_model import ExpertsModel, sharing_noise
from ridgestream.pipeline.models.experts_record import (
    CENTRES,
    experts_of,
    is_local,
    served_experts_of,
    with_experts,
    with_refitted_experts,
)
from ridgestream.pipeline.models.predictor import ExpansionModel, Model
from ridgestream.pipeline.models.uncertainty import Uncertainty
from ridgestream.pipeline.models.value_model import ValueModel
from ridgestream.pipeline.online.diagnostics import Numerics
from ridgestream.pipeline.online.experts.experts_state import ExpertsState
from ridgestream.pipeline.online.experts.local_experts import LocalExperts
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.selection.fit_result import Fitted, Path
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, FoldedStatistics
from ridgestream.stores.catalog.models import REFIT_CELLS, Arrays, ModelRecord
from ridgestream.stores.errors.exceptions import ModelError

Learner = OnlineLSSVM | LocalExperts
"""What learns a stream of rows, and continues from its state."""

PUBLISHED = "coefficients"
ONLINE = "online"
"""The method of models with a learner's state; but for LSTD, all other methods are batch methods."""
LSTD = "lstd"
"""The method of value functions, and the key of its settings."""

_REFIT = {"products": "refit_products", "rhs": "refit_rhs", "target_square": "refit_target_square"}
_REFIT_COUNTERS = {"weight": "refit_weight", "rows": "refit_rows"}
REFIT_REGULARIZATION = "refit_regularization"
"""The counter with the λ per row of a refit."""

_OWN = "own_"
_PATH = ("n_basis", "regularization", "value", "width")
_COUNTERS = ("rows_seen", "weight_seen", "penalty", "swaps")
_NO_ARRAYS = (*_COUNTERS, "parameters", "numerics")


def learner_of(record: ModelRecord) -> Learner:
    """Return a learner that resumes from the record's state; raises ModelError if its arrays are not a valid state."""
    with _damage_errors(record):
        if is_local(record):
            return LocalExperts.from_state(experts_of(record))
        return OnlineLSSVM.from_state(state_of(record))


@contextmanager
def _damage_errors(record: ModelRecord) -> Iterator[None]:
    """Raise ModelError for a damaged record."""
    try:
        yield
    except (ModelError, NumericalBreakdown, MemoryRefused):
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, MemoryError) as error:
        raise ModelError(f"the record of the model {record.name!r} is damaged: {error!s:.300}") from error


def check_complete(record: ModelRecord) -> None:
    """Raise ModelError if a parameter is missing that every release has written."""
    required = {"method", "kernel", "learner", "regularization", "scaling_rows"}
    if missing := sorted(required - record.parameters.keys()):
        raise ModelError(f"the record of the model {record.name!r} is damaged: it lacks {', '.join(missing)}")


def state_of(record: ModelRecord) -> OnlineState:
    """Return the learner's state in a record; raises ModelError if it is not a valid state."""
    with _damage_errors(record):
        state = _state_of(record)
        state.check()
        return state


def _state_of(record: ModelRecord) -> OnlineState:
    parameters = OnlineSettings.from_dict(record.parameters["learner"])
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


def with_learner(record: ModelRecord, learner: Learner) -> ModelRecord:
    """Return the record with the learner's state and its published coefficients."""
    if isinstance(learner, LocalExperts):
        return with_state(record, learner.published_state())
    record = with_state(record, learner.state())
    return replace(record, arrays=record.arrays | {PUBLISHED: np.ascontiguousarray(learner.coefficients())})


def with_state(record: ModelRecord, state: OnlineState | ExpertsState) -> ModelRecord:
    """Return the record with a learner's state only: enough to resume, not to predict."""
    if isinstance(state, ExpertsState):
        return with_experts(replace(record, arrays=_frozen(record)), state)
    arrays = {f.name: getattr(state, f.name) for f in fields(state) if f.name not in _NO_ARRAYS}
    counters = {name: getattr(state, name) for name in _COUNTERS} | asdict(state.numerics)
    return replace(record, arrays=_frozen(record) | cast("Arrays", arrays), counters=counters)


def n_basis_of(record: ModelRecord) -> int:
    """Return the number of basis vectors of a model, in all of its cells."""
    if is_local(record):
        return int(record.counters["n_basis"])
    return len(record.arrays.get("basis_vectors", ()))


def of_cell(record: ModelRecord, state: ExpertsState, cell: int) -> ModelRecord:
    """Return the record that a cell's learner would have alone."""
    alone = with_state(record, state.state_of(cell))
    return replace(alone, arrays=alone.arrays | {PUBLISHED: state.expansion(cell)[1]})


def _frozen(record: ModelRecord) -> Arrays:
    """Return the arrays that stay when all others are replaced: what the first training settled."""
    return {name: array for name, array in record.arrays.items() if name in (METRIC, TRIALS)}


def with_refit(record: ModelRecord, sums: BlockStatistics, coefficients: Floats, regularization: float) -> ModelRecord:
    """Return the record with other published coefficients, their sums and λ, all of which further training removes.

    The learner's state is unchanged.
    """
    arrays = {key: getattr(sums, name) for name, key in _REFIT.items()}
    arrays[PUBLISHED] = np.ascontiguousarray(coefficients)
    counters = {key: getattr(sums, name) for name, key in _REFIT_COUNTERS.items()}
    counters[REFIT_REGULARIZATION] = regularization
    return replace(record, arrays={**record.arrays, **arrays}, counters={**record.counters, **counters})


def is_refitted(record: ModelRecord) -> bool:
    """Return whether the published coefficients are those of a refit."""
    return not is_batch(record) and (_has_sums(record) or REFIT_CELLS in record.arrays)


def _has_sums(record: ModelRecord) -> bool:
    return all(key in record.arrays for key in _REFIT.values())


def refit_of(record: ModelRecord) -> BlockStatistics | None:
    """Return the exact sums from which the published coefficients were computed, None if there are none."""
    if not _has_sums(record):
        return None
    _check_sums(record)
    arrays: dict[str, Any] = {name: record.arrays[key] for name, key in _REFIT.items()}
    counters: dict[str, Any] = {name: record.counters[key] for name, key in _REFIT_COUNTERS.items()}
    return BlockStatistics(**arrays, **counters)


def with_fitted(record: ModelRecord, fitted: Fitted) -> ModelRecord:
    """Return the record with the result of a batch method, replacing its arrays and counters."""
    sums = fitted.sums.total()
    arrays: dict[str, Any] = {key: getattr(sums, name) for name, key in _REFIT.items()}
    arrays |= {
        "basis_vectors": fitted.basis.vectors,
        "basis_rows": fitted.places,
        "centre": fitted.basis.centre,
        PUBLISHED: np.ascontiguousarray(fitted.coefficients),
    }
    if fitted.path is not None:
        arrays |= {f"path_{name}": getattr(fitted.path, name) for name in _PATH}
    arrays |= {f"{_OWN}{name}": array for name, array in fitted.own.items()}
    counters: dict[str, Any] = {key: getattr(sums, name) for name, key in _REFIT_COUNTERS.items()}
    learner_parameters = {
        "kernel": {"name": fitted.basis.kernel.name, **fitted.basis.kernel.parameters()},
        "regularization": fitted.regularization,
        "bias": fitted.basis.constant,
        "criterion": fitted.path.criterion if fitted.path else None,
        "chosen": fitted.path.chosen if fitted.path else None,
    }
    parameters = record.parameters | {"learner": learner_parameters}
    counters |= {"rows_seen": sums.rows, **fitted.notes}
    return replace(record, parameters=parameters, arrays=_frozen(record) | cast("Arrays", arrays), counters=counters)


def fitted_of(record: ModelRecord) -> Fitted:
    """Return the result of a batch method; its sums are those of all rows together.

    Raises ModelError if the record is not one of a batch method.
    """
    with _damage_errors(record):
        return _fitted_of(record)


def _fitted_of(record: ModelRecord) -> Fitted:
    sums, path = _sums_of(record), None
    if record.parameters["learner"]["criterion"] is not None:
        arrays: dict[str, Any] = {name: record.arrays[f"path_{name}"] for name in _PATH}
        path = Path(**arrays, **{name: record.parameters["learner"][name] for name in ("criterion", "chosen")})
    return Fitted(
        basis=basis_of(record),
        places=cast("Integers", record.arrays["basis_rows"]),
        coefficients=cast("Floats", record.arrays[PUBLISHED]),
        regularization=record.parameters["learner"]["regularization"],
        sums=FoldedStatistics((sums,)),
        path=path,
        notes={
            name: record.counters[name] for name in record.counters.keys() - {"rows_seen", *_REFIT_COUNTERS.values()}
        },
        own={name.removeprefix(_OWN): array for name, array in record.arrays.items() if name.startswith(_OWN)},
    )


def _sums_of(record: ModelRecord) -> BlockStatistics:
    """Return the sums of a batch model."""
    sums = refit_of(record)
    if sums is None:
        raise ModelError(f"the model {record.name!r} lacks its sums: its record is damaged")
    return sums


def _check_sums(record: ModelRecord) -> None:
    n_functions, n_targets = record.arrays[PUBLISHED].shape
    shapes = {
        "products": (n_functions, n_functions),
        "rhs": (n_functions, n_targets),
        "target_square": (n_targets,) * 2,
    }
    for name, key in _REFIT.items():
        check_shape(record, key, shapes[name])


def widened(record: ModelRecord, before: FeatureMap, extended: FeatureMap) -> ModelRecord:
    """Return the record with an extended feature map: its basis vectors are zero in the new features."""
    positions, arrays = before.added_features(extended), dict(record.arrays)
    if len(positions) and is_local(record):
        with _damage_errors(record):
            wide = with_experts(record, experts_of(record).widened(positions).published())
            if is_refitted(record):
                wide = with_refitted_experts(wide, served_experts_of(record).widened(positions).published())
            arrays |= wide.arrays
    for name, axis in (("basis_vectors", 1), ("centre", 0)):
        if len(positions) and name in arrays:
            arrays[name] = cast("Floats", np.insert(arrays[name], positions, 0.0, axis=axis))
    return with_feature_map(replace(record, arrays=arrays), extended)


def is_batch(record: ModelRecord) -> bool:
    """Return whether a batch method trained the model."""
    return record.parameters.get("method", ONLINE) not in (ONLINE, LSTD)


def is_policy(record: ModelRecord) -> bool:
    """Return whether the model is the value function of a policy."""
    return bool(record.parameters.get("method") == LSTD)


def model_of(record: ModelRecord, *, with_uncertainty: bool = False) -> Model:
    """Return the served model of a record, optionally with the data for error bars, which takes O(n_basis³).

    Raises ModelError if the parts of the record are inconsistent.
    """
    with _damage_errors(record):
        feature_map = feature_map_of(record)
        if is_local(record):
            return _experts_model_of(record, feature_map, with_uncertainty=with_uncertainty)
        model = expansion_of(record, feature_map, with_uncertainty=with_uncertainty)
        return ValueModel.of(model, record.parameters[LSTD]["discount"]) if is_policy(record) else model


def expansion_of(
    record: ModelRecord, feature_map: FeatureMap | None = None, *, with_uncertainty: bool = False
) -> ExpansionModel:
    """Return the model of a record with one dictionary; its feature map is read from the record if it is not given."""
    feature_map = feature_map or feature_map_of(record)
    basis, coefficients = basis_of(record), cast("Floats", record.arrays[PUBLISHED])
    n_features = feature_map.n_features
    shapes = {"basis_vectors": (len(basis.vectors), n_features), "centre": (n_features,)}
    shapes[PUBLISHED] = (basis.n_functions, feature_map.target.n_outputs)
    for name, shape in shapes.items():
        check_shape(record, name, shape)
    return ExpansionModel(
        basis, coefficients, feature_map, _uncertainty_of(record, basis) if with_uncertainty else None
    )


def _experts_model_of(record: ModelRecord, feature_map: FeatureMap, *, with_uncertainty: bool) -> ExpertsModel:
    state = served_experts_of(record)
    check_shape(record, CENTRES, (len(state.cells), feature_map.n_features))
    experts = [
        expansion_of(of_cell(record, state, cell), feature_map, with_uncertainty=with_uncertainty)
        for cell in state.answering.tolist()
    ]
    return ExpertsModel(state.cells, state.answering, sharing_noise(experts), feature_map)


def check_shape(record: ModelRecord, name: str, shape: tuple[int, ...]) -> None:
    """Raise ModelError unless an array of the record is finite float64 of this shape."""
    array = record.arrays[name]
    if array.shape != shape or array.dtype != np.float64 or not np.isfinite(array).all():
        raise ModelError(
            f"the record of the model {record.name!r} is damaged: {name} should be finite float64 of the shape "
            f"{shape}, it is {array.dtype} of the shape {array.shape}"
        )


def basis_of(record: ModelRecord) -> Basis:
    """Return the basis of a model; raises ModelError if its record lacks a part of it."""
    learner = record.parameters["learner"]
    kernel = dict(learner["kernel"])
    for name in ("basis_vectors", "centre", PUBLISHED):
        if name not in record.arrays:
            raise ModelError(f"the model {record.name!r} lacks the array {name}: its record is damaged")
    vectors, centre = cast("Floats", record.arrays["basis_vectors"]), cast("Floats", record.arrays["centre"])
    return Basis(make_kernel(kernel.pop("name"), kernel, 1), vectors, centre, constant=learner.get("bias", False))


def bases_of(record: ModelRecord) -> Iterator[Basis]:
    """Yield the basis of a model, or of each of its cells."""
    if not is_local(record):
        yield basis_of(record)
        return
    state = served_experts_of(record)
    for cell in state.answering.tolist():
        yield basis_of(of_cell(record, state, cell))


def _uncertainty_of(record: ModelRecord, basis: Basis) -> Uncertainty:
    if is_policy(record):
        raise ModelError(f"the model {record.name!r} is a value function, which has no error bars: ask for none")
    if not is_batch(record):
        return Uncertainty.of(state_of(record), refit_of(record), record.counters.get(REFIT_REGULARIZATION))
    regularization = record.parameters["learner"]["regularization"]
    return Uncertainty.from_sums(_sums_of(record), basis.penalty(), len(basis.vectors), regularization)
