"""No part of a run is silent: a line says what is going on where none has been written for ten seconds."""

import json
import re

import pytest

from ridgestream.jobs.console import heartbeat, progress
from ridgestream.jobs.console.heartbeat import SILENT_SECONDS, Heartbeat
from ridgestream.jobs.console.progress import PROGRESS_SECONDS, LineReporter, open_reporter
from ridgestream.pipeline.base import events
from ridgestream.stores.requests.activity import ACTIVITY

PROMISED = 10.0


class Clock:
    """The time as reporters see it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(progress, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def wait(report: LineReporter, clock: Clock, seconds: float) -> None:
    """Let time pass as the thread of the heartbeat does: it sleeps for as long as a look says."""
    end = clock.now + seconds
    while (pause := report.heartbeat.look()) <= end - clock.now:
        clock.now += pause
    clock.now = end


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_line_comes_within_ten_seconds_in_a_step_and_between(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    report = LineReporter()
    with ACTIVITY.under_way("the disk"):
        wait(report, clock, 3 * PROMISED)
    between = lines_of(capsys)
    report.begin(events.STEP_INGEST, 100)
    report.advance(20, partition="a")
    wait(report, clock, 3 * PROMISED)
    assert len(between) == len(lines_of(capsys)) == 3


def test_the_start_of_the_process_counts(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_process_seconds", lambda: 4.0)
    report = open_reporter("text")
    assert isinstance(report, LineReporter)
    wait(report, clock, PROMISED - 4.0)
    assert len(lines_of(capsys)) == 1


def test_it_names_the_step_how_far_it_is_and_what_is_under_way(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    report = LineReporter("json")
    report.begin(events.STEP_TRAIN, 200)
    report.advance(50, n_basis=7)
    with ACTIVITY.under_way("the disk"):
        wait(report, clock, PROMISED)
    report.end()
    ACTIVITY.moved("what follows")
    wait(report, clock, PROMISED)
    within, _, after = map(json.loads, lines_of(capsys))
    names = ("event", "step", "rows", "percent", "n_basis", "doing")
    assert [within[name] for name in names] == ["progress", "train", 50, 25.0, 7, "the disk"]
    assert (after["event"], after["doing"], "step" in after) == ("progress", "what follows", False)


def test_nothing_is_added_where_lines_come_often_enough(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    report = LineReporter()
    report.begin(events.STEP_INGEST, 100)
    for _ in range(10):
        wait(report, clock, PROGRESS_SECONDS)
        report.advance(10)
    written = lines_of(capsys)
    assert [re.findall(r"rows=(\d+)", line) for line in written] == [[str(rows)] for rows in range(10, 101, 10)]
    assert not [line for line in written if "doing=" in line]


def test_the_thread_looks_until_the_context_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "SILENT_SECONDS", 0.001)
    beats = []

    def beat() -> None:
        beats.append(True)
        if len(beats) == 3:
            alive.__exit__()

    alive = Heartbeat(lambda: 1.0, beat)
    with alive:
        assert alive.thread is not None
        alive.thread.join()
    assert len(beats) == 3


def test_what_is_promised_leaves_a_thread_time() -> None:
    assert PROGRESS_SECONDS < SILENT_SECONDS < PROMISED
