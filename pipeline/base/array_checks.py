"""Array types, and checks of array arguments."""

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.errors import InputError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

LARGEST_VALUE = 1e100
"""Larger values are treated as damage: float64 sums with their squares would overflow."""


def check_rows(X: npt.ArrayLike, n_features: int | None = None, name: str = "X") -> Floats:
    """Return `X` as C-contiguous float64 of shape (rows, n_features); raises InputError for an invalid entry."""
    rows = as_floats(X, name)
    if rows.ndim != 2:
        raise InputError(f"{name} must have two dimensions (rows, features), it has shape {rows.shape}")
    if n_features is not None and rows.shape[1] != n_features:
        raise InputError(f"{name} must have {n_features} features, it has {rows.shape[1]}")
    check_finite(rows, name)
    return rows


def check_targets(y: npt.ArrayLike, n_rows: int, n_targets: int | None = None) -> Floats:
    """Return `y` as float64 of shape (rows, n_targets); a vector counts as one target.

    Raises InputError for a wrong number of rows or targets, and naming the first invalid entry.
    """
    targets = as_floats(y, "y")
    if targets.ndim == 1:
        targets = targets[:, np.newaxis]
    if targets.ndim != 2 or targets.shape[0] != n_rows:
        raise InputError(
            f"y must have one entry or one row for each of the {n_rows} rows, its shape is {targets.shape}"
        )
    if not targets.shape[1]:
        raise InputError("y must have at least one target, it has none")
    if n_targets is not None and targets.shape[1] != n_targets:
        raise InputError(f"y must have {n_targets} targets, it has {targets.shape[1]}")
    check_finite(targets, "y")
    return targets


def check_weights(sample_weight: npt.ArrayLike | None, n_rows: int) -> Floats:
    """Return the weights as float64 of shape (rows,), ones if None.

    Raises InputError for a wrong number of weights, and naming the first invalid or the most negative entry.
    """
    if sample_weight is None:
        return np.ones(n_rows)
    weights = as_floats(sample_weight, "sample_weight")
    if weights.shape != (n_rows,):
        raise InputError(f"sample_weight must have {n_rows} entries, its shape is {weights.shape}")
    check_finite(weights[:, np.newaxis], "sample_weight")
    if weights.size and weights.min() < 0:
        row = int(np.argmin(weights))
        raise InputError(f"sample_weight of row {row} is {weights[row]}; weights must be zero or positive")
    return weights


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
        floats = np.ascontiguousarray(array, dtype=None if array.dtype.kind in "cmM" else np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must hold real numbers, row by row: {error}") from error
    if floats.dtype != np.float64:
        raise InputError(f"{name} must hold real numbers, it is of type {array.dtype}")
    return floats


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
