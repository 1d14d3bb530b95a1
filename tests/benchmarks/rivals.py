"""Measures one learner in its own process, and so its own peak memory: time, test error, VmHWM, as JSON.

    python tests/benchmarks/rivals.py nystroem --rows 500000 --basis 500

`online` is the product's learner on rows in memory, `ols` its OLS-59, `column-ols` the same with columns stored, as in
Figure 1 of Jung & Polani (2006); `nystroem` is scikit-learn's Nystroem (random rows as dictionary) and Ridge on the
same rows, with the same kernel and regularization. One BLAS thread for all.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.comparators import fit_column_ols
from benchmarks.measuring import (
    GAMMA,
    REGULARIZATION,
    Array,
    Took,
    Watch,
    error_percent,
    learn,
    new_learner,
    warm_up,
)
from support.data.forest import Rows, standardized_forest

from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.ols import OLSSettings, fit_ols
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.sums.row_set import ArrayRows

Predict = Callable[[Array], Array]
PREDICTION_ROWS = 8192


def fit_online(rows: Rows, max_basis: int) -> tuple[Predict, Took]:
    """Fit the product's learner; return its prediction function and the time."""
    warm_up(rows)
    learner = new_learner(max_basis)
    took = learn(learner, rows)
    return lambda X: learner.predict(X)[:, 0], took


def fit_nystroem(rows: Rows, max_basis: int) -> tuple[Predict, Took]:
    """Fit scikit-learn's Nystroem and Ridge with alpha = λn; return its prediction function and the time."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    features = Nystroem(kernel="rbf", gamma=GAMMA, n_components=max_basis, random_state=0)
    model = make_pipeline(features, Ridge(alpha=REGULARIZATION * len(rows.X)))
    watch = Watch()
    with one_blas_thread():
        model.fit(rows.X, rows.y)
    return model.predict, watch.read()


def fit_ols_by_sums(rows: Rows, max_basis: int) -> tuple[Predict, Took]:
    """Fit the product's OLS-59; return its prediction function and the time."""
    watch = Watch()
    with one_blas_thread():
        fitted = fit_ols(ArrayRows(rows.X, rows.y), RBF(GAMMA), OLSSettings(REGULARIZATION, max_basis), Silent())
    return lambda X: (fitted.basis.values(X) @ fitted.coefficients)[:, 0], watch.read()


def fit_ols_by_columns(rows: Rows, max_basis: int) -> tuple[Predict, Took]:
    """Fit OLS-59 that stores its columns; return its prediction function and the time."""
    watch = Watch()
    with one_blas_thread():
        model = fit_column_ols(RBF(GAMMA), rows.X, rows.y, max_basis, REGULARIZATION)
    return model.predict, watch.read()


FITS: dict[str, Callable[[Rows, int], tuple[Predict, Took]]] = {
    "online": fit_online,
    "ols": fit_ols_by_sums,
    "column-ols": fit_ols_by_columns,
    "nystroem": fit_nystroem,
}


def measure(name: str, n_rows: int, max_basis: int) -> dict[str, Any]:
    """Fit and test in this process; the peak is that of the fit, on Linux, beside the memory before it."""
    rows, test = standardized_forest(n_rows)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is that of reading the rows
    before = peak_rss_bytes()
    predict, took = FITS[name](rows, max_basis)
    peak = peak_rss_bytes()
    parts = range(0, len(test.X), PREDICTION_ROWS)
    scores = np.concatenate([predict(test.X[start : start + PREDICTION_ROWS]) for start in parts])
    return {
        "seconds": round(took.seconds, 3),
        "cpu_seconds": round(took.cpu_seconds, 3),
        "test_error_percent": error_percent(scores, test.y),
        "peak_bytes": peak,
        "peak_bytes_before_fitting": before,
    }


def measure_in_a_process(name: str, n_rows: int, max_basis: int) -> dict[str, Any]:
    """Run `measure` in a new process on one thread and return its figures."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, __file__, name, "--rows", str(n_rows), "--basis", str(max_basis)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **one}, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(FITS))
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--basis", type=int, default=500)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.name, arguments.rows, arguments.basis)))


if __name__ == "__main__":
    main()
