"""Named models in a store: parameters, learned segments, state, and history of nights.

A model is a group of float64 and int64 arrays with a JSON record. It contains no code, so reading an untrusted model
executes nothing.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ridgestream.stores.errors.exceptions import ModelError, NewerFormat, StoreError
from ridgestream.stores.errors.translation import read_errors, store_errors
from ridgestream.stores.repository.store_format import (
    MODELS,
    arrays_path,
    check_listed,
    check_models_listed,
    list_hashes,
)
from ridgestream.stores.schema.field_types import check_types, strictly_typed
from ridgestream.stores.schema.record_hash import hash_arrays, hash_plain
from ridgestream.stores.segments.checked_array import create_array, read_array, write_changed_rows
from ridgestream.stores.segments.size_limits import check_metadata
from ridgestream.stores.segments.text_array import read_lines, write_lines

if TYPE_CHECKING:
    import zarr

MODEL_FORMAT_VERSION = 5
"""The version of the model format. Newer models are refused; older ones are read.

Version 2 adds `refitted` and `regularization` to a night, which may be a refit only, the arrays of a refit, and
numerics to the counters; version 3 numbers the nights, and adds excluded segments, held and rolled-back nights, and the
report of the last run; version 4 adds the arrays of a learned metric and of the moments of targets, and keeps nights
and learned segments in chunks, since they grow with the store; version 5 adds the drift of columns, the arrays that
calibrate a model, the coverage of a night and the gain of its refit, the ranges of the learned rows, the rules of
columns to the parameters, and to the encoding time stamps as circles, scales that are not fixed yet, and plain
indicators, and the cells of local experts.
"""

_RENAMED = {"drift": "rounding_error", "largest_drift": "largest_rounding_error"}
"""Counters that earlier releases called otherwise, and their names."""

LISTS = ("history", "learned")
"""The parts of a record that grow with the store; in attributes, part of every snapshot, up to format version 3."""

CONFUSION = "confusion"
"""The array of a multi-class model with the confusion matrix of its last evaluation, (n_classes, n_classes)."""

TARGET_MOMENTS = "target_moments"
"""The array with the weight, mean and squares of the learned targets, or of an indicator of each class, (3, n)."""

LEARNED_RANGES = "learned_ranges"
"""The array with the smallest and the largest value of each numeric column in the rows learned, (2, n_numeric)."""

CELLS, REFIT_CELLS = "cells", "refit_cells"
"""The arrays of a model of local experts with the state of a cell in each row, and with that of its refit: a row that
has not changed costs a commit nothing.
"""

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
"""What a model's name is made of."""

_ROWS_A_CHUNK = 1024
_A_LINE = 1000
"""Segments learned in a line of text."""

Arrays = dict[str, npt.NDArray[np.float64] | npt.NDArray[np.int64]]


@strictly_typed
@dataclass(frozen=True)
class Night:
    """One run that trained or refitted the model."""

    finished_at: str
    """When it was committed, ISO 8601 with the offset from UTC."""
    partitions: tuple[str, ...]
    """The partitions learned, in order."""
    rows: int
    """Their number of rows."""
    rows_seen: int
    """Number of rows learned so far."""
    n_basis: int
    """The size of the dictionary at that time."""
    progressive_error: float | None
    """The error on these rows, each predicted before it was learned: a misclassified fraction, or a mean square; None
    for a refit only.
    """
    test_error: float | None
    """The fraction of test rows misclassified; None without a test set and in regression."""
    test_mse: float | None
    """The mean squared error on the test rows in squared target units; None without a test set, in classification."""
    seconds: float
    """Duration of the training, including the refit."""
    refitted: bool = False
    """Whether the published coefficients were those of a refit."""
    progressive_mse_of: dict[str, float] | None = None
    """With several targets, the progressive error of each."""
    test_mse_of: dict[str, float] | None = None
    """With several targets, the mean squared error on the test rows of each."""
    regularization: float | None = None
    """λ per row, for all rows so far; None in records of format version 1."""
    number: int = 0
    """Its number among all nights of a model of this name, from 1; 0 in records of format versions 1 and 2."""
    progressive_errors: tuple[float | None, ...] | None = None
    """The progressive error of each partition, None for one without a weighted row; None if no partition has one."""
    event: str | None = None
    """What it was, if not a training: "rollback to 2"."""
    segments: tuple[int, ...] | None = None
    """The segments of the partitions; None in records of format versions 1 and 2."""
    held: bool | None = None
    """Whether the model was held back because it was worse on the test rows than the served one."""
    trivial_error: float | None = None
    """The error on the test rows of the constant that fits the learned rows best, the mean or the largest class, as
    `test_error` or `test_mse`.
    """
    trivial_mse_of: dict[str, float] | None = None
    """With several targets, the constants' mean squared error on the test rows of each."""
    progressive_trivial_error: float | None = None
    """That constant's error on the rows of this night, as `progressive_error`."""
    progressive_trivial_mse_of: dict[str, float] | None = None
    """With several targets, the constants' mean squared error on the rows of this night of each."""
    no_better_in: tuple[str, ...] | None = None
    """The targets in which the model is no better than the constant on the test rows, or else on those of this night;
    None without either error.
    """
    last_value_error: float | None = None
    """Where rows are ordered in time, the error on the test rows of the target of the row before."""
    progressive_last_value_error: float | None = None
    """The same on the rows of this night."""
    evaluated_at: str | None = None
    """When the errors on the test rows were made up for, since the run could not find them; None otherwise."""
    drift: dict[str, dict[str, list[str]]] | None = None
    """What segments are news of: by number, the columns whose drift began, settled or ended with them."""
    coverage: float | None = None
    """The share of these rows that the model before covered by its intervals of the level 0.9, the mean over the
    targets.
    """
    refit_gain: float | None = None
    """By which share a refit lowered the squared error on rows left out; None where none was tried."""


@strictly_typed
@dataclass(frozen=True)
class ModelRecord:
    """A model as stored."""

    name: str
    """Its name."""
    parameters: dict[str, Any]
    """Its configuration: method, kernel, sizes, thresholds, scaling."""
    encoding: dict[str, Any]
    """The mapping of raw columns to features, frozen at its first training."""
    learned: tuple[int, ...] = ()
    """The segments of the partitions learned, in the order of learning."""
    data_snapshot: str = ""
    """The snapshot of the store with the rows that it was last trained on."""
    counters: dict[str, float] = field(default_factory=dict)
    """The scalars of the state."""
    history: tuple[Night, ...] = ()
    """The nights, oldest first."""
    excluded: tuple[int, ...] = ()
    """Segments not to be learned, because the model was rolled back to before them."""
    scaled_by: tuple[int, ...] = ()
    """The segments that determined the standardization; empty in records of format versions 1 and 2."""
    serves: int = 0
    """The night whose model is served instead of this one; 0 for this one."""
    drift: dict[str, Any] = field(default_factory=dict)
    """The course of the columns that have drifted, and the columns that are exempt."""
    run: dict[str, Any] = field(default_factory=dict)
    """The report of the run that made the last night; that of an earlier one is in that night's commit."""
    arrays: Arrays = field(default_factory=dict, repr=False)
    """The state, and the published coefficients."""

    @property
    def parameters_hash(self) -> str:
        """A hash of the parameters."""
        return hashlib.sha256(json.dumps(self.parameters, sort_keys=True).encode()).hexdigest()


NIGHT = "night."
"""Prefix of the tags of nights, not allowed in tags of users."""


def night_tag(model: str, number: int) -> str:
    """Return the tag of a night's commit."""
    return f"{NIGHT}{model}.{number:04d}"


def check_model_name(name: str) -> str:
    """Return the name; raises ModelError unless it consists of letters, digits and `_.-`, 64 at most."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise ModelError(f"a model's name consists of letters, digits, '_', '.' and '-', 64 at most; {name!r} does not")
    return name


def list_models(root: "zarr.Group") -> tuple[str, ...]:
    """Return the names of the models in a snapshot, sorted; raises StoreError if they cannot be listed."""
    with read_errors("the store's list of models"):
        check_metadata(root.store, MODELS, members=True)
        names = tuple(sorted(cast("zarr.Group", root[MODELS]).group_keys())) if MODELS in root else ()
        check_models_listed(root, names)
        return names


def read_model(root: "zarr.Group", name: str, *, with_arrays: bool = True) -> ModelRecord | None:
    """Return the model of that name, None if there is none; raises NewerFormat if a newer release wrote it."""
    path = f"{MODELS}/{check_model_name(name)}"
    with read_errors(f"the model {name!r}"):
        check_metadata(root.store, path, members=with_arrays or LISTS)
        if path not in root:
            check_listed(root, path, None)
            return None
        group = cast("zarr.Group", root[path])
        plain = cast("dict[str, Any]", group.attrs.asdict())
        if LISTS[0] in group:
            learned = [number for line in read_lines(group, "learned") for number in line]
            plain |= {"history": read_lines(group, "history"), "learned": learned}
        check_listed(root, path, hash_plain(plain))
        version = plain.pop("format_version", 0)
        if version > MODEL_FORMAT_VERSION:
            raise NewerFormat(
                f"the model {name!r} has format version {version}; this release reads up to {MODEL_FORMAT_VERSION}: "
                "install a newer ridgestream"
            )
        return _record(plain, _read_arrays(root, path) if with_arrays else {})


def _read_arrays(root: "zarr.Group", path: str) -> dict[str, npt.NDArray[Any]]:
    group = cast("zarr.Group", root[path])
    arrays = {key: read_array(array) for key, array in group.arrays() if key not in LISTS}
    check_listed(root, arrays_path(path), hash_arrays(arrays))
    return arrays


def _record(plain: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> ModelRecord:
    parameters_hash = plain.pop("parameters_hash")
    nights = tuple(Night(**_with_tuples(night)) for night in plain.pop("history"))
    learned = tuple(plain.pop("learned"))
    plain["counters"] = {_RENAMED.get(name, name): value for name, value in plain.get("counters", {}).items()}
    record = ModelRecord(**_with_tuples(plain), learned=learned, history=nights, arrays=cast("Arrays", arrays))
    check_types(record)
    _check_parameters(record.parameters)
    if record.parameters_hash != parameters_hash:
        raise ValueError("its parameters do not match their hash")
    return record


def _check_parameters(parameters: dict[str, Any]) -> None:
    """Raise TypeError if a parameter common to all models has another type than every release has written."""
    kinds = {"method": str, "kernel": dict, "learner": dict, "scaling_rows": int | None}
    for name, kind in kinds.items():
        if name in parameters and not isinstance(parameters[name], kind):
            raise TypeError(f"its parameter {name} is {parameters[name]!r:.100}")


def _with_tuples(plain: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}


def require_model(root: "zarr.Group", name: str, *, with_arrays: bool = True) -> ModelRecord:
    """Return the model of that name; raises ModelError, with the existing names, if there is none."""
    record = read_model(root, name, with_arrays=with_arrays)
    if record is None:
        names = ", ".join(list_models(root)) or "none"
        raise ModelError(f"the store has no model {name!r}; its models: {names}")
    return record


def write_model(root: "zarr.Group", record: ModelRecord) -> None:
    """Write the model, replacing the one of its name, within a session; only the end of what grows is written."""
    plain = {item.name: getattr(record, item.name) for item in fields(record) if item.name != "arrays"}
    plain["history"] = [_without_none(vars(night)) for night in record.history]
    plain |= {"format_version": MODEL_FORMAT_VERSION, "parameters_hash": record.parameters_hash}
    path = f"{MODELS}/{check_model_name(record.name)}"
    with store_errors(f"the model {record.name!r}"):
        list_hashes(root, {path: hash_plain(plain), arrays_path(path): hash_arrays(record.arrays)})
        group = _emptied_group(root, path, record.arrays)
        learned = plain.pop("learned")
        write_lines(group, "history", plain.pop("history"))
        write_lines(group, "learned", (learned[i : i + _A_LINE] for i in range(0, len(learned), _A_LINE)))
        group.attrs.put(json.loads(json.dumps(plain)))
        for key, array in record.arrays.items():
            if key not in group:
                create_array(group, key, array.shape, str(array.dtype), rows_a_chunk(key))[...] = array
            else:
                write_changed_rows(group, key, array)


def rows_a_chunk(key: str) -> int:
    """Return the number of rows of an array in one chunk."""
    return 1 if key in (CELLS, REFIT_CELLS) else _ROWS_A_CHUNK


def _emptied_group(root: "zarr.Group", path: str, arrays: Arrays) -> "zarr.Group":
    """Return the group of a model with its LISTS, if it has them, and with cells if these have the same shape."""
    if not all(f"{path}/{name}" in root for name in LISTS):
        return root.create_group(path, overwrite=True)
    group = cast("zarr.Group", root[path])
    for key, array in [*group.arrays()]:
        keeps_shape = key in (CELLS, REFIT_CELLS) and key in arrays and array.shape == arrays[key].shape
        if key not in LISTS and not keeps_shape:
            del group[key]
    return group


def _without_none(night: dict[str, Any]) -> dict[str, Any]:
    """Return a night without optional fields that are None, so that older releases can read it."""
    optional = {item.name for item in fields(Night) if item.default is None}
    return {name: value for name, value in night.items() if value is not None or name not in optional}


def next_night_number(record: ModelRecord | None) -> int:
    """Return the number of a model's next night; numbering continues when a model is trained from scratch."""
    return 1 + max((night.number for night in record.history), default=0) if record else 1


def with_history(record: ModelRecord, previous: ModelRecord) -> ModelRecord:
    """Return a model trained from scratch, with the history and exclusions of the previous one of its name."""
    return replace(record, history=previous.history, excluded=previous.excluded)


def check_not_overtaken(before: ModelRecord | None, now: ModelRecord | None, location: str) -> None:
    """Raise StoreError if another writer has trained the model since it was read; object stores have no file lock."""
    if (before and replace(before, arrays={})) != (now and replace(now, arrays={})):
        raise StoreError(f"another writer has trained this model in the store {location} meanwhile; run the job again")


def check_parameters(record: ModelRecord, parameters: Mapping[str, Any]) -> None:
    """Raise ModelError naming each parameter in which the job differs from the stored model."""
    before, now = _flat(record.parameters), _flat(parameters)
    changed = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    if changed:
        differences = "; ".join(f"{key} was {_shown(before.get(key))}, is {_shown(now.get(key))}" for key in changed)
        raise ModelError(
            f"the model {record.name!r} was trained with other parameters: {differences}; give the model another name, "
            "or train it from scratch with --new-model"
        )


def _flat(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in parameters.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _shown(value: object) -> str:
    return "none" if value is None else repr(value)
