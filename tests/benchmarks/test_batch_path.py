"""The benchmark of pass and path runs from end to end and tells what it promises; no time is asserted."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.thorough

BENCHMARK = Path(__file__).with_name("batch_path.py")


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    flags = ("--rows", "2000", "--basis", "20", "--repeats", "1")
    done = subprocess.run([sys.executable, BENCHMARK, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_ratios_are_of_the_seconds_told(result: dict[str, Any]) -> None:
    assert (result["rows"], result["n_basis"]) == (2000, 20)
    passed, path = result["pass"], result["path"]
    for ratio, above, below in [
        (passed["ratio"], passed["pass_seconds"], passed["bare_seconds"]),
        (path["ratio"], path["path_seconds"], path["single_fit_seconds"]),
        (path["by_cost_ratio"], path["by_cost_seconds"], path["single_fit_seconds"]),
        (path["one_by_one_ratio"], path["one_by_one_seconds"], path["single_fit_seconds"]),
    ]:
        assert below > 0
        assert abs(ratio - above / below) < 0.001 + 1e-4 * ratio


def test_every_model_of_the_path_is_counted(result: dict[str, Any]) -> None:
    assert result["path"]["models"] == 20 * 20  # below 40 vectors, 5 % is one
    assert result["path"]["fits"] == 20 * 20 * 5
    assert result["path"]["repeated_fits_seconds"] > 0
