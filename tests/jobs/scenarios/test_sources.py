"""Sources as other programs leave them, through the real command: what is read, refused, passed over, and said."""

import json
import os
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import (
    REGRESSION,
    Outcome,
    Workplace,
    assert_same_model,
    draw_regression,
    run_command,
    set_column,
)
from support.jobs.recording import Notes
from support.points import points

from ridgestream import Store, StoreLocation, open_dask_arrays
from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.requests import source_partitions

JOB = {**REGRESSION, "evaluate.path": None}
PASSED_OVER = [(".hidden.parquet", "warning"), ("_old/a.parquet", "warning"), ("a.csv", "info")]


def put(work: Workplace, name: str, table: pa.Table, **options: Any) -> None:
    path = work.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def draw_shifted(seed: int, shift: float) -> pa.Table:
    """Rows whose price depends on a region that only their folder tells."""
    table = draw_regression(seed)
    return set_column(table, "price", pa.array(table["price"].to_numpy() + shift))


def put_regions(work: Workplace, where: str, seed: int = 0) -> None:
    for number, (region, shift) in enumerate([("eu", -2000.0), ("us", 2000.0)]):
        put(work, f"{where}/region={region}/part-{number}.parquet", draw_shifted(seed + number, shift))


def events_of(outcome: Outcome) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in outcome.err.splitlines() if line.startswith("{")]
    return {line["event"]: line for line in lines}


def test_int96_time_stamps_make_the_model_of_microseconds(tmp_path: Path) -> None:
    moments = [datetime(1900 + row % 50, 1, 1) if row % 9 else datetime(9999, 12, 31) for row in range(200)]
    table = set_column(draw_regression(0), "until", pa.array(moments, pa.timestamp("us")))
    ours, other = Workplace(tmp_path / "int96"), Workplace(tmp_path / "us")
    put(ours, "rows/part-0.parquet", table, use_deprecated_int96_timestamps=True, store_schema=False)
    put(other, "rows/part-0.parquet", table)
    for work in (ours, other):
        assert run_command("run", work.job(JOB)).code == 0
    assert_same_model(ours.model(), other.model())


@pytest.mark.parametrize("column", points(["size", "price"], ["price"]))
def test_decimals_that_float64_cannot_tell_apart_are_refused(tmp_path: Path, column: str) -> None:
    work = Workplace(tmp_path)
    numbers = pa.array([Decimal(2**60 + row) for row in range(200)], pa.decimal128(20, 0))
    put(work, "rows/part-0.parquet", set_column(draw_regression(0), column, numbers))
    outcome = run_command("run", work.job(JOB))
    assert outcome.code == exit_codes.DATA
    assert f"part-0.parquet: column '{column}' has the value 1152921504606846976 in row 0" in outcome.err


def test_a_delta_table_is_refused_wherever_rows_are_read(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for folder in ("rows", "table"):
        put(work, f"{folder}/part-0.parquet", draw_regression(0))
    assert run_command("run", work.job(JOB)).code == 0
    (work.folder / "table" / "_delta_log").mkdir()
    table = work.job({**JOB, "source.path": "table", "evaluate.path": "table"}, "table.toml")
    commands: list[list[str | Path]] = [["run", table], ["ingest", table], ["plan", table], ["evaluate", table]]
    commands.append(["predict", work.job(JOB), work.folder / "table", work.folder / "out"])
    for command in commands:
        outcome = run_command(*command)
        assert outcome.code == exit_codes.DATA, outcome
        assert "belongs to a table of Delta, whose log is" in outcome.err
        assert "export the table into a folder of its own" in outcome.err


def test_a_model_learns_and_predicts_by_the_keys_of_folders(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    put_regions(work, "rows")
    put_regions(work, "held-out", seed=10)
    job = work.job({**REGRESSION, "predict.keep": ["region", "price"], "model.scaling_rows": 400})
    assert run_command("plan", job).code == 0
    result = run_command("run", job, "--json").result
    assert result["test_mse"] < 500.0**2  # without the key, 2000²
    assert run_command("evaluate", job, "--json").result["test_mse"] == result["test_mse"]
    assert run_command("predict", job, work.folder / "held-out", work.folder / "out").code == 0
    for region in ("eu", "us"):
        (path,) = (work.folder / "out" / f"region={region}").iterdir()
        predicted = pq.ParquetFile(path).read()
        assert predicted["region"].to_pylist() == [region] * 200
        errors = predicted["prediction"].to_numpy() - predicted["price"].to_numpy()
        assert np.sqrt(np.mean(errors**2)) < 500


@pytest.mark.thorough
def test_a_plan_keeps_the_leading_zeros_of_a_categorical_key(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for where in ("rows", "held-out"):
        for zone in ("007", "07"):
            put(work, f"{where}/zone={zone}/part-0.parquet", draw_regression(0))
    job = work.job({**REGRESSION, "source.categorical": ["zone"]})
    assert run_command("plan", job).code == 0
    assert run_command("run", job).code == 0


def test_a_key_is_no_drift(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for year in (2024, 2025, 2026):
        put(work, f"rows/year={year}/part-0.parquet", draw_regression(year))
    outcome = run_command("run", work.job(JOB))
    assert outcome.code == 0
    assert "year (PSI" not in outcome.err


def test_a_store_without_the_key_goes_on_and_says_so(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    put(work, "rows/part-0.parquet", draw_regression(0))
    assert run_command("run", work.job(JOB)).code == 0
    put(work, "rows/region=eu/part-1.parquet", draw_regression(1))
    outcome = run_command("run", work.job(JOB), "--log", "json", "--json")
    assert outcome.code == 0
    assert events_of(outcome)["ingest.columns_ignored"]["columns"] == "region"


@pytest.mark.thorough
def test_a_key_can_be_ignored(tmp_path: Path) -> None:
    work, other = Workplace(tmp_path / "work"), Workplace(tmp_path / "other")
    put(work, "rows/date=2026-11-28/part-0.parquet", draw_regression(0))
    put(other, "rows/part-0.parquet", draw_regression(0))
    for each in (work, other):
        assert run_command("run", each.job({**JOB, "source.ignore": ["date"]})).code == 0
    assert_same_model(work.model(), other.model())


def test_a_linked_folder_is_learned(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    put(work, "rows/part-0.parquet", draw_regression(0))
    put(work, "other/part-1.parquet", draw_regression(1))
    (work.folder / "rows" / "2026-11").symlink_to("../other")
    assert run_command("run", work.job(JOB), "--json").result["partitions_consumed"] == 2


def test_predictions_do_not_become_partitions_of_a_linked_folder(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    put(work, "rows/part-0.parquet", draw_regression(0))
    put(work, "other/part-1.parquet", draw_regression(1))
    (work.folder / "rows" / "2026-11").symlink_to("../other")
    assert run_command("run", work.job(JOB)).code == 0
    outcome = run_command("predict", work.job(JOB), work.folder / "rows", work.folder / "other" / "out")
    assert outcome.code == exit_codes.DATA
    assert "lies in the source" in outcome.err
    assert run_command("predict", work.job(JOB), work.folder / "rows", work.folder / "out").code == 0


@pytest.mark.parametrize(("name", "level"), points(PASSED_OVER, PASSED_OVER[:1]))
def test_what_is_passed_over_is_counted_and_said(tmp_path: Path, name: str, level: str) -> None:
    work = Workplace(tmp_path)
    put(work, "rows/part-0.parquet", draw_regression(0))
    put(work, f"rows/{name}", draw_regression(1))
    (work.folder / "rows" / "_SUCCESS").touch()
    job = work.job({**JOB, "evaluate.path": "rows"})
    assert run_command("run", job).code == 0
    predict: list[str | Path] = ["predict", job, work.folder / "rows", work.folder / "out"]
    commands: list[list[str | Path]] = [["ingest", job], ["evaluate", job], predict]
    for command in commands:
        line = events_of(run_command(*command, "--log", "json"))["source.files_passed_over"]
        assert (line["files"], line["first"], line["level"]) == (1, name, level)
        assert line["like_partitions"] == (level == "warning")


@pytest.mark.parametrize("report", [None, "rows/night/reports"])
def test_the_store_and_the_reports_in_a_source_are_not_counted(tmp_path: Path, report: str | None) -> None:
    work, notes = Workplace(tmp_path), Notes()
    put(work, "rows/part-0.parquet", draw_regression(0))
    job = read_job(work.job({**JOB, "store": "rows/s", "report": report}), {})
    names = ["s/chunks/0", "s/config.yaml", f"{(report or 'rows/s-reports').removeprefix('rows/')}/m-0001.html"]
    for name in [*names, "s-notes/m-0001.html", "s.txt"]:
        path = work.folder / "rows" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert [file.name for file in source_partitions(job, notes)] == ["part-0.parquet"]
    assert (notes.facts("source.files_passed_over")["files"], notes.events[0][1]["first"]) == (2, "s-notes/m-0001.html")


def test_negative_zero_is_no_new_category(tmp_path: Path) -> None:
    ours, other = Workplace(tmp_path / "negative"), Workplace(tmp_path / "positive")
    for work, zero in ((ours, -0.0), (other, 0.0)):
        for night, value in enumerate((0.0, zero)):
            kinds = pa.array([value, 1.0] * 100)
            put(work, f"rows/part-{night}.parquet", set_column(draw_regression(night), "kind", kinds))
            assert run_command("run", work.job({**JOB, "source.categorical": ["kind"]})).code == 0
    assert_same_model(ours.model(), other.model())


@pytest.mark.parametrize("name", points([b"part-\xff.parquet", b"deep/\xfe/part.parquet"], [b"part-\xff.parquet"]))
def test_a_file_whose_name_is_not_utf_8_is_refused_by_its_escaped_name(tmp_path: Path, name: bytes) -> None:
    work = Workplace(tmp_path)
    put(work, "rows/part-0.parquet", draw_regression(0))
    path = os.fsencode(work.folder / "rows") + b"/" + name
    Path(os.fsdecode(path)).parent.mkdir(parents=True, exist_ok=True)
    (work.folder / "rows" / "part-0.parquet").rename(os.fsdecode(path))
    for command in ("run", "plan"):
        outcome = run_command(command, work.job(JOB))
        assert outcome.code == exit_codes.DATA, outcome
        shown = name.decode("utf-8", "backslashreplace")
        assert f"{shown} is no UTF-8; rename it" in outcome.err
        assert outcome.err.count(shown) == 1


def test_float64_is_kept_where_the_job_says_so(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for night in range(2):
        put(work, f"rows/part-{night}.parquet", draw_regression(night))
    assert run_command("run", work.job({**JOB, "source.precision": "float64"})).code == 0
    data = open_dask_arrays(Store.open(StoreLocation(str(work.store))))
    rows = [draw_regression(night).select(["size", "age"]).to_pandas().to_numpy() for night in range(2)]
    np.testing.assert_array_equal(data.numeric.compute(), np.vstack(rows))
