"""The command as its users see it: what it prints where, what it imports, how it ends."""

import os
import pty
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import (
    COMMAND,
    FOREST,
    REGRESSION,
    Outcome,
    Workplace,
    clean_environment,
    draw_regression,
    draw_rows,
    of_one_class,
    run_command,
    run_program,
)

from ridgestream.jobs.cli import exit_codes

HEAVY = ("numpy", "pyarrow", "zarr", "icechunk", "dask", "distributed", "numba", "scipy", "pydantic")
COMMANDS = ("run", "ingest", "train", "evaluate", "predict", "inspect", "clean")
RUN_KEYS = {"rows_seen", "n_basis", "test_error", "seconds", "peak_rss_bytes", "partitions_consumed", "snapshot"}


def assert_plain(*texts: str) -> None:
    """No carriage returns, no escape codes: what goes to a file is lines."""
    for text in texts:
        assert "\r" not in text
        assert "\x1b" not in text


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(2))
    return work


@pytest.mark.samples
@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["run", "--help"], ["predict", "--help"]])
def test_help_goes_to_standard_output(arguments: list[str]) -> None:
    done = run_command(*arguments)
    assert (done.code, done.err) == (0, "")
    assert f"Usage: ridgestream {'' if arguments[0].startswith('-') else arguments[0]}" in done.out
    assert_plain(done.out)


def test_help_names_every_command_and_every_exit_code() -> None:
    text = run_command("--help").out
    for command in COMMANDS:
        assert re.search(rf"│ {command} +\w", text)
    result = {int(code) for code in re.findall(r"(\d+)\s+[a-z]", text.split("Exit codes:")[1])}
    assert result == {0} | {value for name, value in vars(exit_codes).items() if name.isupper() and type(value) is int}


def test_help_imports_nothing_heavy() -> None:
    done = run_program([sys.executable, "-X", "importtime", COMMAND, "--help"])
    imported = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.err.splitlines() if "|" in line}
    assert "typer" in imported
    assert imported.isdisjoint(HEAVY)


def test_version() -> None:
    done = run_command("--version")
    assert (done.code, done.out, done.err) == (0, version("ridgestream") + "\n", "")


def test_no_arguments_shows_help() -> None:
    done = run_command()
    assert done.code == 2
    assert "Commands" in done.out + done.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nope"], "No such command 'nope'"),
        (["run"], "Missing argument 'JOB.toml'"),
        (["run", "job.toml", "--nope"], "No such option"),
        (["run", "job.toml", "--wait", "soon"], "give a number of at least 0; it is 'soon'"),
        (["run", "job.toml", "--wait", "-1"], "give a number of at least 0; it is '-1'"),
        (["report", "job.toml", "--night", "1.5"], "give a whole number of at least 1; it is '1.5'"),
        (["clean", "job.toml", "--keep-nights", "0"], "'--keep-nights': give a whole number of at least 1"),
        (["clean", "job.toml", "--older-than", "nan"], "'--older-than': give a number of at least 0 and at most"),
        (
            ["predict", "job.toml", "rows", "out", "--interval", "90"],
            "'--interval': give a number of at least 0 and at most 1",
        ),
        (["run", "job.toml", "--set", "nonsense"], "--set takes KEY=VALUE"),
        (["run", "job.toml", "--cluster", "locl"], "cluster: "),
        (["run", "none.toml"], "there is no job file none.toml"),
        (["evaluate", "job.toml", "--set", "evaluate.pth=x"], "evaluate.pth: there is no such key"),
    ],
)
def test_wrong_usage_is_exit_code_2_on_standard_error(work: Workplace, arguments: list[str], expected: str) -> None:
    work.job()
    done = run_command(*arguments, cwd=work.folder)
    assert (done.code, done.out) == (exit_codes.USAGE, "")
    assert expected in done.err
    assert "Traceback" not in done.err
    assert_plain(done.err)
    assert not work.store.exists()


def test_run_prints_one_json_object_and_one_line_per_step(work: Workplace) -> None:
    done = run_command("run", work.job(), "--json")
    assert done.result.keys() >= RUN_KEYS
    assert (done.result["rows_seen"], done.result["partitions_consumed"], done.result["n_basis"]) == (400, 2, 20)
    assert 0 < done.result["test_error"] < 0.5
    assert done.result["seconds"] > 0
    assert done.result["peak_rss_bytes"] > 50e6
    assert done.result["snapshot"] == work.snapshot()
    assert done.events[:4] == ["ingest", "check_held_out", "train", "evaluate"]
    assert all(line.startswith("timestamp=") for line in done.err.splitlines())
    assert_plain(done.out, done.err)


def test_run_of_a_regression_prints_its_mean_squared_error(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number, where in ((0, "rows"), (1, "held-out")):
        work.put(number, draw_regression(number), where)
    result = run_command("run", work.job(REGRESSION), "--json").result
    assert result.keys() >= {*RUN_KEYS, "test_mse"}
    assert result["test_error"] is None
    assert 0 < result["test_mse"] < 400.0**2


def test_the_steps_alone_print_what_they_did(work: Workplace) -> None:
    job = work.job({"predict.path": "held-out", "predict.output": "predictions", "predict.keep": ["label", "x0"]})
    result = run_command("ingest", job, "--json").result
    assert result | {"peak_rss_bytes": 0} == {
        "new_partitions": 2,
        "new_rows": 400,
        "dropped_rows": 0,
        "partitions": 2,
        "rows": 400,
        "quarantined": 0,
        "peak_rss_bytes": 0,
        "snapshot": work.snapshot(),
    }
    trained = run_command("train", job, "--json").result
    assert (trained["rows_seen"], trained["new_partitions"], trained["snapshot"]) == (400, 2, work.snapshot())
    evaluated = run_command("evaluate", job, "--json").result
    assert evaluated["test_error"] == trained["test_error"]
    assert evaluated["snapshot"] == trained["snapshot"]
    predicted = run_command("predict", job, "--json").result
    assert (predicted["rows"], predicted["partitions"]) == (200, 1)
    assert predicted["snapshot"] == work.snapshot() == trained["snapshot"]
    inspected = run_command("inspect", job, "--json").result
    assert [entry["name"] for entry in inspected["partitions"]] == ["part-00.parquet", "part-01.parquet"]
    assert [model["partitions_consumed"] for model in inspected["models"]] == [2]
    assert inspected["models"][0]["history"][0]["test_error"] == trained["test_error"]
    assert run_command("inspect", work.store, "--json").result == inspected
    _check_predictions(work, evaluated)


def _check_predictions(work: Workplace, evaluated: dict[str, Any]) -> None:
    given = pq.read_table(work.folder / "held-out" / "part-00.parquet")
    written = pq.read_table(work.folder / "predictions" / "part-00.parquet")
    assert written.column_names == ["label", "x0", "prediction", "score"]
    assert written.select(["label", "x0"]).equals(given.select(["label", "x0"]))
    truth = given["label"].to_numpy() == 2
    predicted = written["prediction"].to_numpy()
    assert ((predicted > 0) == (written["score"].to_numpy() > 0)).all()
    assert ((predicted > 0) != truth).mean() == evaluated["test_error"]
    assert [path.name for path in (work.folder / "predictions").iterdir()] == ["part-00.parquet"]


def test_predict_takes_input_and_output_from_the_command_line(work: Workplace) -> None:
    job = work.job()
    work.run_here()
    done = run_command("predict", job, "held-out", "out/deep", "--json", cwd=work.folder)
    assert done.result["rows"] == 200
    assert (work.folder / "out" / "deep" / "part-00.parquet").is_file()
    lone = run_command("predict", job)
    assert (lone.code, lone.out) == (exit_codes.USAGE, "")
    assert "INPUT and OUTPUT, or a [predict] section" in lone.err
    over = run_command("predict", job, "held-out", "held-out", cwd=work.folder)
    assert over.code == exit_codes.DATA
    assert "whose partitions its files would become: choose another folder" in over.err


def test_flags_and_environment_reach_the_job(work: Workplace) -> None:
    job = work.job()
    environment = clean_environment(RIDGESTREAM_MODEL__MAX_BASIS="5", RIDGESTREAM_MODEL__NAME="small")
    arguments = ["run", str(job), "--json", "--set", "model.max_basis=4", "--store", "elsewhere"]
    result = run_command(*arguments, environment=environment, cwd=work.folder).result
    assert (result["model"], result["n_basis"]) == ("small", 4)
    assert (work.folder / "elsewhere").is_dir()
    assert not work.store.exists()


def test_a_url_of_a_local_folder_is_no_path(work: Workplace) -> None:
    job, place = work.job(), work.folder / "else where"
    url = f"file:{quote(str(place))}"
    result = run_command("run", job, "--json", "--store", url, "--report", f"{url}-reports", cwd=work.folder).result
    assert result["report"]["json"] == f"{place}-reports/model-0001.json"
    assert (place / "refs").is_dir()
    assert not (work.folder / "file:").exists()


def test_without_json_the_figures_are_plain_lines(work: Workplace) -> None:
    done = run_command("run", work.job())
    assert done.code == 0
    figures = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert (figures["rows_seen"], figures["n_basis"]) == ("400", "20")
    assert_plain(done.out, done.err)


def test_inspect_shows_whole_names_where_no_terminal_limits_it(work: Workplace) -> None:
    long = "a-partition-with-a-name-that-is-longer-than-eighty-columns-together-with-its-numbers.parquet"
    (work.folder / "rows" / "part-01.parquet").rename(work.folder / "rows" / long)
    work.run_here()
    done = run_command("inspect", work.store)
    assert (done.code, done.err) == (0, "")
    assert long in done.out
    assert "…" not in done.out
    assert re.search(r"model model: 20 basis vectors, 2 partitions consumed", done.out)
    assert_plain(done.out)


def test_inspect_of_something_that_is_no_store(work: Workplace) -> None:
    for place, expected in (("none", "there is no store at"), ("rows", "holds other files and is not a Ridgestream")):
        done = run_command("inspect", work.folder / place)
        assert (done.code, done.out) == (exit_codes.STORE, "")
        assert expected in done.err


def test_an_error_leaves_standard_output_empty(work: Workplace) -> None:
    for command in ("run", "predict"):
        done = run_command(command, work.folder / "none.toml", "--json")
        assert (done.code, done.out) == (exit_codes.USAGE, "")
        (line,) = done.err.splitlines()
        assert line.startswith(
            f"ridgestream: there is no job file {work.folder / 'none.toml'}, and no bundled recipe of that name"
        )


def test_a_model_that_is_not_there_is_named_with_those_that_are(work: Workplace) -> None:
    work.run_here()
    done = run_command("evaluate", work.job({"model.name": "other"}))
    assert (done.code, done.out) == (exit_codes.MODEL, "")
    assert done.err == "ridgestream: the store has no model 'other'; its models: model\n"


def run_on_terminal(*arguments: str | Path) -> tuple[Outcome, str]:
    """Run with standard error on a pseudo-terminal; return the outcome, and what was sent to the terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, *(str(a) for a in arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=clean_environment(TERM="xterm-256color", COLUMNS="120"),
    )
    os.close(theirs)
    sent = bytearray()
    while chunk := _read(ours):
        sent += chunk
    os.close(ours)
    out, _ = process.communicate(timeout=60)
    return Outcome(process.returncode, out.decode(), ""), sent.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # what Linux reports when the other end is closed
        return b""


@pytest.mark.thorough
def test_on_a_terminal_there_are_bars(work: Workplace) -> None:
    done, sent = run_on_terminal("run", work.job(), "--json")
    assert done.result["rows_seen"] == 400
    assert_plain(done.out)
    assert "\x1b[" in sent
    assert "\x1b[?25h" in sent[sent.rindex("\x1b[?25l") :]  # the cursor is shown again
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    for step, rows in (("ingest", 400), ("train", 400), ("evaluate", 200)):
        assert re.search(rf"{step} +━+ +{rows} rows +[\d,]+/s", shown), step
    assert re.search(r"train .* n_basis=20", shown)


@pytest.mark.thorough
def test_on_a_terminal_a_failure_is_printed_below_the_bars(work: Workplace) -> None:
    (work.folder / "rows" / "part-01.parquet").write_bytes(b"")
    done, sent = run_on_terminal("run", work.job(), "--json")
    assert (done.code, done.out) == (exit_codes.DATA, "")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    assert re.search(r"ridgestream: .*part-01\.parquet is empty", shown.splitlines()[-1])
    assert "\x1b[?25h" in sent[sent.rindex("\x1b[?25l") :]


def test_a_forest_model_from_the_bundled_rows_is_better_than_a_guess(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    (tmp_path / "rows").mkdir()
    for number in range(2):
        (tmp_path / "rows" / f"part-0{number}.parquet").symlink_to(FOREST / "train" / f"part-0{number}.parquet")
    changes = {
        "source.target": "Cover_Type",
        "model.max_basis": 50,
        "model.regularization": 1e-5,
        "model.kernel.gamma": 1 / 54,
        "evaluate.path": str(FOREST / "test"),
    }
    result = run_command("run", work.job(changes), "--json").result
    assert (result["rows_seen"], result["n_basis"]) == (100_000, 50)
    assert 0.2 < result["test_error"] < 0.27  # always predicting −1 makes 0.51
    assert 0.2 < result["progressive_error"] < 0.32


def test_draws_are_hard_enough() -> None:
    """The rows of these tests have both classes, about equally often."""
    label = draw_rows(0)["label"].to_numpy()
    assert 0.3 < (label == 2).mean() < 0.7


@pytest.mark.thorough
def test_a_machine_without_a_writable_cache_is_no_error(work: Workplace) -> None:
    """Neither the package's folder nor a home can be written, as in a container: the learner is compiled each time."""
    code = """
import sys, numba, numba.core.caching as caching
(getattr(caching, "CacheImpl", None) or caching._CacheImpl)._locator_classes = []
try:
    numba.njit(cache=True)(lambda: 0)
    sys.exit("there is a place after all")
except RuntimeError:
    pass
from ridgestream.jobs.cli.app import main
main()
"""
    done = run_program([sys.executable, "-c", code, "run", work.job(), "--json"])
    assert done.result["rows_seen"] == 400


def test_a_setting_that_is_probably_a_mistake_is_reported(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put(0, of_one_class(0))
    work.put(1, of_one_class(1))
    work.put(0, draw_rows(1000), where="held-out")
    first = run_command("run", work.job({"model.scaling_rows": 10_000, "source.ignore": ["oops"]}))
    assert first.code == 0
    assert "fixed the standardization" not in first.err
    assert "all rows learned in this run are of one class; is it spelled right?" in first.err
    assert "columns to be ignored do not exist; are they spelled right?" in first.err
    shutil.copy(work.folder / "rows" / "part-00.parquet", work.folder / "rows" / "part-07.parquet")
    second = run_command("run", work.job({"model.scaling_rows": 10_000}))
    assert second.code == 0
    assert "a partition has exactly the rows of an older one: they now count twice" in second.err
    assert "few rows have fixed the standardization for good, and more are learned now" in second.err
