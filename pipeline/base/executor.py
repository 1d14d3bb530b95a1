"""Where tasks run: in the calling process, or wherever another executor of the same protocol sends them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Need:
    """What a process must be able to hold to do a task."""

    bytes: int
    """All of it, interpreter and libraries included."""
    of: str = "a task"
    """What needs it, such as a partition with its rows."""
    remedy: str = "lower the number of vectors or folds"
    """What to do about it, beside giving workers more."""
    least_bytes: int = 0
    """What it comes to at least by that."""


class Executor(Protocol):
    """Runs pure functions of small tasks. What a task reads, it reads by location; rows never travel with it."""

    def count_workers(self) -> int:
        """Return how many processes share tasks now; for what is told, not for how tasks are cut."""

    def admit(self, needs: Iterable[Need]) -> None:
        """Raise MemoryRefused, with the numbers, if a worker may not use so many bytes; nothing else depends on it.

        The needs are looked at only where there are workers with limits of their own.
        """

    def broadcast(self, value: Any) -> Any:  # noqa: ANN401
        """Send a value once to wherever tasks run; return what stands for it among the arguments of `run`."""

    def run(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *shared: Any,  # noqa: ANN401
    ) -> Iterator[Result]:
        """Yield function(task, *shared) for each task, in the order of the tasks; a bounded number are under way."""


class InProcess:
    """Runs each task when its result is asked for, so that a bug has a plain traceback."""

    def count_workers(self) -> int:
        """Return one: this process."""
        return 1

    def admit(self, needs: Iterable[Need]) -> None:
        """Admit: this process's own memory is looked at elsewhere."""

    def broadcast(self, value: Any) -> Any:  # noqa: ANN401
        """Return the value."""
        return value

    def run(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *shared: Any,  # noqa: ANN401
    ) -> Iterator[Result]:
        """Yield the results one after another."""
        return (function(task, *shared) for task in tasks)
