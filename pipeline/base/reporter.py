"""The interface through which long steps report progress and events; the commands decide how they are shown."""

import logging
from collections.abc import Callable, Mapping
from signal import Signals
from typing import Protocol

from ridgestream.pipeline.base.errors import Names, renamed, warn_caller
from ridgestream.pipeline.base.events import Event, Step

Fact = str | int | float | None

LOG = logging.getLogger("ridgestream")
"""Where Python programs hear of steps and events."""


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


def in_words(event: Event | Step, facts: Mapping[str, Fact], names: Names) -> str:
    """Return an event in words: `sentence (name=value, …)`, or of a step its name, without facts that are None."""
    sentence = renamed(event.sentence if isinstance(event, Event) else event.name, names)
    known = ", ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
    return f"{sentence} ({known})" if known else sentence


class RenamingReporter(Silent):
    """A reporter for Python programs, which logs steps and events."""

    def __init__(self, names: Names, warn: Callable[[Event, str], None]) -> None:
        """`warn` takes an event that a person should look at, with its words."""
        self._names, self._warn = names, warn
        self._steps: list[Step] = []

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:  # noqa: ARG002 (of the protocol)
        """Note the step."""
        self._steps.append(step)

    def end(self, **facts: Fact) -> None:
        """Say what the step did."""
        LOG.info(in_words(self._steps.pop(), facts, self._names))

    def say(self, event: Event, **facts: Fact) -> None:
        """Say an event."""
        LOG.info(in_words(event, facts, self._names))

    def warn(self, event: Event, **facts: Fact) -> None:
        """Say an event that a person should look at."""
        self._warn(event, in_words(event, facts, self._names))


def log_warning(_: Event, message: str) -> None:
    """Log an event as a warning."""
    LOG.warning(message)


def warn_program(_: Event, message: str) -> None:
    """Warn of an event with an InputWarning."""
    warn_caller(message)


def warn_of_doubt(event: Event, message: str) -> None:
    """Warn of an event that casts doubt on the model with an InputWarning; log another one."""
    if event.casts_doubt:
        warn_caller(message)
    else:
        LOG.info(message)
