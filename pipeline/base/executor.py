"""Executors: where tasks run, either in the calling process or on the workers of another executor."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class MemoryNeed:
    """The memory that a process needs for a task."""

    bytes: int
    """Total bytes, including interpreter and libraries."""
    of: str = "a task"
    """What needs it, such as a partition with its rows."""
    remedy: str = "lower the number of vectors or folds"
    """How to reduce it, besides giving the workers more memory."""
    least_bytes: int = 0
    """The bytes needed at least, after following the remedy."""


class Executor(Protocol):
    """Runs pure functions of tasks. Tasks read their rows by location; rows are never sent with a task."""

    def count_workers(self) -> int:
        """Return the current number of worker processes; for messages, not for dividing tasks."""

    def admit(self, needs: Iterable[MemoryNeed]) -> None:
        """Raise MemoryRefused, with the numbers, if a worker's memory limit is below a need; has no other effect.

        The needs are only evaluated if there are workers with limits of their own.
        """

    def broadcast(self, value: Any) -> Any:  # noqa: ANN401
        """Send a value once to all workers; return a handle to pass to `run` as a shared argument."""

    def run(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *shared: Any,  # noqa: ANN401
    ) -> Iterator[Result]:
        """Yield function(task, *shared) for each task, in order; a bounded number of tasks run at a time."""

    def release(self) -> None:
        """Let workers that this job has started end while it continues: no task follows."""


class InProcess:
    """Runs each task in the calling process when its result is requested, so that errors have a plain traceback."""

    def count_workers(self) -> int:
        """Return one: this process."""
        return 1

    def admit(self, needs: Iterable[MemoryNeed]) -> None:
        """Do nothing: the memory of this process is checked elsewhere."""

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

    def release(self) -> None:
        """Do nothing: there are no workers."""
