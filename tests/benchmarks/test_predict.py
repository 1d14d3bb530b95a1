"""The benchmark of prediction runs from end to end and tells what it promises; no time is asserted."""

import json
import subprocess
import sys
from pathlib import Path


def test_the_ratio_is_of_the_seconds_told() -> None:
    flags = ("--rows", "50000", "--basis", "20", "--repeats", "1")
    command = [sys.executable, str(Path(__file__).with_name("predict.py")), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["rows"], result["n_basis"], len(result["all_seconds"])) == (50_000, 20, 1)
    assert result["bare_seconds"] > 0
    assert abs(result["ratio"] - result["predict_seconds"] / result["bare_seconds"]) < 0.001 * (1 + result["ratio"])
