"""One pass of local experts over that of one learner with as many vectors as a cell: prints JSON.

    python tests/benchmarks/experts_pass.py --rows 400000 --cells 300 --basis 200

On the bundled forest rows, standardized and in memory, in one process on one BLAS thread, in CPU time: `ratio` is that
of the experts' seconds to the one learner's, on the same rows and with the same kernel and thresholds. `over_products`
has, of each, the ratio of the pass to its own matrix products, kernel values and changes of dictionaries alone, by what
these cost at this size (online.py --parts), and the ratio of both: cells change their dictionaries far more often. A
vector that a dictionary grows by counts as a third of a swap, as it costs the square of the size then. A busy machine
disturbs all of them: the passes are run in turn, and medians are given.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import GAMMA, REGULARIZATION, Array, Took, Watch, error_percent, learn, warm_up
from benchmarks.parts import measure_parts
from benchmarks.scale import centres_of
from support.data.forest import N_FEATURES, PARTITION_ROWS, Rows, standardized_forest

from ridgestream import RBF, LocalExperts, OnlineLSSVM

KERNEL = RBF(16 * GAMMA)
PART_ROWS = 2 * PARTITION_ROWS
"""Rows that are given to the experts at once, as a job joins partitions."""


def pass_of_experts(rows: Rows, centres: Array, basis: int) -> tuple[LocalExperts, Took]:
    """Return the experts after the rows, and what they took."""
    experts = LocalExperts(KERNEL, centres, regularization=REGULARIZATION, max_basis=basis)
    watch = Watch()
    for start in range(0, len(rows.X), PART_ROWS):
        part = slice(start, start + PART_ROWS)
        experts.partial_fit(rows.X[part], rows.y[part])
    return experts, watch.read()


def pass_of_one(rows: Rows, basis: int) -> tuple[OnlineLSSVM, Took]:
    """Return one learner after the rows, and what it took."""
    one = OnlineLSSVM(KERNEL, regularization=REGULARIZATION, max_basis=basis, centre=np.zeros(N_FEATURES))
    return one, learn(one, rows)


def own_seconds(parts: Mapping[str, float], n_rows: int, learner: LocalExperts | OnlineLSSVM) -> float:
    """Return what a pass's products, kernel values and changes of dictionaries cost alone."""
    products = n_rows * (parts["sum"] - parts["swaps"])
    return (products + parts["a_swap"] * (learner.swaps + learner.n_basis / 3)) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--cells", type=int, default=300)
    parser.add_argument("--basis", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows, test = standardized_forest(options.rows)
    warm_up(rows)
    centres, took = centres_of(rows.X[:PARTITION_ROWS], options.cells), list[tuple[float, float]]()
    for _ in range(options.repeats):
        experts, of_experts = pass_of_experts(rows, centres, options.basis)
        one, of_one = pass_of_one(rows, options.basis)
        took.append((of_experts.cpu_seconds, of_one.cpu_seconds))
    all_cells, alone = (median(each) for each in zip(*took, strict=True))
    parts = measure_parts(one, rows, quick=options.repeats == 1)
    of_cells, of_one_learner = (
        took / own_seconds(parts, len(rows.X), learner) for took, learner in ((all_cells, experts), (alone, one))
    )
    figures = {
        "rows": len(rows.X),
        "cells": len(centres),
        "vectors": experts.n_basis,
        "experts_cpu_seconds": round(all_cells, 3),
        "one_learner_cpu_seconds": round(alone, 3),
        "ratio": round(all_cells / alone, 3),
        "over_products": {
            "experts": round(of_cells, 3),
            "one_learner": round(of_one_learner, 3),
            "ratio": round(of_cells / of_one_learner, 3),
        },
        "test_error_percent": error_percent(experts.predict(test.X)[:, 0], test.y),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
