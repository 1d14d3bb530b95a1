"""ISLS-SVM's and SLS-SVM's error along their paths, as in Figures 1 and 2 of Cawley & Talbot (2002).

    python tests/benchmarks/sparse_curves.py motorcycle.parquet --target accel --plot curves.png

Columns and target are standardized. Both methods are judged by the same 10 folds left out, each pruned again in steps
of 5 % without the fold's rows. As in the paper, SLS-SVM selects its regularization and width again at each step, by 4
folds of the rows that are left; ISLS-SVM keeps those that are best for the whole dictionary. It begins with the rows
that are independent within rounding: more of them are the same model, which is drawn as a level line. Rows of the fold
left out are among them, without their targets: for the whole dictionary, their coefficients are zero. Errors are root
mean squares in the target's units. JSON on standard output.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.cost_plot import STYLE
from benchmarks.measuring import say

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.dense.sls_svm import SLSSVMSettings, fit_sls_svm
from ridgestream.pipeline.batch.isls_svm import ISLSSVMSettings, fit_isls_svm
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.selection.fit_result import Path as Models
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.row_set import ArrayRows

REGULARIZATIONS = tuple(float(value) for value in np.logspace(-7, 0, 15))
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Of the kernel, times one over the number of features."""
FOLDS = 10
LEVEL = 1.05
"""A path is level where its error is no more than this times that of the whole dictionary."""


@dataclass(frozen=True)
class Table:
    """Rows in memory."""

    rows: ArrayRows
    """Standardized."""
    scale: float
    """The target's standard deviation."""


def read(path: Path, target: str) -> Table:
    """Read every column of a Parquet file, which must be numbers."""
    table = pq.read_table(path)
    y = table[target].to_numpy().astype(float)
    X = np.column_stack([table[name].to_numpy().astype(float) for name in table.column_names if name != target])
    X, scale = (X - X.mean(axis=0)) / X.std(axis=0), float(y.std())
    return Table(ArrayRows(X, ((y - y.mean()) / scale)[:, np.newaxis]), scale)


def kernels_for(rows: ArrayRows) -> list[RBF]:
    """Return the widths that are tried."""
    return [RBF(width / rows.n_features) for width in WIDTHS]


def isls_curve(table: Table, seed: int) -> dict[str, Any]:
    """Return sizes and errors of the path whose width and regularization are best for the whole dictionary."""
    start = StartingDictionary.of_rows(table.rows, np.arange(table.rows.n_rows))
    settings = ISLSSVMSettings(REGULARIZATIONS, folds=FOLDS, random_seed=seed)
    path = _path(fit_isls_svm(table.rows, kernels_for(table.rows), start, settings, Silent()).path)
    best = _best_of_whole(path)
    mine = (path.width == path.width[best]) & (path.regularization == path.regularization[best])
    curve = _curve(path.n_basis[mine], path.value[mine], table.scale)
    errors = np.asarray(curve["rmse"])
    return {
        **curve,
        "gamma": kernels_for(table.rows)[int(path.width[best])].gamma,
        "regularization": float(path.regularization[best]),
        "level_down_to": int(path.n_basis[mine][errors <= LEVEL * errors[0]].min()),
    }


def sls_curve(table: Table, seed: int) -> dict[str, Any]:
    """Return sizes and errors of Suykens' pruning."""
    settings = SLSSVMSettings(REGULARIZATIONS, folds=FOLDS, random_seed=seed)
    path = _path(fit_sls_svm(table.rows, kernels_for(table.rows), settings, Silent()).path)
    return _curve(path.n_basis, path.value, table.scale)


def compare(table: Table, seed: int) -> dict[str, Any]:
    """Return both curves, and the share of sizes at which ISLS-SVM's error is below."""
    isls = isls_curve(table, seed)
    say(f"ISLS-SVM: level down to {isls['level_down_to']} vectors")
    sls = sls_curve(table, seed)
    below = float(np.mean(at(isls, sls["n_basis"]) < np.asarray(sls["rmse"])))
    return {"rows": table.rows.n_rows, "seed": seed, "isls_svm": isls, "sls_svm": sls, "isls_below_share": below}


def at(curve: dict[str, Any], sizes: list[int]) -> Floats:
    """Return a curve's error at these sizes, level beyond its largest."""
    return np.asarray(np.interp(sizes, curve["n_basis"][::-1], curve["rmse"][::-1]))


def plot(found: dict[str, Any], title: str, path: Path) -> None:
    """Draw both curves into one PNG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    isls, sls = found["isls_svm"], found["sls_svm"]
    sizes, level = sorted({*sls["n_basis"], *isls["n_basis"]}), isls["level_down_to"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 4.6), layout="constrained")
        axes = figure.subplots()
        axes.plot(sls["n_basis"], sls["rmse"], color="#c8641e", linewidth=1.4, label="SLS-SVM, selecting at each step")
        axes.plot(sizes, at(isls, sizes), color="#1f5fa8", linewidth=2.0, label="ISLS-SVM")
        axes.set(yscale="log", xlabel="vectors", ylabel="error on rows left out (root mean square)")
        axes.set_xlim(0, max(sizes))
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.axvline(
            level, color="#8a8a8a", linestyle="--", linewidth=1.0, label=f"{level} vectors: ISLS-SVM within 5 %"
        )
        figure.legend(loc="outside lower center", ncols=3)
        axes.set_title(title)
        figure.savefig(path, dpi=150)


def _path(path: Models | None) -> Models:
    if path is None:
        raise ValueError("there is no path")
    return path


def _best_of_whole(path: Models) -> int:
    """Return the entry of least error among those with the whole dictionary."""
    largest = np.array([path.n_basis[path.width == width].max() for width in range(path.width.max() + 1)])
    return int(np.argmin(np.where(path.n_basis == largest[path.width], path.value, np.inf)))


def _curve(sizes: Integers, errors: Floats, scale: float) -> dict[str, Any]:
    return {"n_basis": sizes.tolist(), "rmse": [round(float(e), 5) for e in scale * np.sqrt(errors)]}


def main() -> None:
    """Measure, draw, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--seed", type=int, default=0, help="what rows are dealt to folds with")
    parser.add_argument("--plot", type=Path, metavar="PNG")
    arguments = parser.parse_args()
    found = compare(read(arguments.data, arguments.target), arguments.seed)
    if arguments.plot:
        plot(found, f"{arguments.data.stem}, {found['rows']} rows", arguments.plot)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
