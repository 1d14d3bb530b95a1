"""BLAS and LAPACK called without Python's lock: the same bits as SciPy's own wrappers give, and other threads go on."""

import sys
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import blas, lapack

from ridgestream.pipeline import unlocked_lapack
from ridgestream.pipeline.base.blas_threads import one_blas_thread

SIZES = st.integers(1, 70)


@given(rows=st.integers(0, 90), n=SIZES, seed=st.integers(0, 99))
def test_products_have_the_bits_of_dsyrk(rows: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, sums = rng.normal(size=(rows, n)), np.asfortranarray(rng.normal(size=(n, n)))
    expected = blas.dsyrk(1.0, values.T, beta=1.0, c=sums, lower=1) if rows else sums.copy()
    unlocked_lapack.add_products(values, sums)
    assert np.tril(sums).tobytes() == np.tril(expected).tobytes()


@given(n=SIZES, columns=st.integers(0, 3), seed=st.integers(0, 99))
def test_factors_inverses_and_solutions_have_the_bits_of_lapack(n: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, right = rng.normal(size=(n + 5, n)), rng.normal(size=(n, columns))
    factor, _ = lapack.dpotrf(values.T @ values, lower=1, clean=0)
    own = np.array(values.T @ values, order="F")
    assert unlocked_lapack.factorize(own) == 0
    assert np.tril(own).tobytes() == np.tril(factor).tobytes()
    if columns:
        solution = np.array(right, order="F")
        assert unlocked_lapack.solve(own, solution) == 0
        assert solution.tobytes() == lapack.dpotrs(factor, right, lower=1)[0].tobytes()
    assert unlocked_lapack.invert(own) == 0
    assert np.tril(own).tobytes() == np.tril(lapack.dpotri(factor, lower=1)[0]).tobytes()


@given(n=SIZES, seed=st.integers(0, 99))
def test_the_norm_is_that_of_the_symmetric_matrix(n: int, seed: int) -> None:
    lower = np.asfortranarray(np.tril(np.random.default_rng(seed).normal(size=(n, n))))
    expected = np.linalg.norm(lower + np.tril(lower, -1).T, 1)
    lower += np.triu(np.full((n, n), np.nan), 1)
    assert unlocked_lapack.one_norm(lower) == pytest.approx(expected, rel=1e-13)
    for value in (np.nan, np.inf):
        lower[-1, 0] = value
        np.testing.assert_equal(unlocked_lapack.one_norm(lower), value)


def test_a_matrix_without_a_factor_is_reported_as_lapack_does() -> None:
    matrix = np.asfortranarray(np.diag([1.0, 1.0, -1.0, 1.0]))
    assert unlocked_lapack.factorize(matrix) == lapack.dpotrf(matrix, lower=1)[1] == 3


@pytest.mark.parametrize("matrix", [np.zeros((2, 3)), np.zeros((3, 3), dtype=np.float32, order="F")])
def test_a_matrix_of_another_layout_or_type_is_refused(matrix: Any) -> None:
    with pytest.raises(ValueError, match="not float64 in Fortran order"):
        unlocked_lapack.factorize(matrix)


def test_other_threads_run_meanwhile() -> None:
    """This thread counts while another one factorizes: far more than where SciPy holds the lock."""
    values = np.random.default_rng(0).normal(size=(1600, 1500))
    matrix = np.array(values.T @ values, order="F")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with one_blas_thread():
            free = max(_count(lambda: unlocked_lapack.factorize(matrix.copy(order="F"))) for _ in range(3))
            held = min(_count(lambda: lapack.dpotrf(matrix, lower=1)) for _ in range(3))
    finally:
        sys.setswitchinterval(before)
    assert free > held


def _count(call: Callable[[], object]) -> int:
    thread, count = Thread(target=call), 0
    thread.start()
    while thread.is_alive():
        count += 1
    return count
