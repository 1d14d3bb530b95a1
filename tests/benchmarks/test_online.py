"""The benchmark of the online learner runs from end to end and reports what it documents; no time is asserted."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.measuring import GAMMA, REGULARIZATION
from benchmarks.online import table
from support.data.forest import standardized_forest
from support.references.row_by_row import NumPyRowByRow

BENCHMARK = Path(__file__).with_name("online.py")
POINTS = {"against_basis": "max_basis", "against_rows": "rows"}


def assert_positive(*values: float) -> None:
    assert all(math.isfinite(value) and value > 0 for value in values), values


def check_parts(parts: dict[str, float]) -> None:
    assert_positive(*parts.values())
    summed = ("kernel", "W", "P", "inverse_of_P", "C", "A", "sweep", "swaps")
    assert set(parts) == {*summed, "sum", "lower_bound", "ratio", "a_swap", "nothing_to_decide", "triangular"}
    assert parts["sum"] == pytest.approx(sum(parts[name] for name in summed), abs=0.01)
    assert parts["ratio"] == pytest.approx(parts["sum"] / parts["lower_bound"], rel=0.05)


@pytest.mark.slow
def test_it_reports_what_it_documents_and_draws_the_curves(tmp_path: Path) -> None:
    picture = tmp_path / "cost.png"
    flags = ("--rows", "3000", "--basis", "40", "--quick", "--json", "--parts", "--plot", str(picture))
    done = subprocess.run([sys.executable, BENCHMARK, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["rows"] == 3000
    assert set(report["blas_threads"]) == {1}
    (figures,) = report["basis"]
    assert (figures["max_basis"], figures["n_basis"]) == (40, 40)
    assert_positive(
        *(figures[name] for name in ("ratio", "cpu_ratio", "learner_seconds", "lower_bound_seconds", "swaps"))
    )
    check_parts(figures["parts"])
    assert figures["row_by_row"]["same_dictionary"]
    speed_ups = ("speed_up", "speed_up_over_all_rows", "grow_and_prune_speed_up_over_all_rows")
    assert_positive(*(figures["row_by_row"][name] for name in speed_ups))
    ours, rival = figures["own_process"]["online"], figures["own_process"]["nystroem"]
    assert ours["test_error_percent"] == figures["test_error_percent"]
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
    assert line.split()[:2] == ["40", f"{figures['ratio']:.2f}"]


def test_growing_and_pruning_for_every_row_restores_states_that_scores_leave_unchanged() -> None:
    rows, test = (part.first(1500) for part in standardized_forest(1500))
    plain, printed = (NumPyRowByRow(GAMMA, REGULARIZATION, 40) for _ in range(2))
    printed.grow_and_prune = True
    for form in (plain, printed):
        form.learn(rows.X, rows.y)
    assert plain.basis_rows == printed.basis_rows
    assert plain.swaps == printed.swaps > 100
    assert np.abs(plain.predict(test.X) - printed.predict(test.X)).max() < 1e-7
