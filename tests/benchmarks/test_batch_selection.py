"""The benchmarks of choosing run from end to end and tell what they promise; no time is asserted."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.batch_selection import STORED_ROWS, BareProducts, measure_ols, multiply
from benchmarks.efvs_curves import CURVES, read_features, reconstruction_errors
from benchmarks.measuring import GAMMA
from benchmarks.ols_error import nested_scores
from support.data.forest import standardized_forest

from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.ols import OLSSettings, fit_ols
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.sums.row_set import ArrayRows


def run(script: str, *flags: str) -> Any:
    command = [sys.executable, str(Path(__file__).with_name(script)), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ols_is_measured_against_its_bare_products() -> None:
    train, _ = standardized_forest(STORED_ROWS + 500)
    found = measure_ols(train, 12)
    assert (found["rows"], found["n_basis"]) == (STORED_ROWS + 500, 12)
    assert found["passes"] < 12
    for name in ("ratio", "cpu_ratio", "ols_seconds", "bare_seconds", "ols_cpu_seconds", "bare_cpu_seconds"):
        assert found[name] > 0, name


def test_a_bare_product_is_the_product_of_kernel_columns() -> None:
    train, _ = standardized_forest(STORED_ROWS + 500)
    bare, vectors = BareProducts(train, 9), train.X[100:109]
    for size in (3, 9):
        bare.catch_up(vectors[:size])
    assert bare.paused.seconds > bare.took.seconds > 0
    found = multiply(train, train.X[:59], bare.stored, 7)
    Q, K = RBF(GAMMA).block(train.X, train.X[:59]), RBF(GAMMA).block(train.X, vectors[:7])
    np.testing.assert_allclose(found, Q.T @ K, rtol=1e-10)


@pytest.mark.thorough
def test_errors_on_forest_are_those_of_the_first_vectors() -> None:
    (found,) = run("ols_error.py", "--rows", "2000", "--basis", "10", "20", "--regularization", "1e-4")
    assert (found["rows"], found["regularization"], found["paper_at_most"]) == (2000, 1e-4, None)
    assert 15 < found["error_percent"]["20"] < found["error_percent"]["10"] < 50
    train, _ = standardized_forest(1000)
    rows = ArrayRows(train.X, train.y[:, np.newaxis])
    fitted = fit_ols(rows, RBF(GAMMA), OLSSettings(1e-4, 8), Silent())
    scores = nested_scores(fitted, train.X[:50], [8])[8]
    np.testing.assert_allclose(scores, (fitted.basis.values(train.X[:50]) @ fitted.coefficients)[:, 0], rtol=1e-6)


@pytest.mark.thorough
def test_curves_of_reconstruction_fall(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(5, 3, 120), "flat": np.ones(120), "b": rng.integers(0, 9, 120), "target": np.zeros(120)}
    pq.write_table(pa.table(table), tmp_path / "data.parquet")
    found = run("efvs_curves.py", str(tmp_path / "data.parquet"), "--max-basis", "20", "--seeds", "2")
    assert (found["rows"], found["gamma"], len(found["curves"])) == (120, 1 / 3, len(CURVES))
    for curve in found["curves"]:
        assert 1 > curve["reconstruction_error"]["10"] > curve["reconstruction_error"]["20"] >= 0
        assert curve["cpu_seconds"] > 0
    X = read_features(tmp_path / "data.parquet")
    assert X.mean(axis=0) == pytest.approx(0, abs=1e-12)
    kernel, vectors = RBF(0.5), X[[3, 50, 70]]
    k = kernel.block(vectors, X)
    explained = np.einsum("ij,ij->j", k, np.linalg.solve(kernel.block(vectors, vectors), k))
    assert reconstruction_errors(kernel, X, vectors)[-1] == pytest.approx(1 - explained.mean(), rel=1e-10)
