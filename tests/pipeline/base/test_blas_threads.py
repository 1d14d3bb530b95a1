"""One BLAS thread while sums are computed, also in several threads at once, and learners independent of each other."""

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.blas_threads import blas_threads, one_blas_thread
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM

Array = npt.NDArray[np.float64]

CONTINUE = """
import pickle, sys, numpy as np
learner, X, y = pickle.load(open(sys.argv[1], "rb"))
np.save(sys.argv[2], learner.partial_fit(X, y).state().normal_matrix)
"""


def make_rows(n: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 6))
    return X, np.sign(np.sin(2 * X[:, :1]) + 0.3 * rng.standard_normal((n, 1)))


def learn(max_basis: int, rows: int = 4096) -> Array:
    X, y = make_rows(rows)
    return OnlineLSSVM(RBF(0.2), max_basis=max_basis).partial_fit(X, y).state().normal_matrix


def test_learners_in_several_threads_give_the_same_bits_as_in_one() -> None:
    sizes = [40, 90, 40, 150]
    alone = [learn(size) for size in sizes]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(learn, sizes))
    assert [a.tobytes() for a in alone] == [b.tobytes() for b in together]


def test_the_limit_ends_with_the_last_context_in_any_thread() -> None:
    before = blas_threads()
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(second.__enter__).result()
        first.__exit__(None, None, None)
        assert set(pool.submit(blas_threads).result()) == set(blas_threads()) == {1}
        pool.submit(second.__exit__, None, None, None).result()
    assert blas_threads() == before


def test_a_copy_and_a_pickle_continue_with_the_same_results(tmp_path: Path) -> None:
    X, y = make_rows(4096)
    learner = OnlineLSSVM(RBF(0.2), max_basis=40).partial_fit(X[:2048], y[:2048])
    copied = copy.deepcopy(learner)
    pickled, output = tmp_path / "learner.pickle", tmp_path / "normal_matrix.npy"
    pickled.write_bytes(pickle.dumps((learner, X[2048:], y[2048:])))
    subprocess.run([sys.executable, "-c", CONTINUE, str(pickled), str(output)], check=True)
    expected = learner.partial_fit(X[2048:], y[2048:]).state().normal_matrix
    assert np.array_equal(copied.partial_fit(X[2048:], y[2048:]).state().normal_matrix, expected)
    assert np.array_equal(np.load(output), expected)
