"""Submission: sends tasks, and the values that they share, to the workers of a cluster."""

from collections.abc import Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from ridgestream.jobs.cluster.cluster_error import scheduler_errors, scheduler_gone
from ridgestream.jobs.cluster.version_check import Client
from ridgestream.jobs.cluster.worker_task import Requirements, hold, perform
from ridgestream.jobs.cluster.workers import LOOK_SECONDS, Workers
from ridgestream.pipeline.dataset.task_label import label_of

MAX_SENDINGS = 5
"""How often a task, or a value, is sent to a cluster that drops it before it is given up; each wait is longer."""

COPY_SECONDS = 10.0
"""How long a shared value waits at most for workers that are too busy to take a copy before the first task needs it."""

_NO_WARNING = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}
"""The states of cells travel with their tasks, since no two workers need the same ones."""


@dataclass
class SharedValue:
    """A value that every worker has."""

    value: Any
    """The value, kept to be sent again if the workers that had it are gone."""
    future: Any
    """Its future on the cluster."""
    sendings: int = 1
    """How often it was sent."""


@dataclass
class SubmittedTask:
    """A task under way."""

    call: tuple[Any, ...]
    """Function, task and shared values."""
    shared_sendings: dict[int, int]
    """How often each shared value had been sent when the task was, by position in the call."""
    future: Any
    """The future of its result."""
    sendings: int = 1
    """How often it was sent since its last result or failure."""
    failures: int = 0
    """How often it failed in reading or writing."""
    lost_workers: int = 0
    """How many workers were lost over it before it was last sent."""

    @property
    def label(self) -> str:
        """Which rows it reads, where that is known."""
        with suppress(OSError):
            return str(label_of(self.call[1]) or "a task")
        return "a task"


class Submission:
    """Sends tasks and shared values, and sends them again; how often is decided elsewhere."""

    def __init__(self, client: Client, workers: Workers, requirements: Requirements) -> None:
        self._client, self._workers = client, workers
        self.requirements = requirements
        """What is required of a worker for the tasks that are sent from now on."""

    @property
    def is_connected(self) -> bool:
        """Whether the client still has its scheduler."""
        return bool(self._client.status == "running")

    def share(self, value: Any) -> SharedValue:  # noqa: ANN401
        """Send a value to every worker."""
        return SharedValue(value, self._scatter(value))

    def submit(self, call: tuple[Any, ...]) -> SubmittedTask:
        """Send a task: function, task and shared values."""
        return SubmittedTask(call, _sendings(call), self._send(call))

    def resubmit(self, task: SubmittedTask) -> None:
        """Send a task again."""
        self._workers.lost.forget(task.future.key)
        task.shared_sendings, task.future = _sendings(task.call), self._send(task.call)
        task.sendings += 1

    def share_again(self, task: SubmittedTask) -> None:
        """Send again the values that a dropped task shares: to the scheduler, their workers are gone."""
        for position, sendings in task.shared_sendings.items():
            shared = task.call[position]
            if shared.sendings == sendings:  # else another task has had it sent again meanwhile
                shared.future, shared.sendings = self._scatter(shared.value), sendings + 1

    def cancel(self, tasks: Iterable[SubmittedTask]) -> None:
        """Cancel tasks whose results nobody waits for any more."""
        futures = [task.future for task in tasks]
        for future in futures:
            self._workers.lost.forget(future.key)
        with suppress(Exception):  # a scheduler that is gone, or a closed client, has no tasks to cancel
            self._client.cancel(futures)

    def _send(self, call: tuple[Any, ...]) -> Any:  # noqa: ANN401
        import dask.config

        arguments = [part.future if isinstance(part, SharedValue) else part for part in call]
        with scheduler_errors(), dask.config.set(_NO_WARNING):
            future = self._client.submit(perform, self.requirements, *arguments, pure=False)
        self._workers.lost.watch(future.key, call[1])
        return future

    def _scatter(self, value: Any) -> Any:  # noqa: ANN401
        """Send a value to every worker; again if the first one to have it dies meanwhile."""
        for sending in range(1, MAX_SENDINGS + 1):
            try:
                return self._copied(
                    self._client.scatter(  # in a list, since the parts of a tuple would be sent one by one
                        [value], hash=False, direct=False, timeout=self._workers.patience_seconds
                    )[0]
                )
            except TimeoutError as error:
                raise self._workers.none_left() from error
            except (OSError, CancelledError) as error:
                if sending == MAX_SENDINGS or not self.is_connected:
                    raise scheduler_gone(error) from error
                sleep(LOOK_SECONDS * sending)
        raise AssertionError

    def _copied(self, future: Any) -> Any:  # noqa: ANN401
        """Return a value that every worker has which accepts tasks, since tasks go where their values are.

        By a task for each worker: a scheduler asked to broadcast a value tries for ever to reach a worker that dies
        meanwhile, and shares no other value until then. Raises CancelledError if the value is lost.
        """
        running = [address for address, worker in self._workers.update().items() if worker["status"] == "running"]
        with scheduler_errors():
            copies = {a: self._client.submit(hold, future, workers=[a], pure=False, priority=1) for a in running}
        give_up = monotonic() + COPY_SECONDS
        while copies and not _all_done(copies.values()) and monotonic() < give_up:
            there = self._workers.update()
            copies = {address: copy for address, copy in copies.items() if address in there}
        return future


def _all_done(futures: Iterable[Any]) -> bool:
    """Wait for a moment until all are done; return whether they are. Raises CancelledError if one is dropped."""
    from distributed import wait

    with suppress(TimeoutError):
        wait(list(futures), timeout=LOOK_SECONDS)
        return True
    return False


def _sendings(call: tuple[Any, ...]) -> dict[int, int]:
    return {position: part.sendings for position, part in enumerate(call) if isinstance(part, SharedValue)}
