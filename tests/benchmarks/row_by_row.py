"""Runs the row-by-row NumPy form beside the learner on the same rows: time, and whether they decide alike."""

from typing import Any

from benchmarks.measuring import GAMMA, REGULARIZATION, Took, Watch, learn, new_learner
from support.data.forest import Rows
from support.references.row_by_row import NumPyRowByRow

from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.online.state import OnlineState

TOO_CLOSE = 1e-10
"""Where the sides of a comparison differ by less than this, relative, either choice is right.

Two rows of a rare soil type, far from all others, may be worth exactly the same.
"""

GROW_AND_PRUNE_ROWS = 1000

STEP_ROWS = 256
"""Rows between two comparisons of the dictionaries; a multiple of every block size."""


def measure_row_by_row(rows: Rows, max_basis: int) -> dict[str, Any]:
    """Return the time of both forms on these rows, the speed-up, and the result of the comparison."""
    ours = learn(new_learner(max_basis), rows)
    theirs, state, comparison = compare_decisions(rows, max_basis)
    n = len(rows.X)
    printed = time_growing_and_pruning(state, rows)
    return {
        "rows": n,
        "seconds": round(theirs.seconds, 3),
        "cpu_microseconds_per_row": theirs.cpu_microseconds_per(n),
        "learner_seconds": round(ours.seconds, 3),
        "learner_cpu_microseconds_per_row": ours.cpu_microseconds_per(n),
        "grow_and_prune_cpu_microseconds_per_row": printed,
        "speed_up": round(theirs.cpu_seconds / ours.cpu_seconds, 2),
        **comparison,
    }


def compare_decisions(rows: Rows, max_basis: int) -> tuple[Took, OnlineState, dict[str, Any]]:
    """Run both forms side by side; return the time of the row-by-row form, and the last state.

    Where they differ in a comparison too close to call, it continues from the learner's state. `same_dictionary` is
    whether they never differed otherwise: row numbers and their indices are compared.
    """
    learner, form = new_learner(max_basis), NumPyRowByRow(GAMMA, REGULARIZATION, max_basis)
    took, same, ties = Took(0.0, 0.0), True, 0
    for start in range(0, len(rows.X), STEP_ROWS):
        X, y = rows.X[start : start + STEP_ROWS], rows.y[start : start + STEP_ROWS]
        learner.partial_fit(X, y)
        with one_blas_thread():
            watch = Watch()
            form.learn(X, y)
            took += watch.read()
        state = learner.state()
        if form.basis_rows != state.basis_rows.tolist():
            ties += 1
            same = same and form.closest < TOO_CLOSE
            form = NumPyRowByRow.of(state, GAMMA)
    return took, state, {"same_dictionary": same, "ties_decided_otherwise": ties, "swaps": learner.swaps}


def time_growing_and_pruning(state: OnlineState, rows: Rows) -> float:
    """Return CPU microseconds a row of the form that grows and prunes for every useful row: the last 1,000 again."""
    form = NumPyRowByRow.of(state, GAMMA)
    form.grow_and_prune = True
    X, y = rows.X[-GROW_AND_PRUNE_ROWS:], rows.y[-GROW_AND_PRUNE_ROWS:]
    with one_blas_thread():
        watch = Watch()
        form.learn(X, y)
        return watch.read().cpu_microseconds_per(len(X))
