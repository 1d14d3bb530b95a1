"""Test error on forest against the dictionary's size, for the recipe's row order and for permutations of it.

    python tests/benchmarks/forest_error.py --rows 500000 --basis 100 300 500 --permutations 3 --trees

Prints one JSON object: for each size, the error in per cent of the recipe's order and of each permutation, and the
seconds of learning (one BLAS thread, rows in memory). The paper's figures are printed beside them, and with --trees
those of scikit-learn's boosted and extremely randomized trees with their defaults on the same rows. With --refit each
run has the error after a refit of the same dictionary, too, and the refit's seconds. Class 2 is told from the rest;
with --classes, all seven from each other.
"""

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from support.data.forest import PARTITION_ROWS, read_forest

from ridgestream.pipeline.features.one_vs_rest import scores_of, winners_of
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.moments import Moments
from ridgestream.pipeline.sums.normal_equations import Summing, sum_rows
from ridgestream.pipeline.sums.row_block import RowBlock

PAPER = {100: "23.80 ± 0.64", 300: "21.77 ± 0.39", 500: "21.17 ± 0.32"}

Array = npt.NDArray[np.float64]


def winners(outputs: Array) -> npt.NDArray[np.int64]:
    """Return the class of each row of outputs, one for two classes or one for each."""
    outputs = outputs.reshape(len(outputs), -1)
    return winners_of(scores_of(outputs, max(2, outputs.shape[1])))


def learn(X: Array, y: Array, max_basis: int) -> tuple[OnlineLSSVM, float]:
    """Learn the rows as the main job does: partition by partition, in blocks."""
    learner = OnlineLSSVM(RBF(1 / 54), regularization=1e-5, max_basis=max_basis, centre=np.zeros(54))
    began = perf_counter()
    for start in range(0, len(X), PARTITION_ROWS):
        part = slice(start, start + PARTITION_ROWS)
        learner.partial_fit(X[part], y[part])
        learner.refresh()
    return learner, perf_counter() - began


def measure(
    order: npt.NDArray[np.int64], rows: tuple[Array, Array, Array, Array], max_basis: int, *, refit: bool
) -> dict[str, Any]:
    """Return the test error in per cent and the seconds of one run in this order of the training rows."""
    X, y, X_test, y_test = rows
    moments = Moments.of(X[order[:PARTITION_ROWS]])
    scale = moments.deviation()
    X, y, X_test = (X[order] - moments.mean) / scale, y[order], (X_test - moments.mean) / scale
    learner, seconds = learn(X, y, max_basis)
    error = error_percent(learner.predict(X_test), y_test)
    found = {"error_percent": error, "seconds": round(seconds, 2), "swaps": learner.swaps}
    return found | (measure_refit(learner, X, y, X_test, y_test) if refit else {})


def measure_refit(learner: OnlineLSSVM, X: Array, y: Array, X_test: Array, y_test: Array) -> dict[str, Any]:
    """Return the test error in per cent with exact coefficients of the learner's dictionary, and the seconds."""
    state = learner.state()
    basis = Basis(state.parameters.kernel, state.basis_vectors, state.centre)
    began = perf_counter()
    sums = sum_rows(Summing(basis, 1), [RowBlock(X, y.reshape(len(y), -1), None)]).total()
    beta = sums.factorize(state.gram, state.parameters.regularization).solve(sums.rhs)
    seconds = perf_counter() - began
    scores = basis.kernel.block(X_test, basis.vectors, basis.centre) @ beta
    return {"refit_error_percent": error_percent(scores, y_test), "refit_seconds": round(seconds, 2)}


def error_percent(scores: Array, y: Array) -> float:
    """Return how many of the classes that scores (rows, n_targets) name are wrong."""
    return round(100 * float((winners(scores) != winners(y)).mean()), 3)


TUNED: dict[str, Any] = {"max_iter": 500, "max_leaf_nodes": 255, "early_stopping": False}
"""Many large trees: the rows are many, and their classes hardly overlap."""


def measure_trees(rows: tuple[Array, Array, Array, Array]) -> dict[str, Any]:
    """Return the test error in per cent and the seconds of scikit-learn's trees: with their defaults, and TUNED."""
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    X, y, X_test, y_test = rows
    found = {}
    rivals: tuple[tuple[Any, dict[str, Any]], ...] = (
        (HistGradientBoostingClassifier, {}),
        (ExtraTreesClassifier, {}),
        (HistGradientBoostingClassifier, TUNED),
    )
    for kind, settings in rivals:
        began = perf_counter()
        trees = kind(random_state=0, **settings).fit(X, winners(y))
        seconds = perf_counter() - began
        wrong = trees.predict(X_test) != winners(y_test)
        name = f"{kind.__name__}, tuned" if settings else kind.__name__
        found[name] = {"error_percent": round(100 * float(wrong.mean()), 3), "seconds": round(seconds, 2)}
    return found


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--basis", type=int, nargs="+", default=[100, 300, 500])
    parser.add_argument("--permutations", type=int, default=3)
    parser.add_argument("--trees", action="store_true")
    parser.add_argument("--refit", action="store_true")
    parser.add_argument("--classes", action="store_true")
    arguments = parser.parse_args()
    rows = (*read_forest("train", classes=arguments.classes), *read_forest("test", classes=arguments.classes))
    orders = [np.arange(len(rows[0]))]
    orders += [np.random.default_rng(seed).permutation(len(rows[0])) for seed in range(1, arguments.permutations + 1)]
    found: dict[Any, Any] = {}
    for max_basis in arguments.basis:
        runs = [measure(order[: arguments.rows], rows, max_basis, refit=arguments.refit) for order in orders]
        paper = {} if arguments.classes else {"paper": PAPER.get(max_basis)}
        found[max_basis] = paper | {"recipe": runs[0], "permutations": runs[1:]}
    if arguments.trees:
        found["trees"] = measure_trees((rows[0][: arguments.rows], rows[1][: arguments.rows], *rows[2:]))
    print(json.dumps({"rows": arguments.rows, "basis": found}, ensure_ascii=False))


if __name__ == "__main__":
    main()
