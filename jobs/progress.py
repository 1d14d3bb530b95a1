"""How a job shows its work: bars on a terminal, one plain line a step elsewhere; always on standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from ridgestream.pipeline.reporting import Fact, Reporter

if TYPE_CHECKING:
    from rich.progress import TaskID


def open_reporter() -> "AbstractContextManager[Reporter]":
    """Return the reporter that suits standard error."""
    return TerminalReporter() if sys.stderr.isatty() else nullcontext(LineReporter())


class LineReporter:
    """Writes one line when a step ends, with what is known then."""

    def __init__(self) -> None:
        import structlog

        self._log = structlog.wrap_logger(
            structlog.PrintLogger(sys.stderr),
            processors=[
                structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
                structlog.processors.KeyValueRenderer(key_order=["timestamp", "event"], drop_missing=True),
            ],
        )
        self._step, self._rows, self._began = "", 0, 0.0

    def begin(self, step: str, total_rows: int | None, **facts: Fact) -> None:  # noqa: ARG002
        """Note the step and the time."""
        self._step, self._rows, self._began = step, 0, time.perf_counter()

    def advance(self, rows: int, **facts: Fact) -> None:  # noqa: ARG002
        """Count the rows."""
        self._rows += rows

    def end(self, **facts: Fact) -> None:
        """Write the step's line."""
        seconds = time.perf_counter() - self._began
        done = {"rows": self._rows} | facts
        known = {key: value for key, value in done.items() if value is not None}
        self._log.info(self._step, **known, seconds=round(seconds, 2))

    def say(self, message: str, **facts: Fact) -> None:
        """Write the message as a line."""
        self._log.info(message, **facts)


class TerminalReporter:
    """Shows a bar for each step, with rows, rows per second and what is known."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress: Progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rows]:>9,} rows {task.fields[speed]:>9} {task.fields[facts]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task: TaskID | None = None
        self._rows, self._began = 0, 0.0

    def __enter__(self) -> "TerminalReporter":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begin(self, step: str, total_rows: int | None, **facts: Fact) -> None:
        """Add a bar."""
        self._rows, self._began = 0, time.perf_counter()
        self._task = self._progress.add_task(step, total=total_rows, rows=0, speed="", facts=_show(facts))

    def advance(self, rows: int, **facts: Fact) -> None:
        """Move the bar."""
        if self._task is None:
            return
        self._rows += rows
        speed = self._rows / max(time.perf_counter() - self._began, 1e-9)
        self._progress.update(self._task, advance=rows, rows=self._rows, speed=f"{speed:,.0f}/s", facts=_show(facts))

    def end(self, **facts: Fact) -> None:
        """Complete the bar."""
        if self._task is not None:
            done = max(self._rows, 1)
            self._progress.update(self._task, total=done, completed=done if self._rows else 1, facts=_show(facts))
        self._task = None

    def say(self, message: str, **facts: Fact) -> None:
        """Print the message above the bars."""
        self._progress.console.print(f"{message} {_show(facts)}".rstrip(), highlight=False)


def _show(facts: dict[str, Fact]) -> str:
    shown = (
        f"{key}={value:.4f}" if isinstance(value, float) else f"{key}={value}"
        for key, value in facts.items()
        if value is not None
    )
    return " ".join(shown)


@contextmanager
def open_fetch_reporter() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield what a fetch reports to: a bar a stage on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:<9}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bars: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int | None) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task(stage, total=total)
            progress.update(bars[stage], completed=done, total=total)

        yield report
