"""One pass of local experts over that of one learner with as many vectors as a cell: prints JSON.

    python tests/benchmarks/experts_pass.py --rows 400000 --cells 300 --basis 200

On the bundled forest rows, standardized and in memory, in one process on one BLAS thread, in CPU time: `ratio` is that
of the experts' seconds to the one learner's, on the same rows and with the same kernel and thresholds, and `products`
that to what the learner's matrix products and swaps cost alone (`sum` of online.py --parts). A busy machine disturbs
both: the passes are run in turn, and medians are given.
"""

import argparse
import json
import sys
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
    products = measure_parts(one, rows, quick=options.repeats == 1)["sum"] * len(rows.X) / 1e6
    figures = {
        "rows": len(rows.X),
        "cells": len(centres),
        "vectors": experts.n_basis,
        "experts_cpu_seconds": round(all_cells, 3),
        "one_learner_cpu_seconds": round(alone, 3),
        "ratio": round(all_cells / alone, 3),
        "products": round(all_cells / products, 3),
        "test_error_percent": error_percent(experts.predict(test.X)[:, 0], test.y),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
