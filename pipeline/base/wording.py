"""Events and errors as Python programs get them: a sentence with its facts, and remedies by the door's own names.

Messages name the options of the command. A door for Python has other names for the same remedies: `Names` maps the
words of the command to its own.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ridgestream.pipeline.base.errors import warn_caller
from ridgestream.pipeline.base.events import Event, Step
from ridgestream.pipeline.base.reporter import Fact, Silent

LOG = logging.getLogger("ridgestream")
"""Where Python programs hear of steps and events."""

Names = Mapping[str, str]


def in_words(event: Event | Step, facts: Mapping[str, Fact], names: Names) -> str:
    """Return an event in words: `sentence (name=value, …)`, or of a step its name, without facts that are None."""
    sentence = renamed(event.sentence if isinstance(event, Event) else event.name, names)
    known = ", ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
    return f"{sentence} ({known})" if known else sentence


def renamed(message: str, names: Names) -> str:
    """Return a message with the door's names."""
    for words, own in names.items():
        message = message.replace(words, own)
    return message


@contextmanager
def errors_renamed(names: Names) -> Iterator[None]:
    """Give the errors of a block the door's names."""
    try:
        yield
    except Exception as error:
        error.args = tuple(renamed(part, names) if isinstance(part, str) else part for part in error.args)
        raise


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
