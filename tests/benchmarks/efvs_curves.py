"""EFVS's reconstruction error against the dictionary's size, as in Figure 1 of its paper.

    python tests/benchmarks/efvs_curves.py DATA.parquet --max-basis 200

Features (all columns but `target`) are standardized; gamma defaults to one over their number. (a, b): the candidates of
a round, ρ, vary with J over all rows; (c, d): the rows that J is over, ν, vary with ρ = 59. Prints one JSON object: for
each curve the mean relative reconstruction error over all rows after every tenth vector, the mean over the seeds, and
the mean seconds of choosing. The error is measured on all rows whatever ν is.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import Watch, say

from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.efvs import EFVSSettings, select_basis
from ridgestream.pipeline.kernels import RBF, Kernel
from ridgestream.pipeline.selection.candidate_rounds import NumberOrAll
from ridgestream.pipeline.sums.row_set import ArrayRows

Array = npt.NDArray[np.float64]
EVERY = 10
CURVES: list[tuple[NumberOrAll, NumberOrAll]] = [
    (10, "all"),
    (20, "all"),
    (59, "all"),
    (100, "all"),
    ("all", "all"),
    (59, 10),
    (59, 20),
    (59, 59),
    (59, 100),
    (59, 200),
]
"""ρ and ν."""


def read_features(path: Path) -> Array:
    """Return the standardized features (rows, n_features); a constant column is zero."""
    table = pq.read_table(path)
    names = [name for name in table.column_names if name != "target"]
    X = np.stack([table[name].to_numpy().astype(np.float64) for name in names], axis=1)
    deviations = X.std(axis=0)
    return np.asarray((X - X.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0), np.float64)


def reconstruction_errors(kernel: Kernel, X: Array, vectors: Array) -> Array:
    """Return the mean relative reconstruction error of all rows by the first vectors, for every size from one on."""
    factor = np.linalg.cholesky(kernel.block(vectors, vectors))
    half = np.linalg.solve(factor, kernel.block(vectors, X))
    return np.asarray(1 - np.cumsum(np.mean(half**2 / kernel.diagonal(X), axis=1)))


def measure(
    X: Array, gamma: float, max_basis: int, curve: tuple[NumberOrAll, NumberOrAll], seeds: int
) -> dict[str, Any]:
    """Return one curve, the mean over the seeds."""
    candidates, sample = curve
    rows, kernel = ArrayRows(X, np.zeros((len(X), 1))), RBF(gamma)
    errors, seconds = list[Array](), list[float]()
    for seed in range(seeds):
        watch = Watch()
        settings = EFVSSettings(1e-5, max_basis, candidates=candidates, sample=sample, random_seed=seed)
        chosen = select_basis(rows, kernel, settings, Silent())
        seconds.append(watch.read().cpu_seconds)
        errors.append(reconstruction_errors(kernel, X, chosen.vectors))
    n_basis = min(len(found) for found in errors)
    mean = np.mean([found[:n_basis] for found in errors], axis=0)
    points = {size: float(f"{mean[size - 1]:.4g}") for size in range(EVERY, n_basis + 1, EVERY)}
    result = {"candidates": candidates, "sample": sample, "n_basis": n_basis, "reconstruction_error": points}
    return result | {"cpu_seconds": round(float(np.mean(seconds)), 4)}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--gamma", type=float)
    parser.add_argument("--max-basis", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    X = read_features(arguments.data)
    gamma = arguments.gamma or 1 / X.shape[1]
    curves = []
    for curve in CURVES:
        say(f"candidates {curve[0]}, J over {curve[1]} rows")
        curves.append(measure(X, gamma, arguments.max_basis, curve, arguments.seeds))
    print(json.dumps({"rows": len(X), "gamma": gamma, "seeds": arguments.seeds, "curves": curves}, indent=1))


if __name__ == "__main__":
    main()
