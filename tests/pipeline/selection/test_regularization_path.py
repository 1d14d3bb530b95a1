"""GCV along λ against its definition, and the λ chosen against scikit-learn's on a whole dictionary."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.kernels import RBF, gram
from ridgestream.pipeline.selection.regularization_path import RegularizationPath, choose_regularization
from ridgestream.pipeline.sums.normal_equations import BlockStatistics

N = 200
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1]]) + 0.3 * RNG.normal(size=(N, 2))
WEIGHTS = RNG.integers(1, 4, N).astype(float)
KERNEL = RBF(gamma=0.3)
VECTORS = X[:30]


def sums_of(values: Floats, targets: Floats, weights: Floats) -> BlockStatistics:
    weighted = values * weights[:, np.newaxis]
    products, square = weighted.T @ values, targets.T @ (targets * weights[:, np.newaxis])
    return BlockStatistics(products, weighted.T @ targets, square, float(weights.sum()), len(values))


def dense_gcv(values: Floats, penalty: Floats, regularization: float) -> float:
    n, root = WEIGHTS.sum(), np.sqrt(WEIGHTS)[:, np.newaxis]
    design, targets = values * root, Y * root
    hat = design @ np.linalg.solve(design.T @ design + regularization * n * penalty, design.T)
    return float(((targets - hat @ targets) ** 2).sum() / n / (1 - np.trace(hat) / n) ** 2)


@pytest.mark.parametrize("start", [1e-6, 1e-3, 1.0])
def test_gcv_of_every_regularization_is_that_of_its_definition(start: float) -> None:
    values, penalty = KERNEL.block(X, VECTORS), gram(KERNEL, VECTORS)
    path = RegularizationPath.of(sums_of(values, Y, WEIGHTS), penalty, start)
    for regularization in (1e-7, 1e-4, 1e-2, 3.0):
        assert path.gcv(regularization) == pytest.approx(dense_gcv(values, penalty, regularization), rel=1e-6)


@pytest.mark.parametrize("start", [1e-6, 1e-3, 1.0])
def test_the_chosen_regularization_has_a_lower_gcv_than_its_neighbours(start: float) -> None:
    values, penalty = KERNEL.block(X, VECTORS), gram(KERNEL, VECTORS)
    chosen = choose_regularization(sums_of(values, Y, WEIGHTS), penalty, start)
    least = dense_gcv(values, penalty, chosen)
    assert least <= min(dense_gcv(values, penalty, chosen * ratio) for ratio in (0.3, 3.2))


def test_the_ridge_of_least_gcv_is_that_of_leaving_out_single_rows_in_scikit_learn() -> None:
    """Of an orthogonal design all leverages are alike, and GCV is the error of leaving out one row."""
    design = np.linalg.qr(RNG.normal(size=(N, 8)))[0]
    target = design @ RNG.normal(size=8) + 0.05 * RNG.normal(size=N)
    alphas = 10.0 ** np.arange(-6, 6, 0.5)
    ridge = RidgeCV(alphas, fit_intercept=False, gcv_mode="eigen").fit(design, target)
    sums = sums_of(design, target[:, np.newaxis], np.ones(N))
    chosen = choose_regularization(sums, np.eye(8), 1e-2 / N) * N
    assert 1 / 3.2 < chosen / ridge.alpha_ < 3.2


def test_sums_that_are_not_positive_definite_are_refused() -> None:
    broken = BlockStatistics(-np.eye(2), np.ones((2, 1)), np.ones((1, 1)), 2.0, 2)
    with pytest.raises(NumericalBreakdown, match="not positive definite"):
        choose_regularization(broken, np.eye(2), 1e-3)
