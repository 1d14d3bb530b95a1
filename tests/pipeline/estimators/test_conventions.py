"""The estimators keep scikit-learn's conventions: its own checks, its tools around them, tables in, and imports."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from ridgestream import (
    RBF,
    InputError,
    OnlineLSSVMClassifier,
    OnlineLSSVMRegressor,
    SparseKernelClassifier,
    SparseKernelRegressor,
)

ALL = (OnlineLSSVMClassifier, OnlineLSSVMRegressor, SparseKernelClassifier, SparseKernelRegressor)
PLAIN: dict[str, Any] = {"gamma": 0.5, "regularization": 1e-4, "max_basis": 20, "metric": "standardized"}


def expected_failures(estimator: Any) -> dict[str, str]:
    """What scikit-learn's checks ask for and the estimators do not promise, each with the reason."""
    drawn = "rows are drawn, left out and taken into the dictionary one by one: a row twice is not one of weight 2"
    failures = {"check_sample_weight_equivalence_on_dense_data": drawn}
    if isinstance(estimator, OnlineLSSVMClassifier | SparseKernelClassifier):
        failures["check_classifiers_train"] = (
            "of three classes, each probability is calibrated by itself: the largest need not be of the largest score"
        )
    return failures


ESSENTIAL = ("check_estimators_pickle", "check_fit2d_1sample", "check_dict_unchanged", "check_n_features_in")


def essential_checks() -> list[Any]:
    pairs = estimator_checks_generator(SparseKernelRegressor(**PLAIN))
    chosen = [(estimator, check) for estimator, check in pairs if check.func.__name__ in ESSENTIAL]
    names = [f"{number}-{check.func.__name__}" for number, (_, check) in enumerate(chosen)]
    return [pytest.param(*pair, id=name) for pair, name in zip(chosen, names, strict=True)]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [*(kind() for kind in ALL), SparseKernelRegressor("ls-svm"), OnlineLSSVMRegressor(experts=2)],
    expected_failed_checks=expected_failures,
)
def test_all_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), essential_checks())
def test_the_essential_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) * [1.0, 20.0] + [0.0, 500.0]
    return X, 1000.0 + 30.0 * np.sin(X[:, 0]) + (X[:, 1] - 500.0) + rng.normal(size=300)


def test_raw_columns_and_a_target_far_from_zero_need_no_care(rows: tuple[Any, Any]) -> None:
    X, y = rows
    for regressor in (OnlineLSSVMRegressor(**PLAIN), SparseKernelRegressor(**PLAIN)):
        assert regressor.fit(X[:200], y[:200]).score(X[200:], y[200:]) > 0.97


def test_learned_attributes(rows: tuple[Any, Any]) -> None:
    regressor = SparseKernelRegressor("shard-merge-select", **{**PLAIN, "regularization": [1e-5, 1e-3]})
    regressor.set_params(method_options={"shards": 2, "shard_basis": 20}).fit(*rows)
    n_basis = len(regressor.basis_vectors_)
    assert regressor.coefficients_.shape[1] == 1
    assert len(regressor.basis_rows_) == n_basis
    assert regressor.metric_ is None
    assert np.array_equal(regressor.feature_importances_, [0.5, 0.5])
    table = pd.DataFrame(regressor.selection_)
    assert table["chosen"].sum() == 1
    assert table.loc[table["chosen"], "value"].item() == table["value"].min()
    residuals = (rows[1] - regressor.predict(rows[0])) / rows[1].std()
    assert regressor.cost_ >= residuals @ residuals - 1e-9


def test_importances_follow_a_learned_metric() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(800, 3))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=800)
    regressor = SparseKernelRegressor(**{**PLAIN, "metric": "diagonal"}).fit(X, y)
    assert regressor.metric_ is not None
    assert regressor.metric_.shape == (3,)
    assert regressor.feature_importances_.sum() == pytest.approx(1.0)
    assert regressor.feature_importances_.argmax() == 0


def test_the_kernel_by_name_or_as_an_object(rows: tuple[Any, Any]) -> None:
    by_name = SparseKernelRegressor(**PLAIN).fit(*rows).predict(rows[0])
    by_object = SparseKernelRegressor(**{**PLAIN, "kernel": RBF(0.5), "gamma": "auto"}).fit(*rows).predict(rows[0])
    assert np.array_equal(by_name, by_object)


def test_float32_stays_float32(rows: tuple[Any, Any]) -> None:
    X, y = rows[0].astype(np.float32), rows[1]
    regressor = SparseKernelRegressor(**PLAIN).fit(X, y)
    mean, deviation = regressor.predict(X, return_std=True)
    assert {mean.dtype, deviation.dtype, regressor.predict_interval(X).dtype} == {np.dtype(np.float32)}
    assert np.array_equal(mean, regressor.predict(X.astype(np.float64)).astype(np.float32))


def frames() -> list[Any]:
    columns = {"size": [1.0, 2.0, 3.0, 4.5] * 10, "town": ["b", "a", "b", "c"] * 10, "new": [True, False] * 20}
    return [pd.DataFrame(columns), pa.table(columns), pd.DataFrame(columns).convert_dtypes(), pl.DataFrame(columns)]


def test_tables_with_categories_and_booleans_by_their_names() -> None:
    y = np.array([1.0, 2.0, 1.5, 4.0] * 10)
    told = []
    for frame in frames():
        regressor = SparseKernelRegressor("ls-svm", gamma=0.5, regularization=1e-3, metric="standardized")
        told.append(regressor.fit(frame, y).predict(frame))
        assert regressor.feature_names_in_.tolist() == ["size", "town", "new"]
    assert all(np.array_equal(told[0], each) for each in told[1:])
    frame = frames()[0]
    with pytest.raises(ValueError, match="must be in the same order"):
        regressor.predict(frame[["town", "size", "new"]])
    with pytest.raises(InputError, match="'town' has the category 'd'"):
        regressor.predict(frame.assign(town="d"))
    with pytest.raises(InputError, match="'size' has the type String; the rows learned had numeric"):
        regressor.predict(frame.assign(size="d"))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_transformer_hands_on_the_table_that_set_output_asks_for(rows: tuple[Any, Any], library: str) -> None:
    X, y = rows
    plain = make_pipeline(StandardScaler(), SparseKernelRegressor(**PLAIN)).fit(X, y)
    tables = make_pipeline(StandardScaler(), SparseKernelRegressor(**PLAIN)).set_output(transform=library).fit(X, y)
    assert tables[-1].feature_names_in_.tolist() == ["x0", "x1"]
    assert np.array_equal(tables.predict(X), plain.predict(X))


def test_weights_are_routed_as_metadata(rows: tuple[Any, Any]) -> None:
    X, y = rows
    weights = np.linspace(0.1, 2.0, len(y))
    plain = SparseKernelRegressor(**PLAIN).fit(X, y, weights)
    with config_context(enable_metadata_routing=True):
        asking = SparseKernelRegressor(**PLAIN).set_fit_request(sample_weight=True)
        routed = make_pipeline(asking).fit(X, y, sample_weight=weights)
    assert np.array_equal(routed.predict(X), plain.predict(X))
    assert not np.array_equal(SparseKernelRegressor(**PLAIN).fit(X, y).predict(X), plain.predict(X))


def test_missing_values_are_refused_or_filled(rows: tuple[Any, Any]) -> None:
    X, y = rows[0].copy(), rows[1]
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        SparseKernelRegressor(**PLAIN).fit(X, y)
    filled = SparseKernelRegressor(**PLAIN, missing="impute").fit(X, y)
    assert np.isfinite(filled.predict(X)).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "svm"}, "method must be one of shard-merge-select, ols"),
        ({"method": "ls-svm", "max_basis": 5}, "method ls-svm takes no max_basis"),
        ({"kernel": "cosine"}, "kernel must be one of rbf"),
        ({"metric": "learned"}, "metric must be one of standardized"),
        ({"scale": "robust"}, "scale must be 'standardized', 'common' or None"),
        ({"method_options": {"folds": 5, "candidate": 3}}, "method ols has no option candidate; it has"),
        ({"gamma": -1.0}, "gamma"),
        ({"regularization": 0.0}, "regularization"),
    ],
)
def test_a_wrong_parameter_is_named(rows: tuple[Any, Any], settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SparseKernelRegressor(**settings).fit(*rows)


def test_partial_fit_continues_and_survives_pickling(rows: tuple[Any, Any]) -> None:
    X, y = rows
    straight = OnlineLSSVMRegressor(**PLAIN).partial_fit(X[:200], y[:200]).partial_fit(X[200:], y[200:])
    resumed = pickle.loads(pickle.dumps(OnlineLSSVMRegressor(**PLAIN).partial_fit(X[:200], y[:200])))  # noqa: S301
    resumed.partial_fit(X[200:], y[200:])
    assert np.array_equal(straight.predict(X), resumed.predict(X))
    assert np.array_equal(straight.predict_interval(X), resumed.predict_interval(X))


def test_a_class_that_comes_later_is_named_at_first(rows: tuple[Any, Any]) -> None:
    X, y = rows[0], np.where(rows[1] > 1000.0, "high", "low")
    classifier = OnlineLSSVMClassifier(**PLAIN).partial_fit(X[:100], y[:100], classes=["low", "high", "odd"])
    assert classifier.partial_fit(X[100:200], y[100:200]).classes_.tolist() == ["high", "low", "odd"]
    with pytest.raises(InputError, match="y has the class 'other'"):
        classifier.partial_fit(X[:10], ["other"] * 10)


def test_an_estimator_of_a_model_predicts_as_the_one_that_trained_it(rows: tuple[Any, Any]) -> None:
    X, y = rows
    regressor = SparseKernelRegressor(**PLAIN).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    other = SparseKernelRegressor.from_model(regressor.model_)
    frame = pd.DataFrame(X, columns=["a", "b"])
    for one, two in zip(regressor.predict(frame, return_std=True), other.predict(frame, return_std=True), strict=True):
        assert np.array_equal(one, two)
    with pytest.raises(AttributeError, match="no record of its training"):
        other.cost_  # noqa: B018


@pytest.mark.thorough
def test_the_tools_of_scikit_learn_around_them(rows: tuple[Any, Any], tmp_path: Path) -> None:
    X, y = rows
    labels = y > 1000.0
    search = GridSearchCV(SparseKernelRegressor(**PLAIN), {"gamma": [0.05, 0.5]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.9
    assert cross_val_score(OnlineLSSVMClassifier(**PLAIN), X, labels, cv=3, n_jobs=2).mean() > 0.9
    columns = ColumnTransformer([("all", StandardScaler(), ["a", "b"])]).set_output(transform="pandas")
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert make_pipeline(columns, OnlineLSSVMRegressor(**PLAIN)).fit(frame, y).score(frame, y) > 0.9
    calibrated = CalibratedClassifierCV(SparseKernelClassifier(**PLAIN), cv=3).fit(X, labels)
    assert calibrated.predict_proba(X).shape == (300, 2)
    logarithmic = TransformedTargetRegressor(SparseKernelRegressor(**PLAIN), func=np.log, inverse_func=np.exp)
    assert logarithmic.fit(X, y).score(X, y) > 0.9
    again = clone(search.best_estimator_).fit(X, y)
    assert np.array_equal(again.predict(X), search.predict(X))
    joblib.dump(again, tmp_path / "model.joblib")
    assert np.array_equal(joblib.load(tmp_path / "model.joblib").predict(X), again.predict(X))


def test_the_html_repr_names_the_estimator() -> None:
    assert "OnlineLSSVMRegressor" in OnlineLSSVMRegressor(max_basis=7)._repr_html_()


def modules_loaded_by(code: str) -> set[str]:
    """The top modules that a program loads besides those of scikit-learn itself."""
    before = "import sys, numpy as np, sklearn.base, sklearn.utils.validation, sklearn.utils.multiclass, ridgestream"
    count = "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    program = f"{before}\nbefore = set(sys.modules)\n{code}\n{count}"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_estimators_load_nothing_of_stores_and_clusters() -> None:
    fit = """
ridgestream.OnlineLSSVMRegressor, ridgestream.SparseKernelClassifier
assert 'numba' not in sys.modules
X = np.arange(40.0).reshape(20, 2)
settings = {'gamma': 1.0, 'regularization': 1.0, 'metric': 'standardized'}
ridgestream.SparseKernelRegressor('ls-svm', **settings).fit(X, X[:, 0]).predict(X)"""
    heavy = {"dask", "distributed", "zarr", "pyarrow", "icechunk", "pydantic"}
    assert modules_loaded_by(fit).isdisjoint(heavy)
