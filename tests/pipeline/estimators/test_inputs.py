"""What the estimators take as rows and labels: in any layout the same bits, and refusals that name the remedy."""

import inspect
import warnings
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.exceptions import NotFittedError

from ridgestream import (
    RBF,
    InputError,
    InputWarning,
    OnlineLSSVMClassifier,
    OnlineLSSVMRegressor,
    SparseKernelClassifier,
    SparseKernelRegressor,
)
from ridgestream.pipeline.base.settings import settings_of
from ridgestream.pipeline.batch.registry import METHODS

PLAIN: dict[str, Any] = {"gamma": 0.3, "regularization": 1e-4, "max_basis": 15, "metric": "standardized"}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] / 2 + 0.05 * RNG.normal(size=400)
LABELS = np.where(Y > 0, "up", "down")


@pytest.mark.parametrize(
    ("rows", "targets"),
    [
        (np.asfortranarray(X), np.repeat(Y, 2)[::2]),
        (np.repeat(X, 2, axis=1)[:, ::2], Y),
        (pd.DataFrame(X, columns=["a", "b", "c"]), pd.Series(Y)),
        (pa.table({name: X[:, place] for place, name in enumerate("abc")}), Y),
    ],
    ids=["fortran", "strided", "pandas", "arrow"],
)
def test_the_layout_of_rows_in_memory_changes_no_bit(rows: Any, targets: Any) -> None:
    expected = OnlineLSSVMRegressor(**PLAIN).fit(X, Y).coefficients_
    assert np.array_equal(OnlineLSSVMRegressor(**PLAIN).fit(rows, targets).coefficients_, expected)


YEARS = pd.DataFrame({"at": pd.date_range("2010-01-01", periods=60, freq="YS")})


def test_time_stamps_are_circles_with_a_warning_or_as_they_are_asked_for() -> None:
    trend = np.arange(60.0)
    with pytest.warns(
        InputWarning, match='columns at: time stamps are circles of the calendar.*timestamps="elapsed"'
    ) as caught:
        OnlineLSSVMRegressor(**PLAIN).fit(YEARS, trend)
    assert {warning.filename for warning in caught} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        assert OnlineLSSVMRegressor(**PLAIN, timestamps="elapsed").fit(YEARS, trend).score(YEARS, trend) > 0.99
        assert OnlineLSSVMRegressor(**PLAIN, timestamps="calendar").fit(YEARS, trend).score(YEARS, trend) < 0.5
    with pytest.raises(InputError, match="timestamps must be None, 'calendar', 'elapsed', 'both', it is 'trend'"):
        OnlineLSSVMRegressor(**PLAIN, timestamps="trend").fit(YEARS, trend)


def test_a_kernel_object_takes_no_further_parameters() -> None:
    with pytest.raises(InputError, match=r"kernel=RBF\(gamma=0.5\) has its own parameters: leave out gamma$"):
        OnlineLSSVMRegressor(kernel=RBF(0.5), gamma=0.1).fit(X, Y)
    with pytest.raises(InputError, match=r"leave out gamma and degree and coef0$"):
        SparseKernelRegressor(kernel=RBF(0.5), gamma=[0.1, 1.0], degree=2, coef0=0.0).fit(X, Y)


@pytest.mark.parametrize("frame", [pd.DataFrame(X, columns=["a", "a", "b"]), pa.table([*X.T], names=["a", "a", "b"])])
def test_columns_that_share_a_name_are_refused(frame: Any) -> None:
    with pytest.raises(InputError, match="X has several columns with the name 'a'"):
        OnlineLSSVMRegressor(**PLAIN).fit(frame, Y)


def test_names_of_several_levels_are_refused() -> None:
    frame = pd.DataFrame(X, columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]))
    with pytest.raises(InputError, match=r"names of several levels, such as \('a', 1\): give each column one name"):
        OnlineLSSVMRegressor(**PLAIN).fit(frame, Y)


@pytest.mark.parametrize("absent", [None, np.nan, pd.NA])
def test_missing_labels_are_refused_with_their_rows(absent: Any) -> None:
    labels = pd.Series(LABELS, dtype=object)
    labels[[3, 7]] = absent
    with pytest.raises(InputError, match="y lacks labels in rows 3, 7: leave these rows out"):
        OnlineLSSVMClassifier(**PLAIN).fit(X, labels)


def test_numbers_as_labels_are_refused_where_they_are_missing() -> None:
    labels = np.where(np.arange(400) < 20, np.nan, LABELS == "up")
    with pytest.raises(InputError, match="y lacks labels in rows 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 10 more"):
        OnlineLSSVMClassifier(**PLAIN).fit(X, labels)


@pytest.mark.parametrize(
    "times", [pd.date_range("2020", periods=400), pd.Series(pd.date_range("2020", periods=400, tz="UTC"))]
)
def test_dates_are_no_targets(times: Any) -> None:
    with pytest.raises(InputError, match="y holds dates or times, and a regressor learns numbers"):
        OnlineLSSVMRegressor(**PLAIN).fit(X, times)


def test_a_single_class_is_told_as_it_is() -> None:
    with pytest.raises(InputError, match=r"Classifier needs two classes or more, y has one class: 1$"):
        OnlineLSSVMClassifier(**PLAIN).fit(X, np.ones(400, int))


def test_messages_speak_of_parameters() -> None:
    with pytest.raises(InputError, match=r"^class_weight names the class 'x', which .* its classes: down, up$"):
        SparseKernelClassifier(**PLAIN, class_weight={"x": 1.0}).fit(X, LABELS)
    regressor = OnlineLSSVMRegressor(**PLAIN).partial_fit(X * 1e-50, Y)
    with pytest.raises(InputError, match=r"^rows from 400 on: column 'x0' has .*correct the rows, or leave these rows"):
        regressor.partial_fit(X * 1e60, Y)
    town = pd.DataFrame({"town": ["Ulm", "Bonn"] * 20})
    online = OnlineLSSVMRegressor(**PLAIN).partial_fit(town, np.arange(40.0))
    with pytest.raises(InputError, match=r"category 'Kiel'.*, or fit with unseen_categories=.ignore. or .extend.$"):
        online.partial_fit(town.replace("Ulm", "Kiel"), np.arange(40.0))


@pytest.mark.parametrize("estimator", [SparseKernelClassifier, SparseKernelRegressor])
def test_the_docstring_names_the_methods_and_what_they_do_not_take(estimator: type) -> None:
    text = inspect.getdoc(estimator) or ""
    for key in ("max_basis", "regularization"):
        said = text.split(f"\n    {key}: ")[1].split("\n    metric" if key == "max_basis" else "\n    max_basis")[0]
        without = {m for m in METHODS if key not in {each.name for each in settings_of(METHODS[m].settings)}}
        assert {method for method in METHODS if f'"{method}"' in said} == without
    assert all(f'"{method}"' in text.split("\n    kernel: ")[0] for method in METHODS)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"missing": "drop"}, "missing must be one of 'error', 'impute', it is 'drop'"),
    "categories": ({"unseen_categories": "no"}, "unseen_categories must be one of 'error', 'ignore', 'extend'"),
    "refit": ({"refit": "maybe"}, "refit must be one of 'auto', True, False, it is 'maybe'"),
    "no experts": ({"experts": 0}, "experts must be a number from 1 on or 'auto', it is 0"),
    "parts of experts": ({"experts": 2.5}, "experts must be a number from 1 on or 'auto', it is 2.5"),
    "many experts": ({"experts": "many"}, "experts must be a number from 1 on or 'auto', it is 'many'"),
    "no size": ({"max_basis": "unlimited"}, "max_basis must be a number from 1 on or 'auto' or None"),
    "no bytes": ({"memory_limit": "1MB"}, "memory_limit must be a number from 1 on or None, it is '1MB'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_word_or_a_count_that_is_none_is_refused(name: str) -> None:
    settings, message = WRONG[name]
    with pytest.raises(InputError, match=message):
        OnlineLSSVMRegressor(**{**PLAIN, **settings}).fit(X, Y)


def test_a_method_says_what_it_has_in_place_of_a_parameter() -> None:
    with pytest.raises(InputError, match=r'takes no max_basis; its size is method_options=\{"start_basis": 300\}'):
        SparseKernelRegressor("subset-of-regressors", max_basis=40).fit(X, Y)
    with pytest.raises(InputError, match="method_options maps names of settings to values, it is 2"):
        SparseKernelRegressor("ls-svm", method_options=2).fit(X, Y)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fitted() -> OnlineLSSVMRegressor:
    return OnlineLSSVMRegressor(**PLAIN).fit(X, Y)


def test_numbers_of_numpy_are_numbers(fitted: OnlineLSSVMRegressor) -> None:
    numbers = {**PLAIN, "max_basis": np.int64(15), "gamma": np.float64(0.3), "regularization": np.float64(1e-4)}
    assert np.array_equal(OnlineLSSVMRegressor(**numbers).fit(X, Y).coefficients_, fitted.coefficients_)


@pytest.mark.parametrize("alpha", [1.5, 0, 1, -1, float("nan"), "a", [0.1]])
def test_a_share_that_is_none_has_no_interval(fitted: OnlineLSSVMRegressor, alpha: Any) -> None:
    with pytest.raises(InputError, match="alpha is the share of values outside, a number between 0 and 1"):
        fitted.predict_interval(X, alpha=alpha)


def test_rows_far_from_those_learned_are_warned_of(fitted: OnlineLSSVMRegressor) -> None:
    words = r"outside the range .*rows=400, of_rows=400, columns=x0 \(400\), x1 \(400\), x2 \(400\)\)$"
    with pytest.warns(InputWarning, match=words):
        fitted.predict(X + 1e3)
    constant = np.column_stack([X, np.full(400, 3.0)])
    regressor = SparseKernelRegressor(**PLAIN).fit(constant, Y)
    with pytest.warns(InputWarning, match=r"columns=x3 \(400\)"):
        regressor.predict(constant + np.array([0.0, 0.0, 0.0, 7.0]))


def test_a_stored_model_does_not_start_over_unasked(fitted: OnlineLSSVMRegressor) -> None:
    other = OnlineLSSVMRegressor.from_model(fitted.model_)
    with pytest.raises(InputError, match="this estimator was made of a stored model"):
        other.partial_fit(X, Y)
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"])
    assert np.array_equal(other.predict(frame), fitted.predict(X))


def test_messages_have_no_options_of_the_command() -> None:
    regressor = OnlineLSSVMRegressor(**PLAIN).fit(X, Y).set_params(max_basis=5)
    with pytest.raises(LookupError, match=r"max_basis was 15, is 5; begin again with fit$"):
        regressor.partial_fit(X, Y)


def test_the_logarithm_of_probabilities() -> None:
    classifier = SparseKernelClassifier(**PLAIN).fit(X, LABELS)
    assert np.array_equal(classifier.predict_log_proba(X), np.log(classifier.predict_proba(X)))


WEEKS = [date(2020, 1, 1) + timedelta(weeks=number) for number in range(60)]
OBJECTS: dict[str, tuple[list[Any], pd.Series]] = {
    "dates": (WEEKS, pd.Series(pd.to_datetime(WEEKS))),
    "decimals": ([Decimal(number) / 8 for number in range(60)], pd.Series(np.arange(60) / 8)),
    "numbers": ([np.int64(3), 2.5, 1] * 20, pd.Series([3.0, 2.5, 1.0] * 20)),
    "text": (["b", "a"] * 30, pd.Series(["b", "a"] * 30, dtype="string")),
    "booleans": ([True, np.False_] * 30, pd.Series([True, False] * 30)),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_are_taken_as_what_they_are(kind: str) -> None:
    objects, typed = OBJECTS[kind]
    settings = {**PLAIN, "timestamps": "both"}
    predictions = [
        OnlineLSSVMRegressor(**settings).fit(frame, np.arange(60.0)).predict(frame)
        for frame in (pd.DataFrame({"a": pd.Series(objects, dtype=object)}), pd.DataFrame({"a": typed}))
    ]
    assert np.array_equal(*predictions)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([[1]] * 60, "'a' holds values of the type list: give numbers"),
        ([b"x"] * 60, "'a' holds values of the type bytes: give numbers"),
        ([1, "x"] * 30, "kinds, int, str:"),
    ],
)
def test_objects_that_are_no_feature_are_refused(objects: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        OnlineLSSVMRegressor(**PLAIN).fit(pd.DataFrame({"a": pd.Series(objects, dtype=object)}), np.arange(60.0))


ABSENT: dict[str, Any] = {
    "none": pd.Series([None], dtype=object),
    "nan": pd.Series([np.nan]),
    "nan as an object": pd.Series([np.nan], dtype=object),
    "no time": pd.Series([pd.NaT]),
    "na": pd.Series([pd.NA], dtype=object),
    "string": pd.Series([None], dtype="string"),
    "boolean": pd.Series([None], dtype="boolean"),
    "arrow": pd.Series([None], dtype=pd.ArrowDtype(pa.null())),
}
MIXED = pd.DataFrame(
    {
        "number": X[:, 0],
        "flag": X[:, 1] > -0.5,
        "text": np.where(X[:, 2] > 0, "x", "y"),
        "time": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(400), unit="D"),
    }
)


@pytest.mark.parametrize("name", MIXED)
def test_a_missing_value_is_one_in_a_column_of_any_type(name: str) -> None:
    settings = {**PLAIN, "timestamps": "both"}
    imputing = OnlineLSSVMRegressor(**settings, missing="impute").fit(MIXED, Y)
    refusing = OnlineLSSVMRegressor(**settings).fit(MIXED, Y)
    row = MIXED.iloc[:1]
    expected = imputing.predict(pl.DataFrame({key: [None if key == name else row.at[0, key]] for key in MIXED}))
    for absent in ABSENT.values():
        frame = row.assign(**{name: absent})
        assert imputing.predict(frame) == expected
        with pytest.raises(InputError, match=f"row 0 of column '{name}'|column '{name}' lacks its value in row 0"):
            refusing.predict(frame)


@pytest.mark.parametrize("absent", [None, np.nan, pd.NA])
def test_a_missing_boolean_among_others_is_no_false(absent: Any) -> None:
    flags = pd.DataFrame(
        {"flag": MIXED["flag"].astype(object).where(np.arange(400) % 4 > 0, absent)}, index=MIXED.index
    )
    with pytest.raises(InputError, match="row 0 of column 'flag'"):
        OnlineLSSVMRegressor(**PLAIN).fit(flags, Y)
    model, typed = OnlineLSSVMRegressor(**PLAIN, missing="impute"), flags.astype("boolean")
    assert np.array_equal(model.fit(flags, Y).predict(flags), model.fit(typed, Y).predict(typed))


@pytest.mark.parametrize("columns", [["number"], ["flag"], ["text"], ["time"], list(MIXED)])
def test_no_rows_are_refused(columns: list[str]) -> None:
    model = OnlineLSSVMRegressor(**PLAIN, timestamps="both").fit(MIXED[columns], Y)
    for frame in (MIXED[columns].head(0), MIXED[columns].head(0).astype(object)):
        with pytest.raises(ValueError, match=r"Found array with 0 sample\(s\)"):
            model.predict(frame)


def test_what_is_learned_is_no_attribute_before() -> None:
    for name in ("basis_vectors_", "metric_", "feature_importances_", "cost_", "selection_"):
        assert not hasattr(OnlineLSSVMRegressor(), name)
    with pytest.raises(NotFittedError, match="this OnlineLSSVMRegressor is not fitted yet: call fit or partial_fit"):
        _ = OnlineLSSVMRegressor().basis_vectors_


def test_a_model_finds_the_columns_of_a_table_by_their_names() -> None:
    frame = pd.DataFrame({"a": X[:, 0], "town": np.where(X[:, 1] > 0, "u", "v"), "b": X[:, 2]})
    regressor = OnlineLSSVMRegressor(**PLAIN).fit(frame, Y)
    other = OnlineLSSVMRegressor.from_model(regressor.model_)
    assert np.array_equal(other.predict(frame), regressor.predict(frame))


def test_refusals_of_scikit_learn_have_remedies() -> None:
    missing = X.copy()
    missing[7, 1] = np.nan
    remedy = 'fill in the values that are missing, or give missing="impute"'
    for rows, column in ((missing, "1"), (pd.DataFrame(missing, columns=["a", "b", "c"]), "'b'")):
        with pytest.raises(InputError, match=f"contains NaN in row 7 of column {column}: {remedy}"):
            OnlineLSSVMRegressor(**PLAIN).fit(rows, Y)
    with pytest.raises(InputError, match="y holds text, such as 'up', and a regressor learns numbers"):
        OnlineLSSVMRegressor(**PLAIN).fit(X, np.where(Y > 0, "up", "down"))
    with pytest.raises(InputError, match="'Kiel': an array holds numbers alone; give a table"):
        OnlineLSSVMRegressor(**PLAIN).fit(np.full((400, 2), "Kiel", object), Y)


def test_a_boolean_takes_zero_and_one_alone() -> None:
    frame = pd.DataFrame({"a": X[:, 0], "new": X[:, 1] > 0})
    regressor = OnlineLSSVMRegressor(**PLAIN).fit(frame, Y)
    assert np.array_equal(regressor.predict(frame.assign(new=frame["new"].astype(int))), regressor.predict(frame))
    with pytest.raises(InputError, match="'new' was boolean in the rows learned, and has other values than 0 and 1"):
        regressor.predict(frame.assign(new=7))


@pytest.mark.parametrize(
    "rows", [np.full((9, 1), 2**60), pd.DataFrame({"a": [2**60] * 9}), pl.DataFrame({"a": [1, -(2**60)]})]
)
def test_whole_numbers_that_are_not_exact_are_refused(rows: Any) -> None:
    with pytest.raises(InputError, match=r"has the whole number -?1152921504606846976; beyond 2\^53"):
        OnlineLSSVMRegressor(**PLAIN).fit(rows, np.zeros(len(rows)))


def test_labels_of_several_kinds_are_refused() -> None:
    with pytest.raises(InputError, match="y has texts and numbers as labels"):
        OnlineLSSVMClassifier(**PLAIN).fit(np.zeros((2, 1)), np.array([1, "x"], dtype=object))
