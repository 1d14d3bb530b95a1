"""Every documented exit code, produced by the command itself, with its message on standard error."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.jobs.jobs import (
    COMMAND,
    PATIENCE,
    Workplace,
    draw_rows,
    open_store,
    run_command,
    run_prepared,
    set_column,
    start_command,
    wait_until,
)

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.runs.metrics import OUTCOMES

Changes = dict[str, Any]

BREAKS = {
    "model.method": "subset-of-regressors",
    "model.max_basis": None,
    "model.kernel.name": "polynomial",
    "model.kernel.degree": 60,
    "model.kernel.gamma": 50.0,
}
"""Kernel values beyond all digits."""

BEGINS_BROKEN = {"model.kernel.name": "polynomial", "model.kernel.degree": 4000, "model.kernel.gamma": 1.0}
"""A kernel whose value of the first row is beyond float64, for the online learner."""


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(2))
    return work


def spoil(work: Workplace) -> None:
    work.put(1, set_column(draw_rows(1), "x0", [None] * 200))


def run_before(work: Workplace) -> None:
    work.run_here()


def flip(work: Workplace) -> None:
    """A first night, and then one with the classes swapped."""
    work.run_here({"model.guard": 0.02})
    for number in (2, 3, 4):
        table = draw_rows(number)
        work.put(number, set_column(table, "label", (table["label"].to_numpy() != 2) + 1))


def put_a_file_in_the_way(work: Workplace) -> None:
    (work.folder / "reports").write_text("no folder")


@contextmanager
def another_writes(work: Workplace) -> Iterator[None]:
    work.run_here()
    with open_store(work.store).lock():
        yield


def nothing(_: Workplace) -> None:
    """There is nothing to be done before."""


@dataclass(frozen=True)
class Case:
    """How a command comes to end with a code."""

    code: int
    arguments: str
    message: str
    changes: Changes
    before: Callable[[Workplace], None] = nothing
    around: Callable[[Workplace], AbstractContextManager[None]] = lambda _: nullcontext()


CASES = [
    Case(0, "run {job}", "event='train'", {}),
    Case(exit_codes.USAGE, "run {job} --set model.max_bases=3", "model.max_bases: there is no such key", {}),
    Case(exit_codes.DATA, "run {job}", "part-01.parquet: column 'x0' has the value null in row 0", {}, spoil),
    Case(exit_codes.STORE, "train {job}", "there is no store at", {}),
    Case(exit_codes.LOCKED, "train {job}", "is being written by process", {}, around=another_writes),
    Case(exit_codes.NUMERICS, "run {job}", "lower the kernel's gamma or degree", BREAKS),
    Case(exit_codes.NUMERICS, "run {job}", "lower the kernel's gamma or degree", BEGINS_BROKEN),
    Case(exit_codes.MEMORY, "run {job} --set memory_limit=1MB", "1 MB may be used", {}),
    Case(exit_codes.CLUSTER, "run {job} --cluster 127.0.0.1:9", "no scheduler answers at", {"cluster_seconds": 0.5}),
    Case(exit_codes.MODEL, "evaluate {job}", "has no model 'other'", {"model.name": "other"}, run_before),
    Case(
        exit_codes.MODEL, "run {job}", "the job says 'x0'", {"source.target": "x0", "source.positive": None}, run_before
    ),
    Case(exit_codes.HELD, "run {job}", "the model of night 1 continues to be served", {"model.guard": 0.02}, flip),
    Case(exit_codes.UNREPORTED, "run {job} --report {folder}/reports", "report", {}, put_a_file_in_the_way),
]


@pytest.mark.samples(3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code} {case.arguments.split()[0]}")
def test_the_command_ends_with_the_code(work: Workplace, case: Case) -> None:
    case.before(work)
    with case.around(work):
        job = work.job(case.changes)
        done = run_command(*(part.format(job=job, folder=work.folder) for part in case.arguments.split()))
    assert done.code == case.code, done
    assert re.search(re.escape(case.message), done.err), done
    assert "Traceback" not in done.err
    if case.code:
        assert done.err.splitlines()[-1].startswith("ridgestream: ") or case.code == exit_codes.USAGE


SIGNALS = {signal.SIGINT: exit_codes.INTERRUPTED, signal.SIGTERM: exit_codes.TERMINATED}


@pytest.mark.samples
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_command_with_its_code(work: Workplace, number: signal.Signals) -> None:
    """Sent as soon as the command has created a store, whatever it is doing then."""
    log = work.folder / "log"
    process = start_command("run", work.job(), log=log)
    wait_until((work.store / "refs").exists, process)
    process.send_signal(number)
    assert process.wait(PATIENCE) == SIGNALS[number], log.read_text()
    assert re.match(r"ridgestream: (interrupted|terminated); ", log.read_text().splitlines()[-1])


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("log", ["text", "json"])
def test_a_signal_before_the_command_begins_says_so(work: Workplace, number: signal.Signals, log: str) -> None:
    setup = f"""
import os, ridgestream.jobs.cli.app as app
app.prepare_process = lambda: os.kill(os.getpid(), {number.value})
"""
    done = run_prepared(setup, "run", work.job(), "--log", log)
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert done.code == SIGNALS[number], done
    if log == "json":
        line = json.loads(done.err)
        assert (line["event"], line["exit_code"]) == (f"exit.{word}", done.code)
        assert line["message"] == f"{word}, before it began"
    else:
        assert done.err == f"ridgestream: {word}, before it began\n"


def test_every_documented_code_is_here() -> None:
    """Except those of status and of standard streams, which have tests of their own, and 1, of test_log_format."""
    help_text = run_command("--help").out
    documented = {int(code) for code in re.findall(r"(\d+)\s+[a-z]", help_text.split("Exit codes:")[1])}
    elsewhere = {exit_codes.UNEXPECTED, exit_codes.OUTPUT_LOST, exit_codes.OUTPUT_UNREAD}
    elsewhere |= {exit_codes.FEED_STOPPED, exit_codes.NIGHT_FAILED, exit_codes.DRIFTED, exit_codes.LASTING}
    assert documented - elsewhere == {case.code for case in CASES} | set(SIGNALS.values())


@pytest.mark.thorough
def test_closing_the_output_early_is_no_error(work: Workplace) -> None:
    assert run_command("ingest", work.job()).code == 0
    end, pipe = os.pipe()
    os.close(end)
    for more in ((), ("--json",)):
        done = subprocess.run(
            [COMMAND, "inspect", work.store, *more], stdout=pipe, stderr=subprocess.PIPE, timeout=PATIENCE, check=False
        )
        assert (done.returncode in (1, 128 + signal.SIGPIPE), done.stderr) == (True, b"")
    os.close(pipe)


def test_every_ending_of_a_run_is_an_outcome_of_its_metrics() -> None:
    codes = [value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)]
    endings = {exit_codes.ending_of(code) for code in codes}
    assert endings == set(OUTCOMES) - {"done", "nothing_new"} | {None}
