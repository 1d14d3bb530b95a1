"""The one place that knows `distributed`: an executor whose tasks run on a local or a remote Dask cluster."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any, TypeVar

from ridgestream.pipeline.executor import Executor, InProcess

LOOK_SECONDS = 1.0
"""How often a wait for a task looks whether there are workers at all."""

TASKS_A_WORKER = 2
"""Tasks under way for each worker: one that runs, one that waits."""

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


class OnCluster:
    """Runs tasks on the workers of a Dask cluster; results come in the order of the tasks."""

    def __init__(self, client: Any, patience_seconds: float) -> None:  # noqa: ANN401 (distributed has no types)
        self._client, self._patience_seconds = client, patience_seconds

    def broadcast(self, value: Any) -> Any:  # noqa: ANN401
        """Send a value to every worker once; return its future."""
        try:
            return self._client.scatter(value, broadcast=True, hash=False, timeout=self._patience_seconds)
        except TimeoutError as error:
            raise self._no_workers() from error

    def run(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *shared: Any,  # noqa: ANN401
    ) -> Iterator[Result]:
        """Yield the results in order, with a bounded number of tasks under way; raise what a task raised."""
        waiting: deque[Any] = deque()
        window = TASKS_A_WORKER * max(1, len(self._client.nthreads()))
        try:
            for task in tasks:
                waiting.append(self._client.submit(function, task, *shared, pure=False))
                if len(waiting) >= window:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            self._client.cancel(list(waiting))

    def _result(self, future: Any) -> Any:  # noqa: ANN401
        from distributed import KilledWorker

        try:
            self._wait(future)
            return future.result()
        except KilledWorker as error:
            raise ClusterError(
                f"a task was given up after its workers died: {error}; the usual cause is memory: give workers more"
            ) from error
        except CancelledError as error:
            raise ClusterError(
                f"the scheduler has gone or has dropped a task: {error}; what was committed stands, and the same "
                "command goes on from there"
            ) from error

    def _wait(self, future: Any) -> None:  # noqa: ANN401
        """Wait for the task, but not for ever where no worker is left to do it."""
        from distributed import wait

        seen = monotonic()
        while not future.done():
            try:
                wait(future, timeout=LOOK_SECONDS)
            except TimeoutError as error:
                if self._client.nthreads():
                    seen = monotonic()
                elif monotonic() - seen > self._patience_seconds:
                    raise self._no_workers() from error

    def _no_workers(self) -> ClusterError:
        return ClusterError(
            f"the cluster has lost its workers, and no other came within {self._patience_seconds:g} s; start workers, "
            "then run the job again: what was committed stands"
        )


def _connect(cluster: str, patience_seconds: float, stack: ExitStack) -> OnCluster:
    from distributed import Client, LocalCluster

    name, _, count = cluster.partition(":")
    if name == "local":
        workers = _count_workers(count)
        local = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # without it, port 8787 even with no dashboard
        )
        stack.enter_context(local)
        client = stack.enter_context(Client(local, timeout=patience_seconds))
    else:
        client = _client_at(cluster, patience_seconds, stack)
    try:
        client.wait_for_workers(1, timeout=patience_seconds)
    except TimeoutError as error:
        raise ClusterError(
            f"no worker came to the cluster {cluster} within {patience_seconds:g} s (cluster_seconds); start workers, "
            "then run the job again"
        ) from error
    return OnCluster(client, patience_seconds)


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
