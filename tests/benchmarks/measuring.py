"""Shared by the benchmarks of the online learner: its settings, a timed pass, the lower bound, and the test error."""

import sys
from dataclasses import dataclass
from time import perf_counter, process_time

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas
from support.data.forest import N_FEATURES, PARTITION_ROWS, Rows

from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM

GAMMA = 1 / N_FEATURES
REGULARIZATION = 1e-5
LOWER_BOUND_ROWS = 4096

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sums:
    """The sums of one pass over the rows for a fixed dictionary."""

    products: Array
    """KᵀK in its lower triangle, shape (n_basis, n_basis)."""
    rhs: Array
    """Kᵀy, shape (n_basis,)."""


@dataclass(frozen=True)
class Took:
    """A time on one thread."""

    seconds: float
    """Wall-clock time."""
    cpu_seconds: float
    """CPU time of the process: the same on a quiet machine, and hardly more on a busy one."""

    def __add__(self, other: "Took") -> "Took":
        return Took(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds)

    def cpu_microseconds_per(self, rows: int) -> float:
        """Return CPU microseconds a row."""
        return round(1e6 * self.cpu_seconds / rows, 3)


class Watch:
    """A stopwatch that starts when it is created."""

    def __init__(self) -> None:
        self._seconds, self._cpu_seconds = perf_counter(), process_time()

    def read(self) -> Took:
        """Return the time since then."""
        return Took(perf_counter() - self._seconds, process_time() - self._cpu_seconds)


def new_learner(max_basis: int) -> OnlineLSSVM:
    """Return the learner of the main job; standardized rows are centred at the origin."""
    return OnlineLSSVM(RBF(GAMMA), regularization=REGULARIZATION, max_basis=max_basis, centre=np.zeros(N_FEATURES))


def learn(learner: OnlineLSSVM, rows: Rows) -> Took:
    """Learn rows partition by partition, with a refresh at the end of each."""
    watch = Watch()
    for start in range(0, len(rows.X), PARTITION_ROWS):
        part = slice(start, start + PARTITION_ROWS)
        learner.partial_fit(rows.X[part], rows.y[part])
        learner.refresh()
    return watch.read()


def warm_up(rows: Rows) -> None:
    """Compile, or load, the code that a pass needs: for growing, then for swapping."""
    learn(new_learner(20), rows.first(1000))


def lower_bound(rows: Rows, dictionary: Array) -> tuple[Sums, Took]:
    """Sum KᵀK and Kᵀy over the rows for a fixed dictionary (n_basis, 54).

    The same kernel in blocks of 4,096 rows, a symmetric rank-k update, float64, one BLAS thread; no selection.
    """
    kernel, centre, m = RBF(GAMMA), np.zeros(N_FEATURES), len(dictionary)
    watch = Watch()
    products, rhs = np.zeros((m, m), order="F"), np.zeros(m)
    with one_blas_thread():
        for start in range(0, len(rows.X), LOWER_BOUND_ROWS):
            part = slice(start, start + LOWER_BOUND_ROWS)
            K = kernel.block(rows.X[part], dictionary, centre)
            products = blas.dsyrk(1.0, K.T, beta=1.0, c=products, lower=1, overwrite_c=1)
            rhs += K.T @ rows.y[part]
    return Sums(products, rhs), watch.read()


def error_percent(scores: Array, y: Array) -> float:
    """Return the share of rows on the wrong side of zero, in per cent."""
    return round(100 * float(np.mean((scores > 0) != (y > 0))), 3)


def say(line: str) -> None:
    """Print progress to standard error; standard output is for the result."""
    print(line, file=sys.stderr, flush=True)
