"""Rows left out in closed form, against fits without them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.calibration.leave_one_out import LeaveOneOut, LeftOut
from ridgestream.pipeline.cholesky import cholesky
from ridgestream.pipeline.kernels import RBF

KERNEL, PENALTY = RBF(gamma=0.5), 0.3


def _kernel(X: Floats, Z: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * ((X[:, np.newaxis] - Z[np.newaxis]) ** 2).sum(axis=2)))


def _draw(seed: int, rows: int = 12, features: int = 2, targets: int = 2) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, features)), rng.normal(size=(rows, targets)), rng.uniform(0.2, 3.0, rows)


def _of_model(X: Floats, y: Floats, w: Floats, dictionary: list[int]) -> LeftOut:
    """The closed form for all rows; `dictionary` are the numbers of the rows in it."""
    values, gram = _kernel(X, X[dictionary]), _kernel(X[dictionary], X[dictionary])
    normal = values.T @ (w[:, np.newaxis] * values) + PENALTY * gram
    beta: Floats = np.linalg.solve(normal, values.T @ (w[:, np.newaxis] * y)).astype(np.float64)
    places = np.array([dictionary.index(i) if i in dictionary else -1 for i in range(len(X))])
    model = LeaveOneOut(beta, cholesky(normal, "P"), cholesky(gram, "K"))
    return model.of(values, np.ones(len(X)), y, w, places)


def _without(X: Floats, y: Floats, w: Floats, dictionary: list[int], i: int) -> tuple[Floats, float, float]:
    """Prediction, kᵀM⁻¹k and novelty of row i by a fit without the row, and without its basis vector if it is one."""
    others, basis = np.delete(np.arange(len(X)), i), [j for j in dictionary if j != i]
    values, gram = _kernel(X[others], X[basis]), _kernel(X[basis], X[basis])
    normal = values.T @ (w[others, np.newaxis] * values) + PENALTY * gram
    k = _kernel(X[i : i + 1], X[basis])[0]
    prediction = k @ np.linalg.solve(normal, values.T @ (w[others, np.newaxis] * y[others]))
    return prediction, k @ np.linalg.solve(normal, k), 1 - k @ np.linalg.solve(gram, k)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_each_row_is_as_in_a_fit_without_it(seed: int, n_basis: int) -> None:
    X, y, w = _draw(seed)
    dictionary = list(range(n_basis))
    found = _of_model(X, y, w, dictionary)
    for i in range(len(X)):
        prediction, leverage, novelty = _without(X, y, w, dictionary, i)
        np.testing.assert_allclose(found.outputs[i], prediction, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.leverage[i], leverage, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.novelty[i], novelty, rtol=1e-7, atol=1e-9)


def test_with_all_rows_in_the_dictionary_it_is_kernel_ridge_without_each_row() -> None:
    X, y, _ = _draw(1)
    found = _of_model(X, y, np.ones(len(X)), list(range(len(X))))
    for i in range(len(X)):
        others = np.delete(np.arange(len(X)), i)
        ridge = KernelRidge(alpha=PENALTY, kernel="rbf", gamma=0.5).fit(X[others], y[others])
        np.testing.assert_allclose(found.outputs[i], ridge.predict(X[i : i + 1])[0], rtol=1e-6)


def test_a_row_of_weight_zero_is_predicted_as_it_is() -> None:
    X, y, w = _draw(2)
    w[5] = 0.0
    found = _of_model(X, y, w, [0, 1])
    assert found.outputs[5] == pytest.approx(_without(X, y, w, [0, 1], 5)[0])
