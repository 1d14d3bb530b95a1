"""Gradients of a kernel expansion against finite differences, and their sums against a loop over rows."""

import numpy as np
import pytest

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.kernels import RBF, Kernel, Linear, Polynomial
from ridgestream.pipeline.metric.gradients import Expansion, GradientTask, sum_gradients
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import LEARNED, Split
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_block import RowBlock

KERNELS: list[Kernel] = [
    RBF(gamma=0.3),
    Polynomial(gamma=0.5, degree=3, coef0=1.0),
    Polynomial(gamma=0.5, degree=1, coef0=0.0),
    Linear(),
]


def expansion(kernel: Kernel, *, diagonal: bool, n_targets: int = 2) -> Expansion:
    rng = np.random.default_rng(0)
    metric = Metric(rng.uniform(0.5, 2.0, 3))
    if not diagonal:
        half = rng.normal(size=(3, 3))
        metric = Metric.of_gradients(half @ half.T, diagonal=False)
    vectors = metric.apply(rng.normal(size=(6, 3)))
    return Expansion(metric, Basis(kernel, vectors, np.zeros(3)), rng.normal(size=(6, n_targets)))


def values(model: Expansion, u: Floats) -> Floats:
    return np.asarray(model.basis.values(model.metric.apply(u)) @ model.coefficients)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_gradients_are_those_of_finite_differences(kernel: Kernel, diagonal: bool) -> None:
    model, u, step = expansion(kernel, diagonal=diagonal), np.random.default_rng(1).normal(size=(5, 3)), 1e-5
    gradients = np.stack(list(model.gradients(u)), axis=2)
    for axis in range(3):
        moved = step * np.eye(3)[axis]
        expected = (values(model, u + moved) - values(model, u - moved)) / (2 * step)
        np.testing.assert_allclose(gradients[:, axis], expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_a_loop_over_rows(weighted: bool) -> None:
    model, rng = expansion(RBF(gamma=0.3), diagonal=False), np.random.default_rng(2)
    u, weights = rng.normal(size=(9, 3)), np.array([1.0, 0.0, 2.0] * 3)
    block = RowBlock(u, np.zeros((9, 2)), weights if weighted else None)
    split, expected = Split(9, stride=1), np.zeros((3, 3))
    learned = (split.groups(0, 9) == LEARNED) * (weights if weighted else 1.0)
    assert 2 < np.count_nonzero(learned) < 9
    for gradients in model.gradients(u):
        for gradient, weight in zip(gradients, learned, strict=True):
            expected += weight * np.outer(gradient, gradient)
    task = GradientTask(model, split)
    np.testing.assert_allclose(sum_gradients(task, [block]).products, expected, rtol=1e-12)
    halves = [
        RowBlock(u[part], block.targets[part], None if not weighted else weights[part], part.start)
        for part in (slice(0, 4), slice(4, 9))
    ]
    merged = sum_gradients(task, halves[:1]).merge(sum_gradients(task, halves[1:]))
    np.testing.assert_allclose(merged.products, expected, rtol=1e-12)
