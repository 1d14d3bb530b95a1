"""What ISLS-SVM's pass costs over bare products, and what the whole path costs over a single fit.

    python tests/benchmarks/batch_path.py --rows 500000 --basis 500

On the bundled forest rows, standardized and in memory, on one BLAS thread, as JSON. Measurements that are compared are
taken in turn, `--repeats` times, and their least CPU seconds are divided: what else a machine does only ever adds.

- `pass`: one pass of ISLS-SVM (5 folds, the constant function) over kernel blocks and symmetric rank-k updates alone.
- `path`: everything (one pass, 20 regularizations, 5 folds, every size in steps of 5 %, the best one refitted) over a
  single fit (one pass without folds, one solution); the same one by one, and by cost in place of |β|; and what fitting
  each model of the path by a pass of its own would cost, from fits of some sizes on fewer rows.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import GAMMA, Array, Watch, lower_bound, say
from support.data.forest import Rows, standardized_forest

from ridgestream.pipeline.base.events import STEP_SUM_DICTIONARY
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.isls_svm import ISLSSVMSettings, fit_isls_svm
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.selection.backward_elimination import Score, plan_sizes
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import Summing
from ridgestream.pipeline.sums.row_set import ArrayRows

FOLDS = 5
REGULARIZATIONS = tuple(float(value) for value in np.logspace(-9, -3, 20))
SIZES_OF_FITS = (1.0, 0.6, 0.3, 0.1, 0.02)
"""Shares of the dictionary at which a single fit is measured; between them its cost is interpolated."""


def rows_of(rows: Rows) -> ArrayRows:
    """Return them as a row set."""
    return ArrayRows(rows.X, rows.y[:, np.newaxis])


def random_start(rows: Rows, n_basis: int) -> StartingDictionary:
    """Return so many rows drawn at random."""
    places = np.sort(np.random.default_rng(0).choice(len(rows.X), n_basis, replace=False))
    return StartingDictionary.of_rows(rows_of(rows), places)


def least_seconds(repeats: int, *works: Callable[[], object]) -> list[float]:
    """Return the least CPU seconds of each, all of them run in turn."""
    took = [[_cpu_seconds(work) for work in works] for _ in range(repeats)]
    return [min(column) for column in zip(*took, strict=True)]


def measure_pass(rows: Rows, dictionary: Array, repeats: int) -> dict[str, Any]:
    """Return what one pass costs over the bare accumulation: `ratio`, and both in CPU seconds."""
    basis = Basis(RBF(GAMMA), dictionary, np.zeros(dictionary.shape[1]), constant=True)
    summing, row_set = Summing(basis, 1, FOLDS), rows_of(rows)
    ours, bare = least_seconds(
        repeats, lambda: row_set.statistics((summing,), STEP_SUM_DICTIONARY), lambda: lower_bound(rows, dictionary)
    )
    found = {"ratio": round(ours / bare, 3), "pass_seconds": round(ours, 9), "bare_seconds": round(bare, 9)}
    say(f"pass: {found}")
    return found


def measure_path(rows: Rows, start: StartingDictionary, repeats: int) -> dict[str, Any]:
    """Return what the path costs over a single fit: `ratio`, `one_by_one_ratio`, and all in CPU seconds."""
    single, whole = least_seconds(repeats, lambda: fit_once(rows, start), lambda: fit_path(rows, start, 0.05))
    one_by_one = _cpu_seconds(lambda: fit_path(rows, start, 0.0))
    by_cost = _cpu_seconds(lambda: fit_path(rows, start, 0.05, score="cost"))
    fitted = fit_path(rows.first(min(len(rows.X), 20_000)), start, 0.05)
    repeated, fits = repeated_fits_seconds(rows, start)
    found = {
        "ratio": round(whole / single, 3),
        "one_by_one_ratio": round(one_by_one / single, 3),
        "by_cost_ratio": round(by_cost / single, 3),
        "repeated_fits_ratio": round(repeated / single, 1),
        "path_seconds": round(whole, 9),
        "single_fit_seconds": round(single, 9),
        "one_by_one_seconds": round(one_by_one, 9),
        "by_cost_seconds": round(by_cost, 9),
        "repeated_fits_seconds": round(repeated, 1),
        "fits": fits,
        "models": 0 if fitted.path is None else len(fitted.path.value),
    }
    say(f"path: {found}")
    return found


def fit_once(rows: Rows, start: StartingDictionary) -> Fitted:
    """Fit the whole dictionary with one regularization."""
    settings = ISLSSVMSettings(REGULARIZATIONS[:1], folds=1, smallest=len(start.vectors))
    return fit_isls_svm(rows_of(rows), [RBF(GAMMA)], start, settings, Silent())


def fit_path(rows: Rows, start: StartingDictionary, step: float, score: Score = "coefficient") -> Fitted:
    """Fit the best model of the path."""
    settings = ISLSSVMSettings(REGULARIZATIONS, folds=FOLDS, step=step, score=score)
    return fit_isls_svm(rows_of(rows), [RBF(GAMMA)], start, settings, Silent())


def repeated_fits_seconds(rows: Rows, start: StartingDictionary) -> tuple[float, int]:
    """Return what fitting each model of the 5 % path to the rows of its folds would take, and how many fits it is."""
    some = rows.first(min(len(rows.X), 20_000))
    sizes = sorted({max(1, int(share * len(start.vectors))) for share in SIZES_OF_FITS})
    parts = [StartingDictionary(start.vectors[:size], start.places[:size]) for size in sizes]
    seconds = [least_seconds(2, lambda part=part: fit_once(some, part))[0] for part in parts]  # type: ignore[misc]
    path = plan_sizes(len(start.vectors), 0.05)
    of_a_fold = float(np.interp(path, sizes, seconds).sum()) * len(rows.X) / len(some.X) * (FOLDS - 1) / FOLDS
    return of_a_fold * FOLDS * len(REGULARIZATIONS), len(path) * FOLDS * len(REGULARIZATIONS)


def measure(rows: Rows, n_basis: int, repeats: int) -> dict[str, Any]:
    """Return both measurements."""
    start = random_start(rows, n_basis)
    return {
        "rows": len(rows.X),
        "n_basis": n_basis,
        "pass": measure_pass(rows, start.vectors, repeats),
        "path": measure_path(rows, start, repeats),
    }


def _cpu_seconds(work: Callable[[], object]) -> float:
    watch = Watch()
    work()
    return watch.read().cpu_seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--basis", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    rows, _ = standardized_forest(arguments.rows)
    print(json.dumps(measure(rows, arguments.basis, arguments.repeats)))


if __name__ == "__main__":
    main()
