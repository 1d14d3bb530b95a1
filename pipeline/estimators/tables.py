"""Tables and arrays as rows: numbers, booleans and time stamps, and codes of categories, by the columns' own types."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import _check_n_features, check_array, validate_data

from ridgestream.pipeline.base.array_checks import check_finite
from ridgestream.pipeline.base.errors import InputError
from ridgestream.stores.schema.column_types import BOOLEAN, CATEGORICAL, LARGEST_INTEGER, NUMERIC, TIMESTAMP
from ridgestream.stores.schema.schema import Feature

_NUMBERS = [np.float64, np.float32]
_OBJECTS = {str: nw.String, bool: nw.Boolean, float: nw.Float64, int: nw.Float64, datetime: nw.Datetime}
"""The type of a column of Python objects of each kind, as a store would give it."""
_KINDS = "numbers, booleans, time stamps or text"
_TEXTS = (nw.String, nw.Categorical, nw.Enum)


@dataclass(frozen=True)
class Table:
    """Features of rows."""

    features: tuple[Feature, ...]
    """The columns, in their order."""
    numeric: npt.NDArray[np.floating]
    """Numbers, booleans and seconds since 1970, (rows, n_numeric), float32 or float64; NaN for a missing value.

    C-contiguous, since sums of rows have other bits in another layout.
    """
    codes: npt.NDArray[np.int32]
    """Categories by their place in `categories`, (rows, n_categorical); −1 for a missing value."""
    categories: tuple[tuple[str, ...], ...]
    """The values of each categorical column, in the order of their first rows."""
    dtype: np.dtype[np.floating]
    """In which predictions of these rows are returned: float32 if the rows are, else float64."""


def read_table(estimator: Any, X: Any, known: Sequence[Feature] | None, *, missing: bool) -> Table:
    """Return the features of an array, or of a pandas, polars or Arrow table.

    `known` are the columns that the estimator was fitted to, None to begin with these. Raises ValueError, as
    scikit-learn does, for other columns, and for values that are not finite, or missing unless `missing` says so.
    """
    is_frame, names = nw.dependencies.is_into_dataframe(X), None
    if is_frame:
        _check_names(X)
        validate_data(estimator, X=X, reset=known is None, skip_check_array=True)
        frame = nw.from_native(X, eager_only=True)
        if not len(frame):
            raise InputError(f"Found array with 0 sample(s) (shape={frame.shape}) while a minimum of 1 is required.")
        frame = frame.with_columns(*(_typed(c) for c in frame.iter_columns() if c.dtype == nw.Object))
        for column in frame.iter_columns():
            if column.dtype.is_integer():
                _check_exact(f"column {column.name!r} has", column.min(), column.max())
        if known or not all(_kind_of(column) == NUMERIC for column in frame.iter_columns()):
            return _of_frame(estimator, frame, known, missing=missing)
        X, names = frame.to_numpy(), frame.columns
    elif isinstance(X, np.ndarray) and X.dtype.kind in "iu" and X.size:
        _check_exact("X has", X.min(), X.max())
    array = _as_numbers(estimator, X, names, missing=missing)
    if not is_frame:
        validate_data(estimator, X=X, reset=known is None, skip_check_array=True)
    return _of_array(estimator, array, known)


def _check_exact(subject: str, *extremes: Any) -> None:
    """Raise InputError for whole numbers, the least and the largest, that float64 does not hold exactly."""
    far = [value for value in extremes if value is not None and abs(int(value)) > LARGEST_INTEGER]
    if far:
        raise InputError(
            f"{subject} the whole number {far[0]}; beyond 2^53 numbers are not exact: leave identifiers out, or "
            "subtract what they have in common"
        )


def in_order(X: Any, known: Sequence[Feature]) -> Any:
    """Return a table with its columns in the order of the features, if it has these; anything else as it is."""
    names = [feature.name for feature in known]
    if not nw.dependencies.is_into_dataframe(X):
        return X
    frame = nw.from_native(X, eager_only=True)
    return frame.select(names).to_native() if sorted(frame.columns) == sorted(names) else X


def _as_numbers(
    estimator: Any, values: Any, names: Sequence[str] | None = None, *, missing: bool
) -> npt.NDArray[np.floating]:
    """Return values as numbers, as scikit-learn checks them; its refusals also say where, and what helps here."""
    finite: Any = "allow-nan" if missing else True
    try:
        array: npt.NDArray[np.floating] = check_array(
            values, dtype=_NUMBERS, order="C", ensure_all_finite=finite, estimator=estimator, input_name="X"
        )
    except ValueError as error:
        if "contains NaN" in str(error):
            raise InputError(
                f"Input X contains NaN{_place_of_nan(values, names)}: fill in the values that are missing, or give "
                'missing="impute"'
            ) from error
        if "could not convert string" in str(error):
            raise InputError(
                f"{error}: an array holds numbers alone; give a table, whose columns may be text"
            ) from error
        raise
    return array


def _place_of_nan(values: Any, names: Sequence[str] | None) -> str:
    """Return the row and the column of the first missing value."""
    row, column = np.argwhere(np.isnan(np.asarray(values, np.float64)))[0].tolist()
    return f" in row {row} of column {names[column]!r}" if names else f" in row {row} of column {column}"


def _check_names(frame: Any) -> None:
    """Raise InputError for columns that share a name, or have names of several levels."""
    names = list(frame.column_names if hasattr(frame, "column_names") else frame.columns)
    levels = next((name for name in names if isinstance(name, tuple)), None)
    if levels is not None:
        raise InputError(f"X has columns with names of several levels, such as {levels!r}: give each column one name")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"X has several columns with the name {repeated[0]!r}: rename them, or keep one")


def _of_array(estimator: Any, array: npt.NDArray[np.floating], known: Sequence[Feature] | None) -> Table:
    if known is not None and any(feature.kind == CATEGORICAL for feature in known):
        raise InputError("X must be a table: columns of the rows learned are categories, which an array does not hold")
    _check_n_features(estimator, array, reset=known is None)
    _check_size(array)
    names = getattr(estimator, "feature_names_in_", [f"x{number}" for number in range(array.shape[1])])
    features = tuple(known or (Feature(str(name), NUMERIC) for name in names))
    return Table(features, array, np.empty((len(array), 0), np.int32), (), array.dtype)


def _of_frame(estimator: Any, frame: Any, known: Sequence[Feature] | None, *, missing: bool) -> Table:
    features = tuple(known or (Feature(column.name, _kind_of(column)) for column in frame.iter_columns()))
    columns = [*zip(features, frame.iter_columns(), strict=True)]
    numbers = [_numbers_of(feature, column) for feature, column in columns if feature.kind != CATEGORICAL]
    is_single = bool(numbers) and all(column.dtype == np.float32 for column in numbers)
    numeric = np.empty((len(frame), len(numbers)), np.float32 if is_single else np.float64)
    for position, column in enumerate(numbers):
        numeric[:, position] = column
    if numbers:
        names = [feature.name for feature, _ in columns if feature.kind != CATEGORICAL]
        _as_numbers(estimator, numeric, names, missing=missing)
    _check_size(numeric)
    encoded = [
        _codes_of(feature, column, missing=missing) for feature, column in columns if feature.kind == CATEGORICAL
    ]
    codes = np.column_stack([np.empty((len(frame), 0), np.int32), *(codes for codes, _ in encoded)])
    return Table(features, numeric, codes, tuple(table for _, table in encoded), numeric.dtype)


def _check_size(numeric: npt.NDArray[np.floating]) -> None:
    if numeric.dtype == np.float64:  # float32 cannot hold a value that is too large
        present = np.where(np.isnan(numeric), 0.0, numeric) if np.isnan(numeric).any() else numeric
        check_finite(np.asarray(present, np.float64), "X")


def _kind_of(column: Any) -> str:
    """Return the kind of a column; raises InputError for a type that is none of a feature."""
    dtype = column.dtype
    if dtype == nw.Boolean:
        return BOOLEAN
    if isinstance(dtype, nw.Datetime | nw.Date):
        return TIMESTAMP
    if isinstance(dtype, _TEXTS):
        return CATEGORICAL
    if dtype.is_numeric():
        return NUMERIC
    raise InputError(
        f"column {column.name!r} has the type {dtype}, which no feature has: give {_KINDS}, such as a duration as "
        "its seconds and a period as the time at which it begins, or leave the column out"
    )


def _typed(column: Any) -> Any:
    """Return a column of objects as one of their type; raises InputError for objects that are no feature."""
    pairs = zip(column.is_null().to_list(), column.to_list(), strict=True)
    values = [None if absent else _simple(value) for absent, value in pairs]
    dtypes = {_dtype_of(column.name, value) for value in values if value is not None} or {nw.String}
    if len(dtypes) > 1:
        kinds = sorted({type(value).__name__ for value in values if value is not None})
        raise InputError(f"column {column.name!r} holds values of several kinds, {', '.join(kinds)}: give it one")
    if dtypes == {nw.Boolean} and column.implementation.is_pandas_like():  # its plain booleans have no missing value
        return nw.from_native(column.to_native().astype("boolean"), series_only=True)
    return nw.new_series(column.name, values, dtypes.pop(), backend=column.implementation)


def _simple(value: Any) -> Any:
    """Return a date as the time at which it begins, and a number of NumPy or a decimal as Python's."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time())
    if isinstance(value, np.generic):
        return value.item()
    return float(value) if isinstance(value, Decimal) else value


def _dtype_of(name: str, value: Any) -> Any:
    for kind, dtype in _OBJECTS.items():
        if isinstance(value, kind):
            return dtype
    raise InputError(
        f"column {name!r} holds values of the type {type(value).__name__}: give {_KINDS}, or leave the column out"
    )


def _numbers_of(feature: Feature, column: Any) -> npt.NDArray[np.floating]:
    if column.is_null().all():  # such a column has no type of its own
        return np.full(len(column), np.nan)
    kind = _kind_of(column)
    if (kind == TIMESTAMP) != (feature.kind == TIMESTAMP) or kind == CATEGORICAL:
        raise InputError(f"column {feature.name!r} has the type {column.dtype}; the rows learned had {feature.kind}")
    if kind == TIMESTAMP:
        seconds = column.dt.timestamp("us").cast(nw.Float64).to_numpy() / 1e6
        return np.where(column.is_null().to_numpy(), np.nan, seconds)
    if feature.kind == BOOLEAN and kind != BOOLEAN and not (column.is_in([0, 1]) | column.is_null()).all():
        raise InputError(f"column {feature.name!r} was boolean in the rows learned, and has other values than 0 and 1")
    kept = nw.Float32 if column.dtype == nw.Float32 else nw.Float64
    return np.asarray(column.cast(kept).to_numpy(), np.float32 if kept == nw.Float32 else np.float64)


def _codes_of(feature: Feature, column: Any, *, missing: bool) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
    """Return the codes of a column's values, and the values in the order of their first rows."""
    absent = column.is_null().to_numpy()
    if absent.any() and not missing:
        row = int(np.argmax(absent))
        raise InputError(f'column {feature.name!r} lacks its value in row {row}: fill it in, or give missing="impute"')
    texts = np.array([str(value) for value in column.to_list()], dtype=np.str_)
    values, first, inverse = np.unique(texts[~absent], return_index=True, return_inverse=True)
    order = np.argsort(first)
    codes = np.full(len(texts), -1, np.int32)
    codes[~absent] = np.argsort(order)[inverse]
    return codes, tuple(values[order].tolist())
