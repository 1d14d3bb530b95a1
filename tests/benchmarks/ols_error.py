"""Test error of OLS-59 on forest against the dictionary's size, for several regularizations.

    python tests/benchmarks/ols_error.py --rows 10000 50000 --basis 100 300 500 --regularization 1e-5 1e-6 1e-7

Rows are in memory; one dictionary of the largest size is chosen for each number of rows and regularization, the smaller
ones are its first vectors. Prints one JSON object, with the paper's mean + 2σ for the regularization it was run with.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import GAMMA, Array, Watch, error_percent, say
from support.data.forest import Rows, standardized_forest

from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.ols import OLSSettings, fit_ols
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.selection.nested_models import NestedModels
from ridgestream.pipeline.sums.row_set import ArrayRows

PAPER_AT_MOST = {
    10_000: {100: 23.16, 300: 21.72, 500: 20.57},
    50_000: {100: 22.85, 300: 20.88, 500: 19.87},
}
"""Mean + 2σ of OLS-59 in Table 2, in per cent."""


def measure(train: Rows, test: Rows, sizes: list[int], regularization: float, seed: int) -> dict[str, Any]:
    """Return the test error in per cent of each size, and the seconds of choosing the largest."""
    rows, watch = ArrayRows(train.X, train.y[:, np.newaxis]), Watch()
    settings = OLSSettings(regularization, max(sizes), random_seed=seed)
    fitted = fit_ols(rows, RBF(GAMMA), settings, Silent())
    took = watch.read()
    errors = {size: error_percent(scores, test.y) for size, scores in nested_scores(fitted, test.X, sizes).items()}
    result = {"rows": len(train.X), "regularization": regularization, "seed": seed, "error_percent": errors}
    return result | {
        "paper_at_most": PAPER_AT_MOST.get(len(train.X)),
        "seconds": round(took.seconds, 2),
        "cpu_seconds": round(took.cpu_seconds, 2),
        "passes": fitted.notes["passes"],
    }


def nested_scores(fitted: Fitted, X: Array, sizes: list[int]) -> dict[int, Array]:
    """Return the outputs (rows,) of the first vectors alone, for every size up to the dictionary's."""
    models = NestedModels.of(fitted.sums.total(), fitted.basis.penalty(), fitted.regularization)
    values = fitted.basis.values(X)
    return {s: (values[:, :s] @ models.coefficients(s))[:, 0] for s in sizes if s <= len(models)}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--basis", type=int, nargs="+", default=[100, 300, 500])
    parser.add_argument("--regularization", type=float, nargs="+", default=[1e-5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    found = []
    for n_rows in arguments.rows:
        train, test = standardized_forest(n_rows)
        for regularization in arguments.regularization:
            for seed in arguments.seeds:
                say(f"{n_rows} rows, regularization {regularization:g}, seed {seed}")
                found.append(measure(train, test, arguments.basis, regularization, seed))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
