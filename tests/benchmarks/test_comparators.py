"""The comparators of the papers' tables against the product's methods, least squares, and the evidence."""

import numpy as np
import numpy.typing as npt
from benchmarks.comparators import fit_column_ols, fit_qr, fit_rvm
from sklearn.linear_model import ARDRegression

from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.ols import OLSSettings, fit_ols
from ridgestream.pipeline.kernels import RBF, gram
from ridgestream.pipeline.sums.row_set import ArrayRows

Array = npt.NDArray[np.float64]
KERNEL = RBF(0.4)


def draw(n: int = 120, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(n)


def test_qr_is_least_squares_over_its_columns_chosen_by_the_largest_residual() -> None:
    X, y = draw()
    model = fit_qr(KERNEL, X, y, 30)
    assert 3 < len(model.places) < 30
    for size in range(len(model.places) + 1):
        K = np.column_stack([np.ones(120), gram(KERNEL, X)[:, model.places[:size]]])
        solved = np.linalg.lstsq(K, y, rcond=None)[0]
        residual = np.abs(y - K @ solved)
        residual[model.places[:size]] = -1.0
        assert size == len(model.places) or int(np.argmax(residual)) == model.places[size]
    np.testing.assert_allclose(model.predict(X), K @ solved, atol=1e-9)


def test_ols_that_stores_its_columns_chooses_and_predicts_as_the_one_by_sums() -> None:
    X, y = draw(400)
    fitted = fit_ols(ArrayRows(X, y), KERNEL, OLSSettings(1e-5, 20, random_seed=3), Silent())
    model = fit_column_ols(KERNEL, X, y, 20, 1e-5, seed=3)
    assert model.places.tolist() == fitted.places.tolist()
    np.testing.assert_allclose(model.predict(X), (fitted.basis.values(X) @ fitted.coefficients)[:, 0], atol=1e-6)


def log_evidence(Phi: Array, y: Array, alpha: Array, beta: float) -> float:
    covariance = np.eye(len(y)) / beta + (Phi / alpha) @ Phi.T
    return -0.5 * float(np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y))


def test_relevance_vectors_are_sparse_at_a_maximum_of_the_evidence() -> None:
    X, y = draw(60)
    found = fit_rvm(KERNEL, X, y)
    Phi = np.column_stack([np.ones(60), gram(KERNEL, X)])[:, found.functions]
    assert 2 < len(found.model.places) < 30
    best = log_evidence(Phi, y, found.precisions, found.noise_precision)
    for index in range(len(found.precisions)):
        for factor in (0.9, 1.1):
            moved = found.precisions.copy()
            moved[index] *= factor
            assert log_evidence(Phi, y, moved, found.noise_precision) <= best + 1e-6
    for factor in (0.9, 1.1):
        assert log_evidence(Phi, y, found.precisions, factor * found.noise_precision) <= best + 1e-6


def test_relevance_vectors_have_at_least_the_evidence_of_scikit_learns_ard() -> None:
    X, y = draw(60, seed=1)
    K = gram(KERNEL, X)
    other = ARDRegression(fit_intercept=False, max_iter=300, tol=1e-6, alpha_1=0, alpha_2=0).fit(K, y)
    kept = other.lambda_ < 1e9
    theirs = log_evidence(K[:, kept], y, other.lambda_[kept], float(other.alpha_))
    found = fit_rvm(KERNEL, X, y)
    Phi = np.column_stack([np.ones(60), K])[:, found.functions]
    assert log_evidence(Phi, y, found.precisions, found.noise_precision) > theirs - 2.0
