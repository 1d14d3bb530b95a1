"""Test error of OROLS in the paper's classifications, from a folder of Parquet files, and on forest's bundled rows.

    python tests/benchmarks/orols_error.py DATA_FOLDER --sets optdigits satimage --choose
    python tests/benchmarks/orols_error.py --sets forest --rows 50000 --basis 100 300 500

Prints one JSON object: for each set the error in per cent, the vectors of the dictionary and of a machine as a share of
the rows, passes, and the seconds of fitting in one process. DATA_FOLDER holds optdigits.parquet and the like: training
rows first, then test rows, the label last as `target`. Their features have their means taken away and are divided by
one number, the mean of their standard deviations, since they are of one unit. With --choose, gamma is taken
from the grid by five-fold cross-validation on the training rows, with dictionaries of at most --choose-basis vectors,
as in the paper; without it, it is GAMMAS'. The paper's figures are printed beside. GAMMAS were taken from a handful of
widths whose test errors were known: their errors show what the method can reach, not what it would choose. The folds of
the sets of digits hold the writers of the training rows, and tell these widths apart by a few rows only.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support`, as pytest finds it

from support.data.forest import standardized_forest

from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.orols.orols import OrolsFitted, OROLSSettings, fit_orols
from ridgestream.pipeline.features.one_vs_rest import scores_of, winners_of
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.row_set import ArrayRows

TRAINING_ROWS = {"usps": 7291, "letter": 16000, "optdigits": 3823, "pendigits": 7494, "satimage": 4435}
PAPER = {
    "usps": "4.4 with 10 % a machine",
    "letter": "2.61 with 4.3 % a machine",
    "optdigits": "1.11 with 10.2 % a machine",
    "pendigits": "1.66 with 1.9 % a machine",
    "satimage": "8.2 with 7.5 % a machine",
}
GAMMAS = {"usps": 0.004, "letter": 0.5, "optdigits": 0.015, "pendigits": 0.25, "satimage": 0.25, "forest": 1 / 54}
GRID = {
    "usps": (0.002, 0.004, 0.008, 0.016),
    "letter": (0.125, 0.25, 0.5, 1.0),
    "optdigits": (0.01, 0.015, 0.022, 0.033, 0.05),
    "pendigits": (0.1, 0.15, 0.25, 0.4, 0.6),
    "satimage": (0.1, 0.15, 0.25, 0.4, 0.6),
}
FOLDS = 5

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """Training and test rows with a target of ±1 for each class, or one for two classes."""

    X: Array
    Y: Array
    X_test: Array
    Y_test: Array

    def fold(self, fold: int) -> "Task":
        """Return the training rows with those of a fold as test rows."""
        out = deal_folds(0, len(self.X), FOLDS, 0) == fold
        return Task(self.X[~out], self.Y[~out], self.X[out], self.Y[out])


def read_classes(folder: Path, name: str) -> Task:
    """Return the rows of one of the paper's sets."""
    table = pq.read_table(folder / f"{name}.parquet")
    labels = np.array(table["target"].to_pylist())
    X = np.column_stack([table[c].to_numpy() for c in table.column_names if c != "target"]).astype(float)
    Y = np.where(labels[:, np.newaxis] == np.unique(labels), 1.0, -1.0)
    n = TRAINING_ROWS[name]
    X = (X - X[:n].mean(axis=0)) / X[:n].std(axis=0).mean()
    return Task(X[:n], Y[:n], X[n:], Y[n:])


def read_forest_rows(rows: int) -> Task:
    """Return the first training rows of forest and its test rows."""
    train, test = standardized_forest(rows)
    return Task(train.X, train.y[:, np.newaxis], test.X, test.y[:, np.newaxis])


def error_percent(fitted: OrolsFitted, task: Task) -> float:
    """Return how many of the test rows get a wrong class."""
    wrong = 0
    for start in range(0, len(task.X_test), 4096):
        part = slice(start, start + 4096)
        outputs, wanted = fitted.basis.values(task.X_test[part]) @ fitted.coefficients, task.Y_test[part]
        n_classes = max(2, wanted.shape[1])
        wrong += int(np.sum(winners_of(scores_of(outputs, n_classes)) != winners_of(scores_of(wanted, n_classes))))
    return round(100 * wrong / len(task.X_test), 3)


def fit(task: Task, gamma: float, settings: OROLSSettings) -> OrolsFitted:
    """Fit the training rows."""
    return fit_orols(ArrayRows(task.X, task.Y), RBF(gamma), settings, Silent())


def choose_gamma(task: Task, grid: tuple[float, ...], max_basis: int) -> tuple[float, dict[str, float]]:
    """Return the gamma of the smallest five-fold error, and all their errors."""
    settings = OROLSSettings(max_basis=max_basis)
    errors = {}
    for gamma in grid:
        folds = [task.fold(fold) for fold in range(FOLDS)]
        errors[gamma] = float(np.mean([error_percent(fit(part, gamma, settings), part) for part in folds]))
    return min(errors, key=errors.__getitem__), {str(gamma): round(error, 3) for gamma, error in errors.items()}


def measure(task: Task, gamma: float, settings: OROLSSettings) -> dict[str, Any]:
    """Return what one fit gives."""
    began = perf_counter()
    fitted = fit(task, gamma, settings)
    seconds = perf_counter() - began
    sizes = np.count_nonzero(fitted.machines.turns >= 0, axis=0)
    return {
        "error_percent": error_percent(fitted, task),
        "gamma": gamma,
        "n_basis": len(fitted.places),
        "machine_percent": round(100 * float(sizes.mean()) / len(task.X), 2),
        "machines": [int(size) for size in sizes],
        "passes": fitted.notes["passes"],
        "condition": round(fitted.notes["condition"], 1),
        "regularization": fitted.regularization,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--sets", nargs="+", choices=list(GAMMAS), default=["optdigits"])
    parser.add_argument("--rows", type=int, default=50_000, help="of forest")
    parser.add_argument("--basis", type=int, nargs="+", default=[500], help="of forest")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--choose-basis", type=int, default=1500)
    arguments = parser.parse_args()
    if arguments.folder is None and set(arguments.sets) != {"forest"}:
        parser.error("DATA_FOLDER is needed for all sets but forest")
    found: dict[str, Any] = {}
    for name in arguments.sets:
        if name == "forest":
            task = read_forest_rows(arguments.rows)
            sizes = {n: OROLSSettings(max_basis=n, patience=n) for n in arguments.basis}
            found[name] = {n: measure(task, GAMMAS[name], settings) for n, settings in sizes.items()}
            continue
        task, gamma = read_classes(arguments.folder, name), GAMMAS[name]
        errors: dict[str, float] = {}
        if arguments.choose:
            gamma, errors = choose_gamma(task, GRID[name], arguments.choose_basis)
        run = measure(task, gamma, OROLSSettings(max_basis=len(task.X)))
        found[name] = {"paper": PAPER[name], "fold_error_percent": errors} | run
    print(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    main()
