"""The benchmark of the online learner runs from end to end and tells what it promises; no time is asserted."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.online import table

BENCHMARK = Path(__file__).with_name("online.py")
POINTS = {"against_basis": "max_basis", "against_rows": "rows"}


def assert_positive(*values: float) -> None:
    assert all(math.isfinite(value) and value > 0 for value in values), values


def test_it_tells_what_it_promises_and_draws_the_curves(tmp_path: Path) -> None:
    picture = tmp_path / "cost.png"
    flags = ("--rows", "3000", "--basis", "40", "--quick", "--json", "--plot", str(picture))
    done = subprocess.run([sys.executable, BENCHMARK, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["rows"] == 3000
    assert set(report["blas_threads"]) == {1}
    (found,) = report["basis"]
    assert (found["max_basis"], found["n_basis"]) == (40, 40)
    assert_positive(
        *(found[name] for name in ("ratio", "cpu_ratio", "learner_seconds", "lower_bound_seconds", "swaps"))
    )
    assert found["row_by_row"]["same_dictionary"]
    assert_positive(found["row_by_row"]["speed_up"], found["row_by_row"]["speed_up_over_all_rows"])
    ours, rival = found["own_process"]["online"], found["own_process"]["nystroem"]
    assert ours["test_error_percent"] == found["test_error_percent"]
    for measured in (ours, rival):
        assert_positive(measured["seconds"])
        assert 0 < measured["test_error_percent"] < 50
        assert measured["peak_bytes"] >= measured["peak_bytes_before_fitting"] > 500 * 54 * 8
    for curve, along in POINTS.items():
        points = report["curves"][curve]
        assert len(points) == 3
        assert_positive(*(point[name] for point in points for name in (along, "cpu_microseconds_per_row")))
    assert picture.read_bytes().startswith(b"\x89PNG")
    header, line = table(report).splitlines()
    assert header.split()[:3] == ["m", "ratio", "seconds"]
    assert line.split()[:2] == ["40", f"{found['ratio']:.2f}"]
