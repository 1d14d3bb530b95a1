"""What a long step tells while it works; the doors decide how it is shown."""

from typing import Protocol

Fact = str | int | float | None


class Stopped(BaseException):
    """The run is to end: who has something to keep keeps it, and lets this pass."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        """The signal that asked for it."""


class Reporter(Protocol):
    """Told of steps, of rows done in them, and of what is known at that point.

    `begin` and `advance` come between two pieces of work, and raise Stopped where the run is to end.
    """

    def begin(self, step: str, total_rows: int | None, **facts: Fact) -> None:
        """Begin a step of so many rows, if that is known."""

    def advance(self, rows: int, **facts: Fact) -> None:
        """Tell that so many more rows are done."""

    def end(self, **facts: Fact) -> None:
        """End the step that was begun last."""

    def say(self, message: str, **facts: Fact) -> None:
        """Tell something that is worth a line."""

    def warn(self, message: str, **facts: Fact) -> None:
        """Tell something that a person should look at."""


class Silent:
    """Says nothing."""

    def begin(self, step: str, total_rows: int | None, **facts: Fact) -> None:
        """Say nothing."""

    def advance(self, rows: int, **facts: Fact) -> None:
        """Say nothing."""

    def end(self, **facts: Fact) -> None:
        """Say nothing."""

    def say(self, message: str, **facts: Fact) -> None:
        """Say nothing."""

    def warn(self, message: str, **facts: Fact) -> None:
        """Say nothing."""
