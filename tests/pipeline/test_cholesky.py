"""Cholesky factorizations against NumPy's dense linear algebra."""

import numpy as np
import pytest

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.cholesky import JITTERS, cholesky, mirror, symmetric


def spd(m: int, condition: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    Q = np.linalg.qr(np.random.default_rng(m).standard_normal((m, m)))[0]
    return np.asarray((Q * np.geomspace(1, 1 / condition, m)) @ Q.T)


@pytest.mark.parametrize("m", [1, 2, 17, 60])
def test_inverse_and_solution_are_those_of_numpy(m: int) -> None:
    A = spd(m, 1e4)
    factorization = cholesky(A, "A")
    assert factorization.jitter == 0
    assert np.allclose(symmetric(factorization.inverse()), np.linalg.inv(A), rtol=1e-9)
    b = np.arange(2.0 * m).reshape(m, 2)
    assert np.allclose(factorization.solve(b), np.linalg.solve(A, b), rtol=1e-9)
    assert factorization.condition == pytest.approx(np.linalg.cond(A, 1), rel=0.5)
    assert factorization.condition_of(factorization.inverse()) == pytest.approx(np.linalg.cond(A, 1), rel=6e-3)


def test_only_the_lower_triangle_is_read() -> None:
    A = spd(8, 10)
    upper = A + np.triu(np.full((8, 8), np.pi), 1)
    assert np.array_equal(symmetric(cholesky(A, "A").inverse()), symmetric(cholesky(upper, "A").inverse()))


def test_a_singular_matrix_takes_the_smallest_sufficient_jitter_and_reports_it() -> None:
    A = np.ones((5, 5))
    factorization = cholesky(A, "A")
    assert factorization.jitter in JITTERS[1:]
    assert np.isfinite(factorization.inverse()).all()


@pytest.mark.parametrize("matrix", [spd(300, 1e4), np.ones((300, 300))])
def test_a_factor_in_the_memory_of_its_matrix_is_the_same(matrix: Floats) -> None:
    own, expected = matrix.copy(), cholesky(matrix, "A")
    found = cholesky(own, "A", overwrite=True)
    assert np.array_equal(np.tril(found.factor), np.tril(expected.factor))
    assert (found.jitter, found.condition) == (expected.jitter, expected.condition)
    assert np.shares_memory(found.factor, own)
    assert np.array_equal(np.tril(own, -1), np.tril(matrix, -1))


def test_an_indefinite_matrix_is_refused_with_a_remedy() -> None:
    with pytest.raises(
        NumericalBreakdown, match=r"the kernel matrix \(2 × 2\) is not positive definite.*raise novelty"
    ):
        cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]), "kernel matrix")


def test_a_matrix_with_nan_is_refused() -> None:
    with pytest.raises(
        NumericalBreakdown, match=r"the matrix \(3 × 3\) holds a value that is not finite: .* lower the"
    ):
        cholesky(np.full((3, 3), np.nan), "matrix")


def test_an_empty_matrix_is_factorized() -> None:
    factorization = cholesky(np.empty((0, 0)), "nothing")
    assert factorization.condition == 1
    assert factorization.inverse().shape == (0, 0)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 400])
def test_a_lower_triangle_is_mirrored_in_its_own_memory(size: int) -> None:
    matrix = np.random.default_rng(size).standard_normal((size, size))
    lower = np.asfortranarray(np.tril(matrix))
    full = mirror(lower)
    np.testing.assert_array_equal(full, np.tril(matrix) + np.tril(matrix, -1).T)
    assert full.flags.c_contiguous
    assert np.shares_memory(full, lower) or not size


def test_the_condition_does_not_depend_on_memory_addresses() -> None:
    """LAPACK's estimate sums in an order that depends on the address of its workspace."""
    draws = np.random.default_rng(0).normal(size=(500, 500))
    matrix, blocks, conditions = draws @ draws.T + 1e-3 * np.eye(500), [], set()
    for number in range(60):
        blocks.append(bytes(37 * number % 5000))
        conditions.add(cholesky(matrix, "P").condition)
    assert len(conditions) == 1
    assert conditions.pop() == pytest.approx(np.linalg.cond(matrix, 1), rel=2.0)
