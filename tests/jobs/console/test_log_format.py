"""The progress of long commands: bars on a terminal, lines of text elsewhere, lines of JSON on request."""

import errno
import json
import os
import pty
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.jobs.jobs import (
    COMMAND,
    PATIENCE,
    Outcome,
    Workplace,
    clean_environment,
    run_command,
    run_prepared,
    run_program,
)

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.console import progress, throughput
from ridgestream.jobs.console.log_format import guess_log
from ridgestream.jobs.console.progress import LineReporter, TerminalReporter
from ridgestream.jobs.console.throughput import Throughput
from ridgestream.pipeline.base import events

OFTEN = "ridgestream.jobs.console.progress.PROGRESS_SECONDS = 0.0"


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(3))
    return work


def run_with(setup: str, *arguments: str | Path) -> Outcome:
    """Run a command after Python statements in its process."""
    imports = "import ridgestream.jobs.cli.app, ridgestream.jobs.console.progress, ridgestream.jobs.cli.signals"
    return run_prepared(f"{imports}\n{setup}", *arguments)


def lines_of(done: Outcome) -> list[dict[str, Any]]:
    """Each line of the log is one object of JSON, with what every line has."""
    lines = [json.loads(line) for line in done.err.splitlines()]
    for line in lines:
        assert list(line)[:4] == ["timestamp", "level", "event", "message"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["timestamp"])
    return lines


def test_json_has_a_line_for_each_step_and_the_result_is_on_standard_output(work: Workplace) -> None:
    done = run_command("run", work.job(), "--json", "--log", "json")
    steps = [line for line in lines_of(done) if line["level"] == "info" and line["event"] != "progress"]
    ingest, check, train, evaluate = steps
    assert (check["event"], check["rows"]) == ("check_held_out", 200)
    assert (ingest["event"], ingest["rows"], ingest["partitions"]) == ("ingest", 600, 3)
    assert (train["event"], train["rows_seen"], train["n_basis"]) == ("train", 600, 20)
    assert (evaluate["event"], evaluate["test_error"]) == ("evaluate", done.result["test_error"])


@pytest.mark.parametrize("log", ["text", "json"])
def test_progress_has_rows_percent_throughput_and_remaining_time(work: Workplace, log: str) -> None:
    done = run_with(OFTEN, "run", work.job({"log": log}))
    assert not {"\r", "\x1b"} & set(done.err)
    if log == "text":
        lines = [line for line in done.err.splitlines() if "event='progress' step='train'" in line]
        assert [re.findall(r"rows=(\d+) percent=([\d.]+)", line)[0] for line in lines] == [
            ("0", "0.0"),
            ("200", "33.3"),
            ("400", "66.7"),
            ("600", "100.0"),
        ]
        return
    training = [line for line in lines_of(done) if line["event"] == "progress" and line["step"] == "train"]
    assert [(line["rows"], line["percent"]) for line in training] == [(0, 0.0), (200, 33.3), (400, 66.7), (600, 100.0)]
    assert training[-1]["rows_per_second"] > 0
    assert training[-1]["remaining_seconds"] == 0
    assert training[-1]["n_basis"] == 20
    taken = [line for line in lines_of(done) if line["event"] == "progress" and line["step"] == "ingest"]
    assert [(line["partition"], line["percent"]) for line in taken] == [
        (f"part-0{i}.parquet", percent) for i, percent in enumerate((33.3, 66.7, 100.0))
    ]


def test_progress_is_written_at_a_bounded_rate(work: Workplace) -> None:
    assert "progress" not in run_with("ridgestream.jobs.console.progress.PROGRESS_SECONDS = 1e9", "run", work.job()).err


@pytest.mark.thorough
def test_every_long_command_has_the_option_log(work: Workplace) -> None:
    job = work.job({"predict.path": "held-out", "predict.output": "out"})
    for command in ("ingest", "train", "evaluate", "predict"):
        done = lines_of(run_command(command, job, "--log=json"))
        assert command in [line["event"] for line in done if line["level"] == "info"]


@pytest.mark.samples
@pytest.mark.parametrize(
    ("arguments", "changes", "code", "expected"),
    [
        (["run", "{job}", "--nope"], {}, exit_codes.USAGE, "No such option"),
        (["run", "{job}", "--set", "model.max_bases=5"], {}, exit_codes.USAGE, "model.max_bases: there is no such key"),
        (["train", "{job}"], {}, exit_codes.STORE, "there is no store"),
        (["run", "{job}"], {"memory_limit": 1}, exit_codes.MEMORY, "1 bytes may be used"),
    ],
)
def test_an_error_is_a_line_with_its_exit_code(
    work: Workplace, arguments: list[str], changes: dict[str, Any], code: int, expected: str
) -> None:
    job = str(work.job({**changes, "log": "json"}))
    done = run_program(
        [COMMAND, *(a.format(job=job) for a in arguments)], environment=clean_environment(RIDGESTREAM_LOG="json")
    )
    assert (done.code, done.out) == (code, "")
    last = lines_of(done)[-1]
    assert (last["level"], last["exit_code"]) == ("error", code)
    assert expected in last["message"]


@pytest.mark.samples
@pytest.mark.parametrize("log", ["text", "json"])
def test_what_a_person_should_look_at_is_of_level_warning(work: Workplace, log: str) -> None:
    (work.folder / "rows" / "part-02b.parquet").write_bytes((work.folder / "rows" / "part-02.parquet").read_bytes())
    job = work.job({"source.ignore": ["x9"]})
    done = run_command("run", job, "--log", log)
    looked_at = ("columns to be ignored do not exist", "a partition has exactly the rows")
    if log == "text":
        warned = [line for line in done.err.splitlines() if "level='warning'" in line]
    else:
        warned = [line["message"] for line in lines_of(done) if line["level"] == "warning"]
    for message in looked_at:
        assert len([line for line in warned if message in line]) == 1, done.err
    assert done.err.count("event=" if log == "text" else '"event"') > len(warned)


def test_a_library_s_error_is_a_line_with_its_traceback_and_an_empty_one_is_left_out(work: Workplace) -> None:
    setup = """
import logging
real = ridgestream.jobs.console.progress.LineReporter.begin
def begin(self, step, total_rows, **facts):
    try:
        raise OSError("lost")
    except OSError:
        logging.getLogger("distributed.client").exception("")
    logging.getLogger("distributed.client").error("")
    real(self, step, total_rows, **facts)
ridgestream.jobs.console.progress.LineReporter.begin = begin
"""
    lines = lines_of(run_with(setup, "ingest", work.job(), "--log", "json"))
    (error,) = [line for line in lines if line.get("logger") == "distributed.client"]
    assert (error["level"], error["event"], error["message"]) == ("error", "library.failed", "OSError: lost")
    assert error["traceback"].startswith("Traceback")


def test_an_unexpected_error_is_a_line_with_its_traceback(work: Workplace) -> None:
    broken = "import ridgestream.jobs.commands.run\ndef run_job(*a, **n): raise ZeroDivisionError('0/0')\n"
    broken += "ridgestream.jobs.commands.run.run_job = run_job"
    done = run_with(broken, "run", work.job(), "--log", "json")
    (line,) = lines_of(done)
    assert (done.code, line["exit_code"], line["event"]) == (1, 1, "exit.unexpected")
    assert line["message"] == "unexpected: ZeroDivisionError: 0/0"
    assert line["traceback"].startswith("Traceback")


def test_a_signal_and_a_library_s_warning_are_lines(work: Workplace) -> None:
    setup = """
import logging, os, signal, time, warnings
real = ridgestream.jobs.console.progress.LineReporter.begin
def begin(self, step, total_rows, **facts):
    warnings.warn("fading")
    logging.getLogger("distributed").warning("lost")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)
    real(self, step, total_rows, **facts)
ridgestream.jobs.console.progress.LineReporter.begin = begin
"""
    done = run_with(setup, "run", work.job(), "--log", "json")
    lines = lines_of(done)
    assert done.code == lines[-1]["exit_code"] == exit_codes.TERMINATED
    assert lines[-1]["message"].startswith("terminated; the last commit stands")
    warned = [(line["level"], line["logger"]) for line in lines if "logger" in line]
    assert warned == [("warning", "py.warnings"), ("warning", "distributed")]


def run_on_terminal(*arguments: str | Path) -> str:
    """Run the command with a terminal for standard error, and return what it shows there."""
    ours, theirs = pty.openpty()
    command = [COMMAND, *map(str, arguments)]
    environment = clean_environment(TERM="xterm", COLUMNS="140")
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=theirs, stdin=subprocess.DEVNULL, env=environment
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError as error:
        assert error.errno == errno.EIO  # noqa: PT017 (whoever wrote has gone)
    os.close(ours)
    assert process.wait(PATIENCE) == 0, shown
    return shown.decode()


@pytest.mark.thorough
def test_a_terminal_has_bars_unless_lines_are_asked_for(work: Workplace) -> None:
    bars = run_on_terminal("run", work.job())
    assert "\x1b" in bars
    assert re.search(r"train\s.*600 rows", bars)
    lines = run_on_terminal("evaluate", work.job(), "--log", "text")
    assert "\x1b" not in lines
    assert "event='evaluate'" in lines


def test_a_name_that_looks_like_markup_is_shown_above_and_beside_a_bar_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    with TerminalReporter() as report:
        report.warn(events.INGEST_IGNORED_COLUMNS_ABSENT, column="a[red]b:x:")
        report.begin(events.STEP_INGEST, None, partitions=2)
        report.advance(10, partition="part[/x]:x:.parquet")
    shown = capsys.readouterr().err
    assert "column=a[red]b:x:\n" in shown
    assert "partition=part[/x]:x:.parquet" in shown


def test_of_a_step_that_a_run_has_many_of_the_long_ones_have_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress, "perf_counter", lambda: now[0])
    report = LineReporter()
    for step, seconds in [(events.STEP_METRIC_SUMS, 0.9), (events.STEP_METRIC_SUMS, 1.1), (events.STEP_TRAIN, 0.9)]:
        report.begin(step, None)
        now[0] += seconds
        report.end()
    lines = capsys.readouterr().err.splitlines()
    assert [re.findall(r"event='(\w+)'.* seconds=(.*)", line)[0] for line in lines] == [
        ("metric_sums", "1.1"),
        ("train", "0.9"),
    ]


@pytest.mark.parametrize("make", [LineReporter, lambda: LineReporter("json"), TerminalReporter])
def test_no_reporter_shows_a_secret(
    make: Callable[[], LineReporter | TerminalReporter],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("COLUMNS", "140")
    report = make()
    report.warn(events.INGEST_PARTITION_QUARANTINED, reason="no answer to https://me:hush@host, key wJalrXUtnFEMI")
    shown = capsys.readouterr().err
    assert "no answer to https://***@host, key ***" in shown


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(throughput, "monotonic", lambda: self.now)


def test_the_throughput_is_that_of_the_last_minute_without_the_rows_of_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    step = Throughput(100_000, 7)
    assert (step.percent, step.rows_per_second, step.remaining_seconds) == (0.0, None, None)
    clock.now = 0.1
    step.advance(50_000)
    assert (step.percent, step.rows_per_second, step.remaining_seconds) == (50.0, None, None)
    for _ in range(10):
        clock.now += 1.0
        step.advance(1000)
    assert (step.percent, step.rows_per_second, step.remaining_seconds) == (60.0, 1000, 40)
    for _ in range(70):
        clock.now += 1.0
        step.advance(100)
    assert (step.rows, step.rows_per_second, step.remaining_seconds) == (67_000, 100, 330)


def test_partitions_are_counted_if_the_number_of_rows_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, step = Clock(monkeypatch), Throughput(None, 4)
    for _ in range(3):
        clock.now += 2.0
        step.advance(10)
    assert (step.percent, step.rows_per_second, step.remaining_seconds) == (75.0, 5, 2)
    unknown = Throughput(None, None)
    clock.now += 2.0
    unknown.advance(10)
    assert (unknown.rows, unknown.percent, unknown.remaining_seconds) == (10, None, None)


@pytest.mark.parametrize(
    ("arguments", "environment", "log"),
    [
        ([], {}, "auto"),
        (["run", "--log", "json"], {}, "json"),
        (["run", "--log=text"], {"RIDGESTREAM_LOG": "json"}, "text"),
        (["run"], {"RIDGESTREAM_LOG": "json"}, "json"),
        (["run", "--log"], {"RIDGESTREAM_LOG": "nonsense"}, "auto"),
    ],
)
def test_the_log_format_is_known_before_the_job_is_read(
    arguments: list[str], environment: dict[str, str], log: str
) -> None:
    assert guess_log(arguments, environment) == log
