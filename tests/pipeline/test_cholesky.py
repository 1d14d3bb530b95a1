"""Cholesky factorizations against NumPy's dense linear algebra."""

import numpy as np
import pytest

from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.cholesky import JITTERS, cholesky, mirror, symmetric


def spd(m: int, condition: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    Q = np.linalg.qr(np.random.default_rng(m).standard_normal((m, m)))[0]
    return np.asarray((Q * np.geomspace(1, 1 / condition, m)) @ Q.T)


@pytest.mark.parametrize("m", [1, 2, 17, 60])
def test_inverse_and_solution_are_numpys(m: int) -> None:
    A = spd(m, 1e4)
    found = cholesky(A, "A")
    assert found.jitter == 0
    assert np.allclose(symmetric(found.inverse()), np.linalg.inv(A), rtol=1e-9)
    b = np.arange(2.0 * m).reshape(m, 2)
    assert np.allclose(found.solve(b), np.linalg.solve(A, b), rtol=1e-9)
    assert found.condition == pytest.approx(np.linalg.cond(A, 1), rel=0.5)


def test_only_the_lower_triangle_is_read() -> None:
    A = spd(8, 10)
    upper = A + np.triu(np.full((8, 8), np.pi), 1)
    assert np.array_equal(symmetric(cholesky(A, "A").inverse()), symmetric(cholesky(upper, "A").inverse()))


def test_a_singular_matrix_takes_the_smallest_jitter_that_helps_and_says_so() -> None:
    A = np.ones((5, 5))
    found = cholesky(A, "A")
    assert found.jitter in JITTERS[1:]
    assert np.isfinite(found.inverse()).all()


def test_an_indefinite_matrix_is_refused_with_advice() -> None:
    with pytest.raises(
        NumericalBreakdown, match=r"the kernel matrix \(2 × 2\) is not positive definite.*raise novelty"
    ):
        cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]), "kernel matrix")


def test_a_matrix_with_nan_is_refused() -> None:
    with pytest.raises(
        NumericalBreakdown, match=r"the matrix \(3 × 3\) holds a value that is not finite: .* lower the"
    ):
        cholesky(np.full((3, 3), np.nan), "matrix")


def test_no_rows_at_all() -> None:
    found = cholesky(np.empty((0, 0)), "nothing")
    assert found.condition == 1
    assert found.inverse().shape == (0, 0)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 400])
def test_a_lower_triangle_is_mirrored_in_its_own_memory(size: int) -> None:
    matrix = np.random.default_rng(size).standard_normal((size, size))
    lower = np.asfortranarray(np.tril(matrix))
    found = mirror(lower)
    np.testing.assert_array_equal(found, np.tril(matrix) + np.tril(matrix, -1).T)
    assert found.flags.c_contiguous
    assert np.shares_memory(found, lower) or not size


def test_the_condition_is_the_same_wherever_memory_lies() -> None:
    """LAPACK's estimate adds up in an order that goes by the place of its workspace."""
    draws = np.random.default_rng(0).normal(size=(500, 500))
    matrix, kept, found = draws @ draws.T + 1e-3 * np.eye(500), [], set()
    for number in range(60):
        kept.append(bytes(37 * number % 5000))
        found.add(cholesky(matrix, "P").condition)
    assert len(found) == 1
    assert found.pop() == pytest.approx(np.linalg.cond(matrix, 1), rel=2.0)
