"""Reporters that show progress on standard error: bars on a terminal, one line for each step elsewhere."""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ridgestream.jobs.console.escaping import harmless
from ridgestream.jobs.console.log_format import Log, write_json
from ridgestream.jobs.console.throughput import Throughput
from ridgestream.pipeline.base.events import STEP_PROGRESS, Event, Step
from ridgestream.pipeline.base.reporter import Fact, Reporter
from ridgestream.stores.files.credentials import hide_secrets, without_secrets

if TYPE_CHECKING:
    from rich.progress import TaskID


PROGRESS_SECONDS = 10.0
"""How often a line says how far a step has come."""


_KEY_ORDER = ["timestamp", "level", "event", "message"]


def open_reporter(log: Log = "auto") -> "AbstractContextManager[Reporter]":
    """Return a reporter for the log; for auto, bars if standard error is a terminal, else text."""
    if log == "auto" and sys.stderr.isatty():
        return TerminalReporter()
    return nullcontext(LineReporter(log))


class LineReporter:
    """Writes a line when a step ends, with its facts, and one every PROGRESS_SECONDS while it goes on."""

    def __init__(self, log: Log = "text") -> None:
        self._write = write_json if log == "json" else text_writer()
        self._step, self._throughput = STEP_PROGRESS, Throughput(None, None)
        self._began = self._reported_at = 0.0

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:
        """Note the step and the time."""
        self._step, self._began, self._reported_at = step, time.perf_counter(), time.monotonic()
        self._throughput = Throughput(total_rows, _partitions(facts))

    def advance(self, rows: int, **facts: Fact) -> None:
        """Count the rows; write how far the step has come, unless PROGRESS_SECONDS have not passed yet."""
        self._throughput.advance(rows)
        if time.monotonic() - self._reported_at < PROGRESS_SECONDS:
            return
        self._reported_at, done = time.monotonic(), self._throughput
        progress: dict[str, Fact] = {"step": self._step.code, "rows": done.rows, "percent": done.percent}
        progress |= {"rows_per_second": done.rows_per_second, "remaining_seconds": done.remaining_seconds}
        self._write("info", STEP_PROGRESS.code, self._step.name, **_known(progress | facts))

    def end(self, **facts: Fact) -> None:
        """Write the step's line."""
        seconds = time.perf_counter() - self._began
        facts = {"rows": self._throughput.rows} | facts | {"seconds": round(seconds, 2)}
        self._write("info", self._step.code, self._step.name, **_known(facts))

    def say(self, event: Event, **facts: Fact) -> None:
        """Write the event as a line."""
        self._write("info", event.code, event.sentence, **facts)

    def warn(self, event: Event, **facts: Fact) -> None:
        """Write the event as a line of level warning."""
        self._write("warning", event.code, event.sentence, **facts)


def text_writer() -> Callable[..., None]:
    """Return a function that writes key='value' pairs on one line, without secrets; level info is left out."""
    import structlog

    log = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.processors.KeyValueRenderer(key_order=_KEY_ORDER, drop_missing=True),
        ],
    )

    def write(level: str, event: str, message: str, **facts: Fact) -> None:
        named = {} if level == "info" else {"level": level}
        if message not in (event, facts.get("step")):
            named["message"] = message
        log.info(event, **named, **hide_secrets(facts))

    return write


def _partitions(facts: Mapping[str, Fact]) -> int | None:
    partitions = facts.get("partitions")
    return partitions if isinstance(partitions, int) else None


def _known(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    return {key: value for key, value in facts.items() if value is not None}


class TerminalReporter:
    """Shows a bar for each step, with rows, rows per second, remaining time, and the step's facts."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress: Progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<9}", markup=False),
            BarColumn(bar_width=24),
            TextColumn(
                "{task.fields[rows]:>9,} rows {task.fields[speed]:>9} {task.fields[left]} {task.fields[facts]}",
                markup=False,
            ),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task: TaskID | None = None
        self._throughput, self._by_rows = Throughput(None, None), True

    def __enter__(self) -> "TerminalReporter":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:
        """Add a bar."""
        partitions = _partitions(facts)
        self._throughput, self._by_rows = Throughput(total_rows, partitions), bool(total_rows)
        fields: dict[str, Any] = {"rows": 0, "speed": "", "left": "", "facts": _show(facts)}
        self._task = self._progress.add_task(step.name, total=total_rows or partitions, **fields)

    def advance(self, rows: int, **facts: Fact) -> None:
        """Move the bar."""
        if self._task is None:
            return
        done = self._throughput
        done.advance(rows)
        percent, speed, left = done.percent, done.rows_per_second, done.remaining_seconds
        fields: dict[str, Any] = {
            "rows": done.rows,
            "speed": "" if speed is None else f"{speed:,}/s",
            "left": "" if left is None or percent is None else f"{percent:.0f} %, {timedelta(seconds=left)} left",
        }
        self._progress.update(self._task, advance=rows if self._by_rows else 1, facts=_show(facts), **fields)

    def end(self, **facts: Fact) -> None:
        """Complete the bar."""
        if self._task is not None:
            done, speed = max(self._throughput.rows, 1), f"{self._throughput.mean_rows_per_second:,}/s"
            self._progress.update(self._task, total=done, completed=done, left="", speed=speed, facts=_show(facts))
        self._task = None

    def say(self, event: Event, **facts: Fact) -> None:
        """Print the event's sentence above the bars."""
        self._print(event, facts)

    def warn(self, event: Event, **facts: Fact) -> None:
        """Print the event's sentence above the bars, in colour."""
        self._print(event, facts, style="yellow")

    def _print(self, event: Event, facts: dict[str, Fact], style: str | None = None) -> None:
        line = harmless(without_secrets(f"{event.sentence} {_show(facts)}".rstrip()))
        self._progress.console.print(line, highlight=False, markup=False, emoji=False, style=style)


def _show(facts: dict[str, Fact]) -> str:
    shown = (
        f"{key}={value:.4f}" if isinstance(value, float) else f"{key}={value}"
        for key, value in facts.items()
        if value is not None
    )
    return " ".join(shown)
