"""Executors: where tasks run, either in the calling process or on the workers of another executor."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ridgestream.pipeline.base.blas_threads import map_in_threads

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

    @property
    def threads(self) -> int:
        """The threads that this process may compute in; no bit depends on it."""

    def count_workers(self) -> int:
        """Return how many tasks run at a time: the current number of worker processes, or of threads."""

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

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads

    @property
    def threads(self) -> int:
        """The threads that this process may compute in."""
        return self._threads

    def count_workers(self) -> int:
        """Return one: this thread."""
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


class InThreads(InProcess):
    """Runs tasks in the threads of the calling process: for tasks that need little memory of their own."""

    def count_workers(self) -> int:
        """Return the number of threads."""
        return self.threads

    def run(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *shared: Any,  # noqa: ANN401
    ) -> Iterator[Result]:
        """Yield the results in order, of several tasks at a time."""

        def run_one(task: Task) -> Result:
            return function(task, *shared)

        return map_in_threads(run_one, tasks, self.threads)


def in_threads(executor: Executor, most: int | None = None) -> Executor:
    """Return an executor that runs tasks in threads, if this one runs them in this process, and otherwise this one.

    There are as many threads as this process may compute in, or `most`.
    """
    threads = executor.threads if most is None else most
    return InThreads(threads) if type(executor) is InProcess else executor
