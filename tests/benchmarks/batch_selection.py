"""What choosing by OLS costs, against the products that it could not do without if every column were stored.

    python tests/benchmarks/batch_selection.py --rows 50000 --basis 500

Prints one JSON object; the ratio is that of one run, on one BLAS thread.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import GAMMA, REGULARIZATION, Took, Watch, say
from support.forest import N_FEATURES, Rows, standardized_forest

from ridgestream.pipeline.fitted import Fitted
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.learners.ols import OLSSettings, fit_ols
from ridgestream.pipeline.look_ahead import RULE_OF_59, draw_round
from ridgestream.pipeline.reporting import Silent
from ridgestream.pipeline.row_sets import ArrayRows
from ridgestream.pipeline.threads import one_blas_thread

STORED_ROWS = 2048
"""Rows of a block of stored columns."""

Array = npt.NDArray[np.float64]


def measure_ols(rows: Rows, max_basis: int, repeats: int = 1) -> dict[str, Any]:
    """Return OLS-59 with the default look-ahead over the bare products of a pass a round with stored columns.

    OLS is all of `fit_ols`: passes, choices, GCV of every size, the last pass for the sums of the dictionary. Of the
    bare products, each of the `max_basis` rounds counts the kernel values of 59 drawn candidates at all rows, and their
    product with the stored columns of the vectors chosen before; not counted are qᵀq, qᵀy, the writing of a chosen
    column, and the choice. The two take turns, and the least of each counts.
    """
    ols, bare = list[Took](), list[Took]()
    for repeat in range(repeats):
        say(f"OLS and bare products, {repeat + 1} of {repeats}")
        fitted, took = time_ols(rows, max_basis)
        ols.append(took)
        bare.append(time_bare_products(rows, fitted))
    seconds = [min(took.seconds for took in tries) for tries in (ols, bare)]
    cpu = [min(took.cpu_seconds for took in tries) for tries in (ols, bare)]
    return {
        "rows": len(rows.X),
        "max_basis": max_basis,
        "n_basis": len(fitted.places),
        "passes": fitted.notes["passes"],
        "ratio": round(seconds[0] / seconds[1], 3),
        "cpu_ratio": round(cpu[0] / cpu[1], 3),
        "ols_seconds": round(seconds[0], 3),
        "bare_seconds": round(seconds[1], 3),
        "ols_cpu_seconds": round(cpu[0], 3),
        "bare_cpu_seconds": round(cpu[1], 3),
    }


def time_ols(rows: Rows, max_basis: int) -> tuple[Fitted, Took]:
    """Fit OLS-59."""
    row_set = ArrayRows(rows.X, rows.y[:, np.newaxis])
    with one_blas_thread():
        watch = Watch()
        fitted = fit_ols(row_set, RBF(GAMMA), OLSSettings(REGULARIZATION, max_basis), Silent())
        return fitted, watch.read()


def time_bare_products(rows: Rows, fitted: Fitted) -> Took:
    """Form, for every round, the kernel columns of its candidates and their products with the chosen's, stored."""
    stored = store_columns(rows, fitted)
    sums, took = np.zeros((RULE_OF_59, len(fitted.places))), Took(0.0, 0.0)
    candidates = [rows.X[draw_round(0, number, len(rows.X), RULE_OF_59)] for number in range(len(fitted.places))]
    with one_blas_thread():
        for n_chosen, drawn in enumerate(candidates):
            watch = Watch()
            sums[: len(drawn), :n_chosen] = multiply(rows, drawn, stored, n_chosen)
            took += watch.read()
    if not np.isfinite(sums).all():
        raise ArithmeticError("a bare product is not finite")
    return took


def store_columns(rows: Rows, fitted: Fitted) -> list[Array]:
    """Return the kernel columns of the dictionary, block by block, each (n_basis, rows)."""
    starts = range(0, len(rows.X), STORED_ROWS)
    return [np.ascontiguousarray(fitted.basis.values(rows.X[start : start + STORED_ROWS]).T) for start in starts]


def multiply(rows: Rows, drawn: Array, stored: list[Array], n_chosen: int) -> Array:
    """Return QᵀK of the candidates' columns with the first chosen ones, (candidates, n_chosen)."""
    products, centre = np.zeros((len(drawn), n_chosen)), np.zeros(N_FEATURES)
    for number, columns in enumerate(stored):
        part = slice(number * STORED_ROWS, (number + 1) * STORED_ROWS)
        values = RBF(GAMMA).block(rows.X[part], drawn, centre)
        products += values.T @ columns[:n_chosen].T
    return products


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--basis", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=1)
    asked = parser.parse_args()
    train, _ = standardized_forest(asked.rows)
    print(json.dumps(measure_ols(train, asked.basis, asked.repeats), indent=1))


if __name__ == "__main__":
    main()
