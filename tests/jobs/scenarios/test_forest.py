"""The main job on the whole of the bundled forest data: its bars, and that nights and workers leave no trace in it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ridgestream.stores.catalog.models import ModelRecord, require_model
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation

pytestmark = pytest.mark.slow

TOP = Path(__file__).parents[3]
RECIPE = TOP / "jobs" / "recipes" / "forest.toml"
COMMAND = Path(sys.executable).with_name("ridgestream")


def run_recipe(store: Path, *flags: str) -> dict[str, Any]:
    done = subprocess.run(
        [COMMAND, "run", RECIPE, "--store", store, "--json", *flags], capture_output=True, text=True, check=True
    )
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def model_in(store: Path) -> ModelRecord:
    return require_model(Store.open(StoreLocation.parse(str(store), Path.cwd())).root(), "forest")


@pytest.mark.parametrize(("max_basis", "bar"), [(100, 0.238), (300, 0.210), (500, 0.202)])
def test_the_error_of_one_pass_is_within_the_bar(tmp_path: Path, max_basis: int, bar: float) -> None:
    summary = run_recipe(tmp_path / "store", "--set", f"model.max_basis={max_basis}")
    assert summary["rows_seen"] == 500_000
    assert summary["n_basis"] == max_basis
    assert summary["test_error"] <= bar


def test_a_late_partition_and_a_cluster_leave_no_trace(tmp_path: Path) -> None:
    arriving = tmp_path / "train"
    arriving.mkdir()
    train = sorted((TOP / "jobs" / "recipes" / "forest" / "train").iterdir())
    flags = ["--set", "model.max_basis=100", "--set", f"source.path={arriving}"]
    for part in train[:9]:
        shutil.copy(part, arriving)
    run_recipe(tmp_path / "nights", *flags)
    shutil.copy(train[9], arriving)
    second = run_recipe(tmp_path / "nights", *flags)
    assert (second["new_partitions"], second["partitions_consumed"]) == (1, 10)
    run_recipe(tmp_path / "straight", *flags)
    run_recipe(tmp_path / "cluster", *flags, "--cluster", "local")
    nights, straight, cluster = (model_in(tmp_path / name) for name in ("nights", "straight", "cluster"))
    for other in (nights, cluster):
        assert other.counters == straight.counters
        assert other.encoding == straight.encoding
        assert other.learned == straight.learned
        assert all(np.array_equal(other.arrays[name], array) for name, array in straight.arrays.items())
