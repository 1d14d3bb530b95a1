"""The benchmark of the paper's figures runs from end to end, tells what it promises and draws it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data.motorcycle import motorcycle

BENCHMARK = Path(__file__).with_name("sparse_curves.py")


@pytest.mark.slow
def test_isls_lies_below_sls_and_is_level_to_few_vectors(tmp_path: Path) -> None:
    data = motorcycle(60, 1)
    pq.write_table(pa.table({"t": 30 + 9 * data.X[:, 0], "a": 48 * data.y[:, 0]}), tmp_path / "rows.parquet")
    picture = tmp_path / "curves.png"
    flags = ("--target", "a", "--plot", str(picture))
    done = subprocess.run(
        [sys.executable, BENCHMARK, tmp_path / "rows.parquet", *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["rows"] == 60
    isls, sls = found["isls_svm"], found["sls_svm"]
    for curve in (isls, sls):
        assert len(curve["n_basis"]) == len(curve["rmse"])
        assert (np.diff(curve["n_basis"]) < 0).all()
    assert (isls["n_basis"][-1], sls["n_basis"][-1]) == (1, 2)
    assert 10 < isls["rmse"][0] < 30  # of a target with a standard deviation of 48
    assert isls["level_down_to"] <= 12
    assert found["isls_below_share"] > 0.9
    assert picture.read_bytes().startswith(b"\x89PNG")
