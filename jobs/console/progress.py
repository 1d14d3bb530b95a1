"""Reporters that show progress on standard error: bars on a terminal, one line for each step elsewhere."""

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic, perf_counter, time
from typing import TYPE_CHECKING, Any, Self

import psutil

from ridgestream.jobs.console.escaping import harmless
from ridgestream.jobs.console.heartbeat import Heartbeat
from ridgestream.jobs.console.log_format import Log, write_json
from ridgestream.jobs.console.throughput import Throughput
from ridgestream.pipeline.base.events import STEP_PROGRESS, Event, Step
from ridgestream.pipeline.base.reporter import Fact, Reporter
from ridgestream.stores.files.credentials import hide_secrets, without_secrets
from ridgestream.stores.requests.activity import ACTIVITY

if TYPE_CHECKING:
    from rich.progress import TaskID


PROGRESS_SECONDS = 7.0
"""How often a line says how far a step has come that advances."""

WORTH_SECONDS = 1.0
"""How long a step takes whose end is worth a line though a run has many of it."""


_KEY_ORDER = ["timestamp", "level", "event", "message"]


def open_reporter(log: Log = "auto") -> "AbstractContextManager[Reporter]":
    """Return a reporter for the log; for auto, bars if standard error is a terminal, else text."""
    return TerminalReporter() if log == "auto" and sys.stderr.isatty() else LineReporter(log, _process_seconds())


def _process_seconds() -> float:
    """Return how long this process has been silent: since its start."""
    return max(time() - psutil.Process().create_time(), 0.0)


@dataclass
class _CurrentStep:
    """A step that has begun and not ended."""

    step: Step
    throughput: Throughput
    began: float
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """What was last said about it."""

    def progress(self) -> dict[str, Fact]:
        """Return how far it has come."""
        done = self.throughput
        progress: dict[str, Fact] = {"step": self.step.code, "rows": done.rows, "percent": done.percent}
        progress |= {"rows_per_second": done.rows_per_second, "remaining_seconds": done.remaining_seconds}
        return progress | dict(self.facts)


class LineReporter:
    """Writes a line when a step ends, with its facts, and one every PROGRESS_SECONDS while it continues.

    The end of a step that a run has many of is written only where it has taken WORTH_SECONDS.
    As a context, it also says what is going on where no line has been written for ten seconds, in a step or between.
    """

    def __init__(self, log: Log = "text", quiet_seconds: float = 0.0) -> None:
        """Begin; no line has been written for `quiet_seconds`."""
        self._writer = write_json if log == "json" else text_writer()
        self._current: _CurrentStep | None = None
        self._written_at = monotonic() - quiet_seconds
        self.heartbeat = Heartbeat(lambda: monotonic() - self._written_at, self._say_what_goes_on)

    def __enter__(self) -> Self:
        self.heartbeat.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.heartbeat.__exit__(*error)

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:
        """Note the step and the time."""
        self._current = _CurrentStep(step, Throughput(total_rows, _partitions(facts)), perf_counter())

    def advance(self, rows: int, **facts: Fact) -> None:
        """Count the rows; write how far the step has come, unless PROGRESS_SECONDS have not passed yet."""
        current = self._current
        if current is None:
            return
        current.throughput.advance(rows)
        current.facts = facts
        if monotonic() - self._written_at >= PROGRESS_SECONDS:
            self._write("info", STEP_PROGRESS.code, current.step.name, **_known(current.progress()))

    def end(self, **facts: Fact) -> None:
        """Write the step's line."""
        current, self._current = self._current, None
        if current is None:
            return
        seconds = perf_counter() - current.began
        if seconds >= WORTH_SECONDS or not current.step.is_repeated:
            facts = {"rows": current.throughput.rows} | facts | {"seconds": round(seconds, 2)}
            self._write("info", current.step.code, current.step.name, **_known(facts))

    def say(self, event: Event, **facts: Fact) -> None:
        """Write the event as a line."""
        self._write("info", event.code, event.sentence, **facts)

    def warn(self, event: Event, **facts: Fact) -> None:
        """Write the event as a line of level warning."""
        self._write("warning", event.code, event.sentence, **facts)

    def _say_what_goes_on(self) -> None:
        """Write how far the current step has come, if there is one, and what is under way."""
        current = self._current
        if current is None:
            self._write("info", STEP_PROGRESS.code, STEP_PROGRESS.name, doing=ACTIVITY.waits_for())
        else:
            facts = _known(current.progress() | {"doing": ACTIVITY.oldest})
            self._write("info", STEP_PROGRESS.code, current.step.name, **facts)

    def _write(self, level: str, event: str, message: str, **facts: Fact) -> None:
        self._written_at = monotonic()
        self._writer(level, event, message, **facts)


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
