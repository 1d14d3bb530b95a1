"""Rows that are ordered in time: errors beside those of the last value, and a model that is no better is called so."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.jobs.jobs import Settings, Workplace, run_command
from support.points import points

ROWS = 150
WALK: Settings = {"source.target": "y", "source.positive": None, "report": "out"}
METHODS: dict[str, Settings] = {"online": {}, "ols": {"model.method": "ols", "model.folds": 2}}


def walk(partitions: int) -> list[pa.Table]:
    """A random walk, of which a column of noise says nothing, with the time of each row."""
    rng, rows = np.random.default_rng(0), ROWS * partitions
    start = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table(
        {
            "x": rng.normal(size=rows),
            "at": pa.array([start + timedelta(hours=hour) for hour in range(rows)], pa.timestamp("us", "UTC")),
            "y": np.cumsum(rng.normal(size=rows)),
        }
    )
    return [table.slice(ROWS * number, ROWS) for number in range(partitions)]


def put(work: Workplace, tables: list[pa.Table]) -> None:
    for number, table in enumerate(tables[:-1]):
        work.put(number, table)
    work.put(0, tables[-1], where="held-out")


@pytest.mark.parametrize("method", points([*METHODS], ["online"]))
def test_a_model_that_is_no_better_than_the_last_value_is_called_so(tmp_path: Path, method: str) -> None:
    work, tables = Workplace(tmp_path), walk(3)
    put(work, [table.drop_columns(["at"]) for table in tables])
    changes = {**WALK, **METHODS[method], "source.ordered": True}
    result = work.run_here(changes)
    expected = np.mean(np.diff(tables[2]["y"].to_numpy()) ** 2)
    assert result["last_value_error"] == pytest.approx(expected, rel=1e-9)
    assert result["skill_over_last_value"] == pytest.approx(1 - result["test_mse"] / expected)
    assert result["skill_over_last_value"] < 0
    if method == "online":
        learned = np.concatenate([table["y"].to_numpy() for table in tables[:2]])
        assert result["progressive_last_value_error"] == pytest.approx(np.mean(np.diff(learned) ** 2))
    report: dict[str, Any] = json.loads(Path(result["report"]["json"]).read_text())
    assert report["words"]["headline"] in ("No better than the last value", "No better than a constant")
    assert (
        "Rows are ordered in time; the model is no better than the target of the row before."
        in (report["words"]["sentences"])
    )
    assert "evaluate.no_better_than_last_value" in [each["code"] for each in report["said"]]
    evaluated = work.evaluate_here(changes)
    assert evaluated["last_value_error"] == result["last_value_error"]
    assert "last_value_error" not in work.evaluate_here({**changes, "source.ordered": False})


@pytest.mark.thorough
def test_a_time_stamp_says_that_rows_are_ordered(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    put(work, walk(3))
    assert "last_value_error" in run_command("run", work.job(WALK), "--json").result
    quiet = {**WALK, "source.ordered": False, "store": "other"}
    assert "last_value_error" not in run_command("run", work.job(quiet), "--json").result
