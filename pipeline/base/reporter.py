"""The interface through which long steps report progress and events; the commands decide how they are shown."""

from signal import Signals
from typing import Protocol

from ridgestream.pipeline.base.events import Event, Step

Fact = str | int | float | None


class Stopped(BaseException):
    """Raised to stop a run: code that has something to save saves it and does not suppress this exception."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        """The number of the signal that requested the stop."""

    def __str__(self) -> str:
        return f"terminated by {Signals(self.number).name}"


class Reporter(Protocol):
    """Receives steps, the rows done in them, and events, each with facts by name.

    `begin` and `advance` are called between two pieces of work, and raise Stopped if the run should stop.
    """

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:
        """Begin a step; `total_rows` is None if it is not known."""

    def advance(self, rows: int, **facts: Fact) -> None:
        """Count rows that are done since the last call."""

    def end(self, **facts: Fact) -> None:
        """End the step that started last."""

    def say(self, event: Event, **facts: Fact) -> None:
        """Report an event that is worth a line."""

    def warn(self, event: Event, **facts: Fact) -> None:
        """Report an event that a person should look at."""


class Silent:
    """A reporter that ignores everything."""

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:
        """Do nothing."""

    def advance(self, rows: int, **facts: Fact) -> None:
        """Do nothing."""

    def end(self, **facts: Fact) -> None:
        """Do nothing."""

    def say(self, event: Event, **facts: Fact) -> None:
        """Do nothing."""

    def warn(self, event: Event, **facts: Fact) -> None:
        """Do nothing."""
