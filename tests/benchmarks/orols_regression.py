"""Test error of OROLS in the paper's regressions: a noisy sinc, and Boston and abalone from a folder of Parquet files.

    python tests/benchmarks/orols_regression.py --data DATA_FOLDER --sets sinc boston abalone

Prints one JSON object: for each set the mean and standard deviation of the error over random partitions, the vectors as
a share of the training rows, and the paper's figures beside. DATA_FOLDER holds boston.parquet and abalone.parquet, the
number to predict last as `target`. As in the paper, columns of numbers with more than two values get mean zero and
variance one, and a column of words becomes an indicator for each word. gamma is chosen once for all partitions, by
five-fold cross-validation on the training rows of the first ones.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.orols.orols import OrolsFitted, OROLSSettings, fit_orols
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.row_set import ArrayRows

PAPER = {
    "sinc": "RMSE .0431",
    "boston": "MSE 7.9 ± 3.28 with 26 % of the rows",
    "abalone": "MSE 4.32 ± .17 with 10.8 % of the rows",
}
TRAINING_ROWS = {"boston": 481, "abalone": 3000}
PARTITIONS = {"sinc": 100, "boston": 100, "abalone": 10}
JUDGED = {"sinc": 10, "boston": 3, "abalone": 1}
"""The partitions on whose training rows gamma is chosen."""
GRID = {
    "sinc": (0.02, 0.04, 0.08, 0.12, 0.2, 0.3),
    "boston": (0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.15),
    "abalone": (0.005, 0.01, 0.02, 0.04, 0.08, 0.15),
}
FOLDS = 5

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Partition:
    """Training and test rows."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array

    def folds(self) -> Iterator["Partition"]:
        """Yield the training rows with each fold of them as test rows."""
        dealt = deal_folds(0, len(self.X), FOLDS, 0)
        for fold in range(FOLDS):
            out = dealt == fold
            yield Partition(self.X[~out], self.y[~out], self.X[out], self.y[out])

    def fit(self, gamma: float, settings: OROLSSettings) -> OrolsFitted:
        """Return the model of the training rows."""
        return fit_orols(ArrayRows(self.X, self.y[:, np.newaxis]), RBF(gamma), settings, Silent())

    def squared_error(self, fitted: OrolsFitted) -> float:
        """Return the mean squared error on the test rows."""
        predicted = fitted.basis.values(self.X_test) @ fitted.coefficients[:, 0]
        return float(np.mean((predicted - self.y_test) ** 2))


def sinc_partitions() -> Iterator[Partition]:
    """Yield 50 training rows with noise of deviation .1, and 1,000 test rows without."""
    for seed in range(PARTITIONS["sinc"]):
        rng = np.random.default_rng(seed)
        x, x_test = rng.uniform(-10, 10, (50, 1)), rng.uniform(-10, 10, (1000, 1))
        y = np.sinc(x[:, 0] / np.pi) + 0.1 * rng.standard_normal(50)
        yield Partition(x, y, x_test, np.sinc(x_test[:, 0] / np.pi))


def stored_partitions(folder: Path, name: str) -> Iterator[Partition]:
    """Yield random partitions of a set of rows."""
    table = pq.read_table(folder / f"{name}.parquet")
    y = table["target"].to_numpy().astype(float)
    X = np.column_stack([_features(table[column]) for column in table.column_names if column != "target"])
    for seed in range(PARTITIONS[name]):
        order = np.random.default_rng(seed).permutation(len(X))
        train, test = order[: TRAINING_ROWS[name]], order[TRAINING_ROWS[name] :]
        yield Partition(X[train], y[train], X[test], y[test])


def _features(column: pa.ChunkedArray) -> Array:
    """Return a column as features, shape (n_rows, n)."""
    values = np.array(column.to_pylist())
    kinds = np.unique(values)
    if values.dtype.kind == "U":
        return np.asarray(values[:, np.newaxis] == kinds, dtype=float)
    if len(kinds) > 2:
        values = (values - values.mean()) / values.std()
    return np.asarray(values[:, np.newaxis], dtype=float)


def choose_gamma(partitions: list[Partition], grid: tuple[float, ...], settings: OROLSSettings) -> float:
    """Return the gamma of the least five-fold error."""
    folds = [fold for partition in partitions for fold in partition.folds()]
    errors = [np.mean([fold.squared_error(fold.fit(gamma, settings)) for fold in folds]) for gamma in grid]
    return grid[int(np.argmin(errors))]


def measure(name: str, partitions: list[Partition], settings: OROLSSettings) -> dict[str, Any]:
    """Return the errors over all partitions; those of sinc are roots."""
    gamma = choose_gamma(partitions[: JUDGED[name]], GRID[name], settings)
    fitted = [partition.fit(gamma, settings) for partition in partitions]
    errors = np.array([partition.squared_error(model) for partition, model in zip(partitions, fitted, strict=True)])
    errors = np.sqrt(errors) if name == "sinc" else errors
    shares = [100 * len(model.places) / len(part.X) for model, part in zip(fitted, partitions, strict=True)]
    return {
        "paper": PAPER[name],
        "gamma": gamma,
        "error": {
            "mean": round(float(errors.mean()), 4),
            "std": round(float(errors.std()), 4),
            "median": round(float(np.median(errors)), 4),
        },
        "vectors_percent": round(float(np.mean(shares)), 1),
    }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=list(PAPER), default=["sinc"])
    parser.add_argument("--partitions", type=int, help="at most this many of each set")
    parser.add_argument("--tolerance", type=float, default=OROLSSettings.tolerance)
    parser.add_argument("--patience", type=int, default=OROLSSettings.patience)
    arguments = parser.parse_args()
    if arguments.data is None and set(arguments.sets) != {"sinc"}:
        parser.error("--data is needed for boston and abalone")
    settings = OROLSSettings(max_basis=3000, tolerance=arguments.tolerance, patience=arguments.patience)
    found = {}
    for name in arguments.sets:
        drawn = sinc_partitions() if name == "sinc" else stored_partitions(arguments.data, name)
        found[name] = measure(name, list(islice(drawn, arguments.partitions)), settings)
    print(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    main()
