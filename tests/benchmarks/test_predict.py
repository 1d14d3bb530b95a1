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
    told = json.loads(done.stdout)
    assert (told["rows"], told["n_basis"], len(told["all_seconds"])) == (50_000, 20, 1)
    assert told["bare_seconds"] > 0
    assert abs(told["ratio"] - told["predict_seconds"] / told["bare_seconds"]) < 0.001 * (1 + told["ratio"])
