"""Measures what each part of the exact blocked form costs alone: why the learner cannot come closer to its lower bound.

Each matrix product is the learner's own compiled call, repeated on one block or strip of rows of the learner's size: no
decisions, nothing else in the processor's caches. A swap is timed as the extra time of the learner if, with its
coefficients set to zero, every row is worth more than some basis vector.

Two figures show how close exact decisions can come to the lower bound. `nothing_to_decide` is the ratio of the same
learner on the same rows where no row can be useful enough: it computes only what decisions would use. `triangular` is
the cost of these products in the other exact form: no P⁻¹ is carried, a Cholesky factor of P is recomputed at the
cheapest row interval, and the rows are solved against it, with the factor of I + C over all of them. It leaves out what
decisions would need in addition: columns of P⁻¹ at weak vectors.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from time import process_time

import numpy as np
import numpy.typing as npt
from benchmarks.measuring import GAMMA, LOWER_BOUND_ROWS, lower_bound
from scipy.linalg import blas, lapack
from support.data.forest import Rows

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.online.carried_model import SCREEN_BASIS, SCREEN_ROWS
from ridgestream.pipeline.online.compiled import lapack as lapack_calls
from ridgestream.pipeline.online.compiled.jit import compiled
from ridgestream.pipeline.online.compiled.lapack import Lapack
from ridgestream.pipeline.online.compiled.swap_criterion import cross_triangle
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.online.row_strip import TRACKED_SHARE, plan_block_rows
from ridgestream.pipeline.online.schedule import GRID_ROWS
from ridgestream.pipeline.online.state import OnlineState

SWAP_ROWS = 512
"""Rows that are learned once with a swap at almost every row, and once without."""

IDLE_ROWS = 20_000
"""Rows that are learned with nothing to decide."""

FACTOR_ROWS = (96, 128, 192, 256, 384)
"""Rows between two factors of P in the triangular form."""


@compiled
def repeat_symmetric(times: int, lapack: Lapack, S: Floats, rows: Floats, out: Floats) -> None:
    """Rows times a symmetric matrix: W = Kb P⁻¹, and A = Kb K⁻¹ where every vector is tracked."""
    for _ in range(times):
        lapack_calls.times_symmetric(lapack, S, rows, out)


@compiled
def repeat_columns(times: int, lapack: Lapack, columns: Floats, rows: Floats, out: Floats) -> None:
    """The tracked columns of A = Kb K⁻¹."""
    for _ in range(times):
        lapack_calls.cross_products(lapack, rows, columns, out, 0)


@compiled
def repeat_sum(times: int, lapack: Lapack, rows: Floats, S: Floats) -> None:
    """P += KbᵀKb; the update of P⁻¹ is the same with another sign."""
    for _ in range(times):
        lapack_calls.add_products(lapack, -1.0, rows, S)


@compiled
def repeat_cross(times: int, lapack: Lapack, left: Floats, right: Floats, out: Floats) -> None:
    """One triangle of C = W Kbᵀ."""
    for _ in range(times):
        cross_triangle(lapack, left, right, out)


@compiled
def repeat_sweep(times: int, lapack: Lapack, factor: Floats, rows: Floats) -> None:
    """L of I + C, and W̃ = L⁻¹ W; of the identity, which stays unchanged."""
    for _ in range(times):
        lapack_calls.factorize(lapack, len(factor), factor)
        lapack_calls.solve_lower(lapack, factor, rows)


def measure_parts(learner: OnlineLSSVM, rows: Rows, *, quick: bool) -> dict[str, float]:
    """Return microseconds a row of each part, after a run over `rows`, their sum, the lower bound, and the ratio.

    `swaps` is `a_swap`, microseconds, times the swaps a row of that run. See above for the last two.
    """
    repeats = 3 if quick else 15
    state = learner.state()
    bound_rows = rows.first(LOWER_BOUND_ROWS)
    with one_blas_thread():
        parts = time_products(state, rows, repeats)
        a_swap = time_a_swap(state, rows.first(SWAP_ROWS), repeats)
        idle = time_nothing_to_decide(state, rows.first(SWAP_ROWS if quick else IDLE_ROWS))
        triangular = time_triangular_form(state, rows, repeats)
    bound = min(lower_bound(bound_rows, state.basis_vectors)[1].cpu_seconds for _ in range(repeats))
    parts["swaps"] = a_swap * learner.swaps / learner.rows_seen
    total, lower = sum(parts.values()), 1e6 * bound / len(bound_rows.X)
    figures = {**parts, "sum": total, "lower_bound": lower, "ratio": total / lower, "a_swap": a_swap}
    figures |= {"nothing_to_decide": idle / lower, "triangular": triangular}
    return {name: round(value, 3) for name, value in figures.items()}


def time_products(state: OnlineState, rows: Rows, repeats: int) -> dict[str, float]:
    """Return microseconds a row of each matrix product, and of the kernel values."""
    m, n = len(state.basis_vectors), plan_block_rows(state.parameters.max_basis)
    lapack, X, centre = lapack_calls.make_lapack(), rows.X[:GRID_ROWS], np.zeros(rows.X.shape[1])
    K = RBF(GAMMA).block(X[:n], state.basis_vectors, centre)
    S, out, factor, values = state.normal_matrix, np.empty((n, m)), np.eye(n), np.empty((len(X), m))
    columns = S[: m // TRACKED_SHARE].copy()
    tracked, seen = np.empty((n, len(columns))), len(rows.X)
    all_tracked = 1.0 if m < SCREEN_BASIS else min(1.0, SCREEN_ROWS * m / seen)
    times = max(1, 2_000_000 // (n * m))

    def per_row(part: Callable[..., None], *arguments: npt.NDArray[np.float64]) -> float:
        return best(lambda: part(times, lapack, *arguments), repeats) / (times * n)

    kernel = best(lambda: RBF(GAMMA).block(X, state.basis_vectors, centre, out=values), repeats) / len(X)
    W, total = per_row(repeat_symmetric, S, K, out), per_row(repeat_sum, K, S.copy())
    some = per_row(repeat_columns, columns, K, tracked) if all_tracked < 1 else 0.0
    return {
        "kernel": kernel,
        "W": W,
        "P": total,
        "inverse_of_P": per_row(repeat_sum, K, S.copy()),
        "C": per_row(repeat_cross, K, K, np.empty((n, n))),
        "A": all_tracked * W + (1 - all_tracked) * some,
        "sweep": per_row(repeat_sweep, factor, K.copy()),
    }


def time_a_swap(state: OnlineState, rows: Rows, repeats: int) -> float:
    """Return microseconds of a swap: K⁻¹k, the checks, the update of both inverses, of P, K, z and the later rows."""
    nothing_passes = replace(state, parameters=replace(state.parameters, usefulness_threshold=1e300))
    worthless = replace(state, normal_rhs=np.zeros_like(state.normal_rhs))
    took, swaps = [], 0
    for start in (nothing_passes, worthless):
        learners = [OnlineLSSVM.from_state(start) for _ in range(repeats)]
        took.append(best(partial(learn_next, iter(learners), rows), repeats))
        swaps = learners[0].swaps - state.swaps
    return (took[1] - took[0]) / max(1, swaps)


def time_nothing_to_decide(state: OnlineState, rows: Rows) -> float:
    """Return microseconds per row of the learner where no row is useful enough for a decision."""
    learner = OnlineLSSVM.from_state(replace(state, parameters=replace(state.parameters, usefulness_threshold=1e300)))
    return best(lambda: learner.partial_fit(rows.X, rows.y), 3) / len(rows.X)


def time_triangular_form(state: OnlineState, rows: Rows, repeats: int) -> float:
    """Return microseconds a row of L of P = LLᵀ, V = Kb L⁻ᵀ, C = VVᵀ and the factor of I + C, at the best block."""
    P, costs = np.asfortranarray(state.normal_matrix), []
    for n in FACTOR_ROWS:
        K = RBF(GAMMA).block(rows.X[:n], state.basis_vectors, np.zeros(rows.X.shape[1])).T
        costs.append(best(partial(solve_triangular_form, P, K), repeats) / n)
    return min(costs)


def solve_triangular_form(P: Floats, K: Floats) -> None:
    """Solve it once for P (m, m) and the transposed kernel values K (m, rows)."""
    L, _ = lapack.dpotrf(P, lower=1, clean=0)
    V = blas.dtrsm(1.0, L, K, lower=1)
    C = blas.dsyrk(1.0, V, trans=1, lower=1)
    C[np.diag_indices_from(C)] += 1.0
    lapack.dpotrf(C, lower=1, clean=0, overwrite_a=1)


def learn_next(learners: Iterator[OnlineLSSVM], rows: Rows) -> None:
    """Let the next learner learn the rows."""
    next(learners).partial_fit(rows.X, rows.y)


def best(run: Callable[[], object], repeats: int) -> float:
    """Return the CPU microseconds of the fastest of some runs."""
    took = []
    for _ in range(repeats):
        start = process_time()
        run()
        took.append(process_time() - start)
    return 1e6 * min(took)
