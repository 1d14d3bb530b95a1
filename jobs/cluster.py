"""The one place that knows `distributed`: an executor whose tasks run on a local or a remote Dask cluster."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, TypeVar, cast

from ridgestream.pipeline.errors import MemoryRefused
from ridgestream.pipeline.executor import Executor, InProcess
from ridgestream.pipeline.planning import show_bytes

LOOK_SECONDS = 1.0
"""How often a wait for a task looks whether there are workers at all."""

TASKS_A_WORKER = 2
"""Tasks under way for each worker: one that runs, one that waits."""

SENDINGS = 5
"""How often a task is sent before a cluster that drops it, or what it needs, is given up; each time it waits longer."""

Task = TypeVar("Task")
Result = TypeVar("Result")


class ClusterError(RuntimeError):
    """The cluster cannot be had or has lost its workers; the message says what to do."""


@contextmanager
def open_executor(cluster: str, patience_seconds: float) -> Iterator[Executor]:
    """Yield the executor that a job names: `none`, `local`, `local:N` (N worker processes), or a scheduler's address.

    Raises ClusterError if there is no scheduler, or at any time no worker, for `patience_seconds`.
    """
    if cluster == "none":
        yield InProcess()
        return
    with ExitStack() as stack:
        yield _connect(cluster, patience_seconds, stack)


@dataclass
class Shared:
    """A value that every worker has."""

    value: Any
    """The value, kept here to be sent again where the workers that had it are gone."""
    future: Any
    """What stands for it on the cluster."""


@dataclass
class Sent:
    """A task under way."""

    call: tuple[Any, ...]
    """Function, task and what is shared."""
    future: Any
    """What stands for its result."""
    sendings: int = 1
    """How often it was sent."""


class OnCluster:
    """Runs tasks on the workers of a Dask cluster; results come in the order of the tasks."""

    def __init__(self, client: Any, patience_seconds: float) -> None:  # noqa: ANN401 (distributed has no types)
        self._client, self._patience_seconds = client, patience_seconds

    def admit(self, worker_bytes: int) -> None:
        """Raise MemoryRefused, with the numbers, if a worker's limit is lower than what a task needs."""
        for name, worker in self._workers().items():
            limit = worker["memory_limit"]
            if limit and limit < worker_bytes:
                raise MemoryRefused(
                    f"a task needs {show_bytes(worker_bytes)} of memory, and the worker {name} may use "
                    f"{show_bytes(limit)}: give workers more, or lower the number of vectors or folds"
                )

    def broadcast(self, value: Any) -> Any:  # noqa: ANN401
        """Send a value to every worker once; return what stands for it."""
        return Shared(value, self._scatter(value))

    def run(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *shared: Any,  # noqa: ANN401
    ) -> Iterator[Result]:
        """Yield the results in order, with a bounded number of tasks under way; raise what a task raised."""
        waiting: deque[Sent] = deque()
        window = TASKS_A_WORKER * max(1, self._count_workers())
        try:
            for task in tasks:
                call = (function, task, *shared)
                waiting.append(Sent(call, self._submit(call)))
                if len(waiting) >= window:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            with suppress(OSError):  # a scheduler that is gone has no tasks to forget
                self._client.cancel([sent.future for sent in waiting])

    def _submit(self, call: tuple[Any, ...]) -> Any:  # noqa: ANN401
        with _answers():
            return self._client.submit(
                *(part.future if isinstance(part, Shared) else part for part in call), pure=False
            )

    def _scatter(self, value: Any) -> Any:  # noqa: ANN401
        """Send a value to every worker; again where one of them dies while it is sent."""
        for sending in range(1, SENDINGS + 1):
            try:
                return self._client.scatter(value, broadcast=True, hash=False, timeout=self._patience_seconds)
            except TimeoutError as error:
                raise self._no_workers() from error
            except OSError as error:
                if sending == SENDINGS or self._client.status != "running":
                    raise _gone(error) from error
                sleep(LOOK_SECONDS * sending)
        raise AssertionError

    def _result(self, sent: Sent) -> Any:  # noqa: ANN401
        from distributed import KilledWorker

        while True:
            try:
                self._wait(sent.future)
                return sent.future.result()
            except KilledWorker as error:
                raise ClusterError(
                    f"a task was given up after its workers died: {error}; the usual cause is memory: give workers more"
                ) from error
            except CancelledError as error:
                if sent.sendings == SENDINGS or self._client.status != "running":
                    raise _gone(error) from error
                self._send_again(sent)

    def _send_again(self, sent: Sent) -> None:
        """Send a task again, with what it shares where the workers that had it are gone, once others have come."""
        sleep(LOOK_SECONDS * (sent.sendings - 1))
        for part in sent.call:
            if isinstance(part, Shared) and part.future.status != "finished":
                part.future = self._scatter(part.value)
        sent.future = self._submit(sent.call)
        sent.sendings += 1

    def _wait(self, future: Any) -> None:  # noqa: ANN401
        """Wait for the task, but not for ever where no worker is left to do it."""
        from distributed import wait

        seen = monotonic()
        while not future.done():
            try:
                wait(future, timeout=LOOK_SECONDS)
            except TimeoutError as error:
                if self._works():
                    seen = monotonic()
                elif monotonic() - seen > self._patience_seconds:
                    raise self._no_workers() from error

    def _works(self) -> bool:
        """Tell whether a worker takes tasks: one that is there and not paused."""
        return any(worker["status"] == "running" for worker in self._workers().values())

    def _workers(self) -> dict[str, Any]:
        with _answers():
            return cast("dict[str, Any]", self._client.scheduler_info(n_workers=-1)["workers"])

    def _count_workers(self) -> int:
        with _answers():
            return len(self._client.nthreads())

    def _no_workers(self) -> ClusterError:
        if self._count_workers():
            return _paused(self._patience_seconds)
        return ClusterError(
            f"the cluster has lost its workers, and no other came within {self._patience_seconds:g} s; start workers, "
            "then run the job again: what was committed stands"
        )


@contextmanager
def _answers() -> Iterator[None]:
    """Say what is the matter where a scheduler goes while it is asked."""
    try:
        yield
    except OSError as error:
        raise _gone(error) from error


def _gone(error: Exception) -> ClusterError:
    return ClusterError(
        f"the scheduler has gone or has dropped a task: {error}; what was committed stands, and the same command goes "
        "on from there"
    )


def _paused(seconds: float) -> ClusterError:
    return ClusterError(
        f"all workers of the cluster have been paused for {seconds:g} s, as Dask pauses those that use most of their "
        "memory limit; give workers more memory, then run the job again: what was committed stands"
    )


def _connect(cluster: str, patience_seconds: float, stack: ExitStack) -> OnCluster:
    from distributed import Client

    name, _, count = cluster.partition(":")
    if name == "local":
        local = stack.enter_context(_start_workers(_count_workers(count)))
        client = stack.enter_context(Client(local, timeout=patience_seconds))
    else:
        client = _client_at(cluster, patience_seconds, stack)
    try:
        client.wait_for_workers(1, timeout=patience_seconds)
    except TimeoutError as error:
        if client.nthreads():
            raise _paused(patience_seconds) from error
        raise ClusterError(
            f"no worker came to the cluster {cluster} within {patience_seconds:g} s (cluster_seconds); start workers, "
            "then run the job again"
        ) from error
    return OnCluster(client, patience_seconds)


def _start_workers(workers: int) -> Any:  # noqa: ANN401
    from distributed import LocalCluster

    try:
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # without it, port 8787 even with no dashboard
        )
    except (RuntimeError, OSError, TimeoutError) as error:
        raise ClusterError(
            f"the {workers} workers of this machine did not start: {error}; nothing was changed: run the job again"
        ) from error


def _client_at(address: str, patience_seconds: float, stack: ExitStack) -> Any:  # noqa: ANN401
    from distributed import Client

    try:
        return stack.enter_context(Client(address, timeout=patience_seconds))
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no scheduler answers at {address}: {error}; start it, or use --cluster none or local"
        ) from error


def _count_workers(text: str) -> int:
    return int(text) if text else os.cpu_count() or 1
