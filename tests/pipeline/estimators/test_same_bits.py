"""Estimators, job files and stores: the same rows and settings give the same bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.jobs.jobs import REGRESSION, Workplace, draw_regression, draw_rows

from ridgestream import (
    OnlineLSSVMClassifier,
    OnlineLSSVMRegressor,
    SparseKernelClassifier,
    SparseKernelRegressor,
)
from ridgestream.pipeline.batch.registry import METHODS

ROWS = 700
PLAIN: dict[str, Any] = {"gamma": 0.4, "regularization": 1e-4, "max_basis": 20, "metric": "standardized"}
JOB = {"source.precision": "float64", "model.kernel.gamma": 0.4, "evaluate.path": None}
OPEN = {"model.kernel.gamma": "auto", "model.regularization": None, "model.max_basis": None, "model.metric": None}
CLASSES = {"source.positive": None, "source.classes": "all"}


def arrays(table: pa.Table, target: str) -> tuple[Any, Any]:
    return np.column_stack([table[name] for name in table.column_names if name != target]), table[target].to_numpy()


def predictions_of_job(folder: Path, rows: pa.Table, new: pa.Table, changes: dict[str, Any], **asked: Any) -> pa.Table:
    work = Workplace(folder)
    work.put(0, rows)
    work.put(0, new, where="new")
    work.run_here(JOB | changes)
    return work.predict_here("new", JOB | changes, **asked)


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({**PLAIN, "refit": False}, {"model.refit": False}),
        ({**PLAIN, "refit": True, "stream_rows": 5000}, {"model.refit": True, "model.stream_rows": 5000}),
        pytest.param({}, OPEN | {"model.refit": "auto"}, marks=pytest.mark.thorough),
        pytest.param(
            {**PLAIN, "refit": False, "experts": 3, "stream_rows": 5000},
            {"model.experts": 3, "model.refit": False, "model.stream_rows": 5000},
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            {**PLAIN, "metric": "full", "refit": True},
            {"model.metric": "full", "model.refit": True},
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_an_online_regressor_and_a_job(tmp_path: Path, settings: dict[str, Any], changes: dict[str, Any]) -> None:
    rows, new = draw_regression(1, ROWS), draw_regression(2, 50)
    predicted = predictions_of_job(tmp_path, rows, new, {**REGRESSION, **changes}, with_std=True, level=0.8)
    regressor = OnlineLSSVMRegressor(**settings).fit(*arrays(rows, "price"))
    X, _ = arrays(new, "price")
    mean, deviation = regressor.predict(X, return_std=True)
    assert np.array_equal(mean, predicted["prediction"])
    assert np.array_equal(deviation, predicted["std"])
    assert np.array_equal(
        regressor.predict_interval(X, alpha=0.2), np.column_stack([predicted["lower"], predicted["upper"]])
    )


def test_an_online_classifier_and_a_job(tmp_path: Path) -> None:
    rows, new = draw_rows(1, ROWS), draw_rows(2, 50)
    predicted = predictions_of_job(tmp_path, rows, new, CLASSES, with_scores=True, with_probabilities=True)
    classifier = OnlineLSSVMClassifier(**PLAIN, refit=False).fit(*arrays(rows, "label"))
    X, _ = arrays(new, "label")
    assert np.array_equal(classifier.predict(X), predicted["prediction"])
    assert np.array_equal(classifier.decision_function(X).T, [predicted[f"score_{label}"] for label in (1, 2, 3)])
    assert np.array_equal(classifier.predict_proba(X).T, [predicted[f"probability_{label}"] for label in (1, 2, 3)])


METHOD_SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "shard-merge-select": (
        {"method_options": {"shards": 3, "shard_basis": 30}},
        {"model.shard_merge_select.shards": 3, "model.shard_merge_select.shard_basis": 30},
    ),
    "orols": ({"regularization": "auto"}, {"model.regularization": None}),
    "isls-svm": ({"method_options": {"start_basis": 60}}, {"model.isls_svm.start_basis": 60}),
    "subset-of-regressors": (
        {"max_basis": "auto", "method_options": {"start": "k-means", "start_basis": 30}},
        {
            "model.max_basis": None,
            "model.subset_of_regressors.start": "k-means",
            "model.subset_of_regressors.start_basis": 30,
        },
    ),
    "ls-svm": ({"max_basis": "auto"}, {"model.max_basis": None}),
    "kernel-ridge": ({"max_basis": "auto"}, {"model.max_basis": None}),
}


@pytest.mark.samples(1)
@pytest.mark.filterwarnings("ignore:on rows left out, a larger dictionary")  # as it is for isls-svm and sls-svm
@pytest.mark.parametrize("method", METHODS)
def test_a_batch_regressor_and_a_job(tmp_path: Path, method: str) -> None:
    own, changes = METHOD_SETTINGS.get(method, ({}, {}))
    rows, new = draw_regression(1, 200), draw_regression(2, 50)
    asked = {**REGRESSION, "model.method": method, **changes}
    predicted = predictions_of_job(tmp_path, rows, new, asked, with_std=True)
    regressor = SparseKernelRegressor(method, **{**PLAIN, **own}).fit(*arrays(rows, "price"))
    X, _ = arrays(new, "price")
    mean, deviation = regressor.predict(X, return_std=True)
    assert np.array_equal(mean, predicted["prediction"])
    assert np.array_equal(deviation, predicted["std"])


@pytest.mark.thorough
def test_a_batch_classifier_with_weights_of_classes_and_a_job(tmp_path: Path) -> None:
    rows, new = draw_rows(1, ROWS), draw_rows(2, 50)
    changes = CLASSES | OPEN | {"model.method": "ols", "source.class_weight": "balanced"}
    predicted = predictions_of_job(tmp_path, rows, new, changes, with_probabilities=True)
    classifier = SparseKernelClassifier("ols", class_weight="balanced").fit(*arrays(rows, "label"))
    X, _ = arrays(new, "label")
    assert np.array_equal(classifier.predict_proba(X).T, [predicted[f"probability_{label}"] for label in (1, 2, 3)])


@pytest.mark.thorough
def test_several_calls_and_a_job_over_as_many_partitions(tmp_path: Path) -> None:
    parts, new = [draw_regression(seed, 300) for seed in range(3)], draw_regression(9, 50)
    work, changes = Workplace(tmp_path), {**JOB, **REGRESSION, **OPEN, "model.refit": False}
    for number, part in enumerate(parts):
        work.put(number, part)
        work.run_here(changes)
    work.put(0, new, where="new")
    regressor = OnlineLSSVMRegressor()
    for part in parts:
        regressor.partial_fit(*arrays(part, "price"))
    predicted = work.predict_here("new", changes)
    assert np.array_equal(regressor.predict(arrays(new, "price")[0]), predicted["prediction"])
