"""Array types, and checks of array arguments: the one door for arrays that others pass.

What is accepted gives the same bits as C-contiguous float64 arrays of the same numbers.
"""

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.errors import InputError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

LARGEST_VALUE = 1e100
"""Larger values are treated as damage: float64 sums with their squares would overflow."""

LARGEST_WHOLE = 2**53
"""Up to here, float64 represents every whole number."""


def check_rows(X: npt.ArrayLike, n_features: int | None = None, name: str = "X") -> Floats:
    """Return `X` as C-contiguous float64 of shape (rows, n_features); raises InputError for an invalid entry."""
    rows = as_floats(X, name)
    if rows.ndim != 2:
        raise InputError(f"{name} must have two dimensions (rows, features), it has shape {rows.shape}")
    if n_features is not None and rows.shape[1] != n_features:
        raise InputError(f"{name} must have {n_features} features, it has {rows.shape[1]}")
    check_finite(rows, name)
    return rows


def check_targets(y: npt.ArrayLike, n_rows: int, n_targets: int | None = None, name: str = "y") -> Floats:
    """Return `y` as float64 of shape (rows, n_targets); a vector counts as one target.

    Raises InputError for a wrong number of rows or targets, and naming the first invalid entry.
    """
    targets = as_floats(y, name)
    if targets.ndim == 1:
        targets = targets[:, np.newaxis]
    if targets.ndim != 2 or targets.shape[0] != n_rows:
        raise InputError(
            f"{name} must have one entry or one row for each of the {n_rows} rows, its shape is {targets.shape}"
        )
    if not targets.shape[1]:
        raise InputError(f"{name} must have at least one target, it has none")
    if n_targets is not None and targets.shape[1] != n_targets:
        raise InputError(f"{name} must have {n_targets} targets, it has {targets.shape[1]}")
    check_finite(targets, name)
    return targets


def check_weights(sample_weight: npt.ArrayLike | None, n_rows: int, name: str = "sample_weight") -> Floats:
    """Return the weights as float64 of shape (rows,), ones if None.

    Raises InputError for a wrong number of weights, and naming the first invalid or the most negative entry.
    """
    if sample_weight is None:
        return np.ones(n_rows)
    weights = as_floats(sample_weight, name)
    if weights.shape != (n_rows,):
        raise InputError(f"{name} must have {n_rows} entries, its shape is {weights.shape}")
    check_finite(weights[:, np.newaxis], name)
    if weights.size and weights.min() < 0:
        row = int(np.argmin(weights))
        raise InputError(f"{name} of row {row} is {weights[row]}; weights must be zero or positive")
    return weights


def check_row_numbers(indices: npt.ArrayLike, n_rows: int, name: str = "indices") -> Integers:
    """Return numbers of rows as int64, shape (n,); raises InputError unless each is a whole one, 0 to n_rows − 1."""
    numbers = np.asarray(indices)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise InputError(f"{name} must be a vector of whole numbers, it is of shape {numbers.shape}, {numbers.dtype}")
    outside = np.flatnonzero((numbers < 0) | (numbers >= n_rows))
    if outside.size:
        raise InputError(f"{name} has {numbers[outside[0]]} at {outside[0]}; there are the rows 0 to {n_rows - 1}")
    return numbers.astype(np.int64, copy=False)


def check_point(values: npt.ArrayLike, n_features: int, name: str) -> Floats:
    """Return a point as float64 of shape (n_features,); raises InputError for another shape or an invalid entry."""
    point = as_floats(values, name)
    if point.shape != (n_features,):
        raise InputError(f"{name} must be {n_features} numbers, as the rows have features; its shape is {point.shape}")
    check_finite(point[np.newaxis], name)
    return point


def as_floats(values: npt.ArrayLike, name: str) -> Floats:
    """Return `values` as a C-contiguous float64 array of at least one dimension; raises InputError for other dtypes."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        entry = np.argwhere(np.ma.getmaskarray(values))[0]
        location = ", ".join(f"{axis} {number}" for axis, number in zip(("row", "column"), entry, strict=False))
        raise InputError(f"{name} is masked at {location}: fill it in, or leave its row out")
    if hasattr(values, "toarray"):
        raise InputError(f"{name} must be a dense array, it is a {type(values).__name__}: pass {name}.toarray()")
    try:
        array = np.asarray(values)
        _check_kind(array, name)
        return np.ascontiguousarray(array, dtype=np.float64)
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InputError(f"{name} must hold real numbers, row by row: {error}") from error


def _check_kind(array: npt.NDArray[Any], name: str) -> None:
    """Raise InputError for dtypes and values that NumPy would convert to numbers that were not meant."""
    _check_exact(array, name)
    if array.dtype.kind in "cmMV":
        raise InputError(f"{name} must hold real numbers, it is of type {array.dtype}")
    if array.dtype.kind == "O":
        text = next((value for value in array.flat if isinstance(value, str | bytes)), None)
        if text is not None:
            float(text)
            raise InputError(f"{name} must hold real numbers, it holds the text {text!r}")
    elif array.dtype.kind in "US" and array.size:
        float(array.flat[0])
        raise InputError(f"{name} must hold real numbers, it holds the text {array.flat[0]!r}")


def _check_exact(array: npt.NDArray[Any], name: str) -> None:
    """Raise InputError for a whole number or decimal beyond 2⁵³, which may become another one."""
    exact: list[Any] = []
    if array.dtype.kind == "O":
        exact = [value for value in array.flat if isinstance(value, int | np.integer | Decimal)]
    elif array.dtype.kind in "iu" and array.size:
        exact = [int(array.min()), int(array.max())]
    for value in exact:
        if abs(float(value)) >= LARGEST_WHOLE and abs(value) > LARGEST_WHOLE:
            raise InputError(f"{name} has {value}; beyond 2⁵³ whole numbers and decimals are not exact: pass floats")


def check_finite(values: Floats, name: str) -> None:
    """Raise InputError for the first entry that is NaN, infinite or larger than LARGEST_VALUE.

    Checks minimum and maximum first, which needs no temporary array of the size of `values`; both are NaN if any is.
    """
    if values.size and not (values.min() >= -LARGEST_VALUE and values.max() <= LARGEST_VALUE):
        usable = np.abs(values) <= LARGEST_VALUE
        row, column = (int(i) for i in np.argwhere(~usable)[0])
        raise InputError(
            f"{name} has the value {values[row, column]} at row {row}, column {column}; "
            f"values must be finite and at most {LARGEST_VALUE:g} in size"
        )
