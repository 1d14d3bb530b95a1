"""Requests of estimators: their parameters as the settings that a job file would give."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.policies import ERROR, EXTEND, IGNORE
from ridgestream.pipeline.base.settings import settings_of
from ridgestream.pipeline.batch.registry import METHODS, check_options, section_of
from ridgestream.pipeline.batch.shared_settings import MethodSettings, SharedRegularizations, own_settings
from ridgestream.pipeline.features.class_weights import ClassWeight
from ridgestream.pipeline.kernels import KERNELS, Kernel, Polynomial, check_kernel, has_gamma, make_kernel
from ridgestream.pipeline.metric.settings import STANDARDIZED, MetricRequest, MetricSettings
from ridgestream.pipeline.training.pilot import bounding_values
from ridgestream.pipeline.training.request import (
    EXPERTS,
    GAMMA,
    MAX_BASIS,
    THRESHOLDS,
    BatchRequest,
    OnlineRequest,
)
from ridgestream.stores.schema.class_labels import class_name
from ridgestream.stores.schema.column_rules import COLUMNS, COMMON, RAW, TIMESTAMPS, ColumnRules

AUTO = "auto"
_SCALING_ROWS = 10_000
_METRICS = (STANDARDIZED, "diagonal", "full", AUTO)
_SCALES = {"standardized": COLUMNS, "common": COMMON, None: RAW}
_OF_KERNELS: dict[str, Any] = {"gamma": AUTO, "degree": Polynomial.degree, "coef0": Polynomial.coef0}
"""The parameters of kernels by name, with their defaults."""
_COUNTS: dict[str, tuple[Any, ...]] = {
    "max_basis": (AUTO, None),
    "experts": (AUTO,),
    "stream_rows": (None,),
    "memory_limit": (None,),
}
"""Parameters that are counts, and what else they may be."""
_INSTEAD = {
    "ls-svm": "its dictionary is all rows",
    "kernel-ridge": "its dictionary is all rows",
    "subset-of-regressors": 'its size is method_options={"start_basis": 300}',
    "orols": "it has no penalty",
}
"""What a method has in place of a parameter that it does not take."""


_POLICIES = {"missing": (ERROR, "impute"), "unseen_categories": (ERROR, IGNORE, EXTEND), "refit": (AUTO, True, False)}
"""The words of parameters that are one of several."""


def online_request(parameters: Mapping[str, Any], seed: int) -> OnlineRequest:
    """Return the request of an online estimator with these parameters; raises InputError for one out of bounds."""
    parameters = _checked(parameters)
    values = {name: parameters[name] for name in ("regularization", "max_basis", *sorted(THRESHOLDS))}
    name, kernels = _kernels(parameters)
    if len(kernels) > 1:
        raise InputError("the online learner takes a single gamma, not several")
    is_open = parameters["experts"] == AUTO
    experts = 1 if is_open else parameters["experts"]
    fixed = ({MAX_BASIS} if experts > 1 else set()) | (set() if is_open else THRESHOLDS)
    open_keys = _open(parameters, values) - fixed | ({EXPERTS} if is_open else set())
    bounding = bounding_values(has_cells=experts > 1)
    return OnlineRequest(
        kernel=name,
        kernel_parameters=kernels[0],
        **{key: bounding[key] if value == AUTO else value for key, value in values.items()},
        experts=experts,
        selection=parameters["selection"],
        stream_rows=parameters["stream_rows"],
        **_shared(parameters, open_keys, seed),
    )


def batch_request(parameters: Mapping[str, Any], seed: int) -> BatchRequest:
    """Return the request of a batch estimator with these parameters; raises InputError for one out of bounds."""
    parameters = _checked(parameters)
    method = parameters["method"]
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, it is {method!r}; online ones are OnlineLSSVM…")
    name, kernels = _kernels(parameters)
    if len(kernels) > 1 and not METHODS[method].compares_kernels:
        raise InputError(f"method {method} takes a single gamma, not several")
    taken = {setting.name for setting in settings_of(METHODS[method].settings)} - _own_names(method)
    values = {key: parameters[key] for key in ("regularization", "max_basis")}
    untaken = [key for key, value in values.items() if key not in taken and value != AUTO]
    if untaken:
        raise InputError(f"method {method} takes no {untaken[0]}; {_INSTEAD.get(method, 'leave it out')}")
    open_keys = _open(parameters, {key: value for key, value in values.items() if key in taken})
    open_keys -= {MAX_BASIS} if METHODS[method].chooses_size else set()
    settings = _settings(method, values, _options(parameters["method_options"]), seed)
    uses_efvs = getattr(settings, "start", None) == "efvs"
    return BatchRequest(
        method=method,
        kernel=name,
        kernels=kernels,
        settings=settings,
        others={"efvs": _settings("efvs", {"max_basis": values["max_basis"]}, {}, seed)} if uses_efvs else {},
        **_shared(parameters, open_keys, seed),
    )


def _checked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with NumPy's numbers as plain ones; raises InputError for a word or count that is none."""
    plain = {name: plain_value(value) for name, value in parameters.items()}
    for name, words in _POLICIES.items():
        if name in plain and plain[name] not in words:
            raise InputError(f"{name} must be one of {', '.join(map(repr, words))}, it is {plain[name]!r}")
    for name, words in _COUNTS.items():
        value = plain.get(name, words[0])
        is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if not is_count and value not in words:
            known = " or ".join(["a number from 1 on", *map(repr, words)])
            raise InputError(f"{name} must be {known}, it is {value!r}")
    return plain


def plain_value(value: Any) -> Any:
    """Return a number or an array of NumPy as plain numbers; anything else as it is."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _settings(method: str, values: Mapping[str, Any], options: dict[str, Any], seed: int) -> MethodSettings:
    """Return a method's settings; raises InputError for an option that it does not have, or out of bounds."""
    kind = METHODS[method].settings
    names = check_options(method, options)
    bounding = bounding_values()
    given = {key: bounding[key] if value == AUTO else value for key, value in values.items()}
    several = given.get("regularization")
    if isinstance(several, list | np.ndarray):
        given["regularization"] = tuple(float(value) for value in several)
    if isinstance(given.get("regularization"), tuple) and not issubclass(kind, SharedRegularizations):
        raise InputError(f"method {method} takes a single regularization, not several")
    settings: MethodSettings = kind(
        **{k: v for k, v in {**given, "random_seed": seed, **options}.items() if k in names}
    )
    check_bounds(settings)
    return settings


def _options(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping | None):
        raise InputError(f"method_options maps names of settings to values, it is {given!r}")
    return {name: plain_value(value) for name, value in (given or {}).items()}


def _own_names(method: str) -> set[str]:
    return {setting.name for setting in own_settings(METHODS[method].settings)} | {section_of(method)}


def _shared(parameters: Mapping[str, Any], open_keys: frozenset[str], seed: int) -> dict[str, Any]:
    """Return the fields of requests for the models of all methods."""
    metric, scale, options = parameters["metric"], parameters["scale"], MetricSettings(random_seed=seed)
    if metric not in _METRICS:
        raise InputError(f"metric must be one of {', '.join(_METRICS)}, it is {metric!r}")
    if scale not in _SCALES:
        raise InputError(f"scale must be 'standardized', 'common' or None, it is {scale!r}")
    if parameters["timestamps"] not in (None, *TIMESTAMPS):
        raise InputError(
            f"timestamps must be None, {', '.join(map(repr, TIMESTAMPS))}, it is {parameters['timestamps']!r}"
        )
    return {
        "name": "model",
        "scaling_rows": _SCALING_ROWS,
        "unseen_categories": parameters["unseen_categories"],
        "rules": ColumnRules(scaling=_SCALES[scale], timestamps=parameters["timestamps"]),
        "metric": None if metric == STANDARDIZED else MetricRequest(metric, options),
        "class_weight": _class_weight(parameters.get("class_weight")),
        "chooses": open_keys,
        "pilot_options": options,
    }


def _class_weight(wanted: Any) -> ClassWeight | None:
    if isinstance(wanted, Mapping):
        return {class_name(plain_value(label)): float(weight) for label, weight in wanted.items()}
    if wanted not in (None, "balanced"):
        raise InputError(f'class_weight must be None, "balanced" or a weight for each class, it is {wanted!r}')
    return wanted  # type: ignore[no-any-return]


def _open(parameters: Mapping[str, Any], values: Mapping[str, Any]) -> frozenset[str]:
    """Return the settings that the pilot chooses."""
    kernel = parameters["kernel"]
    is_open = isinstance(kernel, str) and has_gamma(kernel) and parameters["gamma"] == AUTO
    return frozenset({name for name, value in values.items() if value == AUTO} | ({GAMMA} if is_open else set()))


def _kernels(parameters: Mapping[str, Any]) -> tuple[str, tuple[dict[str, float], ...]]:
    """Return the name and the parameters, as far as they are given, of every kernel to compare."""
    kernel: str | Kernel = parameters["kernel"]
    if not isinstance(kernel, str):
        check_kernel(kernel)
        given_twice = [key for key, default in _OF_KERNELS.items() if parameters[key] != default]
        if given_twice:
            raise InputError(f"kernel={kernel!r} has its own parameters: leave out {' and '.join(given_twice)}")
        return kernel.name, (kernel.parameters(),)
    if kernel not in KERNELS:
        raise InputError(f"kernel must be one of {', '.join(KERNELS)} or an object such as RBF(0.5), it is {kernel!r}")
    names = {setting.name for setting in settings_of(KERNELS[kernel])}
    given: dict[str, float] = {name: parameters[name] for name in ("degree", "coef0") if name in names}
    gamma = parameters["gamma"]
    if "gamma" not in names or gamma == AUTO:
        return kernel, (given,)
    kernels = tuple({**given, "gamma": each} for each in (gamma if isinstance(gamma, list | tuple) else (gamma,)))
    for each in kernels:
        make_kernel(kernel, each, n_features=1)
    return kernel, kernels
