"""What the estimators take as rows and labels: in any layout the same bits, and refusals that name the remedy."""

import inspect
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

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
    with pytest.warns(InputWarning, match='columns at: time stamps are circles of the calendar.*timestamps="elapsed"'):
        OnlineLSSVMRegressor(**PLAIN).fit(YEARS, trend)
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
