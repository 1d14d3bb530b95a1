"""What choosing by OLS costs, against the products that it could not do without if every column were stored.

    python tests/benchmarks/batch_selection.py --rows 50000 --basis 500

Prints one JSON object; the ratios are of one run, on one BLAS thread.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import GAMMA, REGULARIZATION, Took, Watch
from support.data.forest import N_FEATURES, Rows, standardized_forest

from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.ols import OLSSettings, fit_ols
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.selection.candidate_rounds import RULE_OF_59, draw_round
from ridgestream.pipeline.sums.candidate_products import CandidateSumming
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import Argument, ArrayRows, Summed

STORED_ROWS = 2048
"""Rows of a block of stored columns."""

Array = npt.NDArray[np.float64]


@dataclass
class BareProducts:
    """The products of a pass a round, made of columns that are stored, in step with a dictionary that grows."""

    rows: Rows
    """All of them."""
    max_basis: int
    """The largest dictionary."""
    took: Took = field(default_factory=lambda: Took(0.0, 0.0))
    """What the products took so far."""
    paused: Took = field(default_factory=lambda: Took(0.0, 0.0))
    """What catching up took in all, the writing of columns included."""
    n_basis: int = 0
    """The vectors whose columns are stored."""

    def __post_init__(self) -> None:
        lengths = [len(self.rows.X[start : start + STORED_ROWS]) for start in range(0, len(self.rows.X), STORED_ROWS)]
        self.stored = [np.zeros((self.max_basis, length)) for length in lengths]

    def catch_up(self, vectors: Array) -> None:
        """Do the rounds that chose the vectors (n_basis, 54) which are new, and store their columns."""
        whole = Watch()
        for number in range(self.n_basis, len(vectors)):
            drawn = self.rows.X[draw_round(0, number, len(self.rows.X), RULE_OF_59)]
            watch = Watch()
            products = multiply(self.rows, drawn, self.stored, number)
            self.took += watch.read()
            if not np.isfinite(products).all():
                raise ArithmeticError("a bare product is not finite")
        self._store(vectors[self.n_basis :])
        self.paused += whole.read()

    def _store(self, vectors: Array) -> None:
        if len(vectors):
            for number, columns in enumerate(self.stored):
                part = slice(number * STORED_ROWS, (number + 1) * STORED_ROWS)
                columns[self.n_basis : self.n_basis + len(vectors)] = RBF(GAMMA).block(self.rows.X[part], vectors).T
            self.n_basis += len(vectors)


@dataclass(frozen=True)
class TakingTurns(ArrayRows):
    """Rows in memory that, before each pass, let the bare products catch up, so that both meet the same machine."""

    bare: BareProducts = field(kw_only=True)
    """They."""

    def reduce(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        argument: Argument,
        step: Step,
        parts: int | None = None,
    ) -> Summed:
        if isinstance(argument, CandidateSumming):
            self.bare.catch_up(argument.vectors)
        return super().reduce(function, argument, step, parts)


def measure_ols(rows: Rows, max_basis: int) -> dict[str, Any]:
    """Return OLS-59 with the default look-ahead over the bare products of a pass a round with stored columns.

    OLS is all of `fit_ols`: passes, choices, GCV of every size, the last pass for the sums of the dictionary. Of the
    bare products, each of the `max_basis` rounds counts the kernel values of 59 drawn candidates at all rows, and their
    product with the stored columns of the vectors chosen before; not counted are qᵀq, qᵀy, the writing of a chosen
    column, and the choice. They take turns, a pass of the one and the rounds that it served of the other.
    """
    bare = BareProducts(rows, max_basis)
    row_set = TakingTurns(rows.X, rows.y[:, np.newaxis], bare=bare)
    with one_blas_thread():
        watch = Watch()
        fitted = fit_ols(row_set, RBF(GAMMA), OLSSettings(REGULARIZATION, max_basis), Silent())
        took, paused = watch.read(), bare.paused
        bare.catch_up(fitted.basis.vectors)
    seconds, cpu_seconds = took.seconds - paused.seconds, took.cpu_seconds - paused.cpu_seconds
    return {
        "rows": len(rows.X),
        "max_basis": max_basis,
        "n_basis": len(fitted.places),
        "passes": fitted.notes["passes"],
        "ratio": round(seconds / bare.took.seconds, 3),
        "cpu_ratio": round(cpu_seconds / bare.took.cpu_seconds, 3),
        "ols_seconds": round(seconds, 3),
        "bare_seconds": round(bare.took.seconds, 3),
        "ols_cpu_seconds": round(cpu_seconds, 3),
        "bare_cpu_seconds": round(bare.took.cpu_seconds, 3),
    }


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
    arguments = parser.parse_args()
    train, _ = standardized_forest(arguments.rows)
    print(json.dumps(measure_ols(train, arguments.basis), indent=1))


if __name__ == "__main__":
    main()
