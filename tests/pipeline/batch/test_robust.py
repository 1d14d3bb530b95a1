"""Robust fits: weights from residuals as in the paper, fits with these weights, and what they are good for."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.data.row_sets import CountedRows
from support.references.dense import predict_dense, solve_dense
from support.references.isls import Data
from support.references.robust import robust_scale, robust_weight

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.pass_checkpoint import ResumablePass, name_of_pass
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.isls_svm import ISLSSVMSettings
from ridgestream.pipeline.batch.method import FitTask, PlanTask
from ridgestream.pipeline.batch.registry import METHODS
from ridgestream.pipeline.batch.reweighted_rows import Reweighted
from ridgestream.pipeline.batch.robust import Reweighting
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.sums.normal_equations import SeveralStatistics, sum_together
from ridgestream.pipeline.sums.row_set import ArrayRows, RowSet

Array = npt.NDArray[np.float64]
GAMMA, LAMBDA = 1.0, 1e-4


def draw(rows: int, n_targets: int = 1, seed: int = 0) -> Data:
    """Noisy sines, of which every ninth row is far off."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (rows, 1))
    y = np.sin(X + np.arange(n_targets)) + 0.1 * rng.standard_normal((rows, n_targets))
    y[::9] += 10.0
    return Data(X, y, rng.choice([0.5, 1.0, 2.0], rows))


def rows_of(data: Data) -> ArrayRows:
    return ArrayRows(data.X, data.y, data.w)


def fit(method: str, rows: RowSet, **settings: Any) -> Fitted:
    kind = METHODS[method].settings
    task: FitTask[Any] = FitTask(
        rows=rows,
        kernels=(RBF(GAMMA),),
        settings=kind(regularization=LAMBDA, **settings),
        others={},
        given=None,
        memory_limit_bytes=2**30,
        report=Silent(),
    )
    return METHODS[method].fit(task)


def predict(fitted: Fitted, X: Array) -> Array:
    return np.asarray(fitted.basis.values(X) @ fitted.coefficients)


@pytest.mark.parametrize("n_targets", [1, 2])
def test_weights_are_the_paper_s(n_targets: int) -> None:
    data = draw(400, n_targets)
    data = Data(data.X, data.y, np.ones(400))
    rows = rows_of(data)
    fitted = fit("ls-svm", rows)
    reweighting = Reweighting.of(rows, fitted)
    residuals = data.y - predict(fitted, data.X)
    exact = [robust_scale(column) for column in residuals.T]
    np.testing.assert_allclose(reweighting.scales, exact, rtol=0.02)
    weights = np.asarray(reweighting.apply(rows.take(np.arange(400)), np.arange(400)).weights)
    of_targets = [[robust_weight(r, s) for r, s in zip(row, reweighting.scales, strict=True)] for row in residuals]
    np.testing.assert_allclose(weights, np.min(of_targets, axis=1), rtol=1e-9)
    assert {1e-4, 1.0} <= {*np.round(weights, 12).tolist()}


def test_ls_svm_is_fitted_again_with_these_weights_as_often_as_asked() -> None:
    data = draw(120)
    weights = data.w
    for _ in range(2):
        model = solve_dense(Data(data.X, data.y, weights), GAMMA, LAMBDA * weights.sum(), bias=True)
        residuals = (data.y - predict_dense(model, data, data.X, GAMMA))[:, 0]
        scale = float(Reweighting.of(rows_of(data), fit("ls-svm", ArrayRows(data.X, data.y, weights))).scales[0])
        weights = data.w * [robust_weight(residual, scale) for residual in residuals]
    model = solve_dense(Data(data.X, data.y, weights), GAMMA, LAMBDA * weights.sum(), bias=True)
    fitted = fit("ls-svm", rows_of(data), reweightings=2)
    np.testing.assert_allclose(predict(fitted, data.X), predict_dense(model, data, data.X, GAMMA), atol=1e-7)


@pytest.mark.parametrize("method", ["ls-svm", "isls-svm", "kernel-ridge"])
def test_rows_far_off_hardly_count_any_more(method: str) -> None:
    data, X = draw(300), np.linspace(-2.9, 2.9, 50)[:, np.newaxis]
    options = {"start_basis": 15, "reselect": "always"} if method == "isls-svm" else {}
    errors = [
        float(np.sqrt(np.mean((predict(fit(method, rows_of(data), reweightings=n, **options), X) - np.sin(X)) ** 2)))
        for n in (None, 3)
    ]
    assert errors[1] < 0.1 < 1.0 < errors[0]


def test_isls_svm_sums_its_rows_in_parts_as_in_one() -> None:
    data = draw(200)
    options: dict[str, Any] = {"start_basis": 10, "reselect": "always", "folds": 2, "reweightings": 1}
    parts, whole = CountedRows(data.X, data.y, data.w), rows_of(data)
    in_parts, at_once = (predict(fit("isls-svm", rows, **options), data.X) for rows in (parts, whole))
    np.testing.assert_allclose(in_parts, at_once, atol=1e-6)
    assert parts.labels == ["isls-svm", "scale of the residuals", "isls-svm"]
    plan = METHODS["isls-svm"].passes(PlanTask(settings=ISLSSVMSettings(**options), others={}, n_rows=200))
    assert len([*plan]) == 3


def test_equal_residuals_leave_weights_as_they_are() -> None:
    rows = ArrayRows(np.arange(20.0)[:, np.newaxis], np.zeros(20))
    block = rows.take(np.arange(20))
    assert Reweighting.of(rows, fit("kernel-ridge", rows)).apply(block, np.arange(20)).weights == pytest.approx(
        np.ones(20)
    )


def test_new_rows_may_not_count_in_full_beside_reweighted_ones() -> None:
    with pytest.raises(InputError, match='reweightings need reselect = "always"'):
        ISLSSVMSettings(reweightings=1)


def test_a_pass_over_reweighted_rows_is_resumed_under_a_name_of_its_own() -> None:
    rows = rows_of(draw(50))
    first = Reweighting.of(rows, fit("ls-svm", rows))
    passes = [Reweighted(weights, sum_together) for weights in (first, replace(first, scales=2 * first.scales))]
    names, plain = [name_of_pass(each) for each in passes], name_of_pass(sum_together)
    assert len({*names, plain}) == 3
    assert all(name[:2] == plain for name in names)
    assert ResumablePass(None, "", passes[0])._kind is SeveralStatistics
