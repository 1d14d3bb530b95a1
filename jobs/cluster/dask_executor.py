"""An executor whose tasks run on a local or a remote Dask cluster."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Thread
from typing import Any, TypeVar

from ridgestream.jobs.cluster.cluster_error import ClusterError, scheduler_errors, workers_paused
from ridgestream.jobs.cluster.connection import connect, open_client
from ridgestream.jobs.cluster.freed_memory import share_freed_memory
from ridgestream.jobs.cluster.local_cluster import (
    LOCAL,
    count_local_workers,
    local_settings,
    silenced_log,
    start_workers,
)
from ridgestream.jobs.cluster.retries import Retries
from ridgestream.jobs.cluster.submission import SharedValue, Submission, SubmittedTask
from ridgestream.jobs.cluster.version_check import Client
from ridgestream.jobs.cluster.worker_task import requirements_of
from ridgestream.jobs.cluster.workers import Workers, reaches_workers
from ridgestream.jobs.config.cluster_options import ClusterOptions
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.blas_threads import most_threads
from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.base.executor import Executor, InProcess, MemoryNeed
from ridgestream.pipeline.base.memory_plan import show_bytes
from ridgestream.pipeline.base.reporter import Reporter, Silent
from ridgestream.stores.requests.activity import ACTIVITY

TASKS_PER_WORKER = 2
"""Tasks under way for each worker: one that runs, one that waits."""

Task = TypeVar("Task")
Result = TypeVar("Result")


@contextmanager
def open_executor(
    cluster: str,
    patience_seconds: float,
    options: ClusterOptions | None = None,
    report: Reporter | None = None,
) -> Iterator[Executor]:
    """Yield the executor for the cluster that a job names.

    `cluster` is `none`, `local`, `local:N` (N worker processes), a scheduler's address, or `file:` and the path of a
    scheduler's file. Raises ClusterError if there is no scheduler, or at any time no worker, for `patience_seconds`, or
    if a worker has other versions than this process.
    """
    share_freed_memory()
    if cluster == "none":
        yield InProcess(most_threads())
        return
    with ExitStack() as stack:
        stack.enter_context(silenced_log())
        options = options or ClusterOptions()
        with ACTIVITY.paused():
            client = _open_client(cluster, patience_seconds, options, stack, report or Silent())
            _wait_for_a_worker(client, cluster, patience_seconds)
        with scheduler_errors():
            executor = DaskExecutor(client, patience_seconds, options, report or Silent())
            executor.describe_workers()
            client.direct_to_workers = reaches_workers(client)
        stack.callback(executor.wait_released)
        yield executor


class DaskExecutor:
    """Runs tasks on the workers of a Dask cluster; results come in the order of the tasks."""

    def __init__(self, client: Client, patience_seconds: float, options: ClusterOptions, report: Reporter) -> None:
        self._threads, self._client, self._ending = options.threads, client, Thread()
        self._own_threads = most_threads()
        self._workers = Workers(client, patience_seconds, report)
        self._submission = Submission(client, self._workers, requirements_of(options.threads))
        self._retries = Retries(self._submission, self._workers, options, report)

    def describe_workers(self) -> None:
        """Report what workers have; raises ClusterError, naming each worker, if one has other decisive versions."""
        self._workers.describe(self._threads)

    @property
    def threads(self) -> int:
        """The threads that this process may compute in."""
        return self._own_threads

    def count_workers(self) -> int:
        """Return how many workers there are now; raises ClusterError if the scheduler is gone."""
        return self._workers.count()

    def admit(self, needs: Iterable[MemoryNeed]) -> None:
        """Raise MemoryRefused, with the numbers, if a worker's limit is lower than what a task needs."""
        limits = self._workers.memory_limits()
        need = max(needs, key=lambda need: need.bytes, default=MemoryNeed(0))
        for name, limit in limits.items():
            if limit < need.bytes:
                remedy = f", or {need.remedy}" if need.least_bytes <= limit else ""
                raise MemoryRefused(
                    f"{need.of} needs {show_bytes(need.bytes)} of memory, and the worker {name} may use "
                    f"{show_bytes(limit)}: give workers more{remedy}"
                )
        self._submission.requirements = replace(self._submission.requirements, bytes=need.bytes)

    def broadcast(self, value: Any) -> SharedValue:  # noqa: ANN401
        """Send a value to every worker once; return its handle for the arguments of `run`."""
        return self._submission.share(value)

    def run(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *shared: Any,  # noqa: ANN401
    ) -> Iterator[Result]:
        """Yield the results in order, with a bounded number of tasks under way; raises what a task raises.

        A task that fails in reading or writing, in a way that may pass, is tried again after a wait.
        """
        waiting: deque[SubmittedTask] = deque()
        window = TASKS_PER_WORKER * max(1, len(self._workers.update()))
        try:
            for task in tasks:
                waiting.append(self._submission.submit((function, task, *shared)))
                if len(waiting) >= window:
                    yield self._retries.result(waiting.popleft())
            while waiting:
                yield self._retries.result(waiting.popleft())
        finally:
            self._submission.cancel(waiting)

    def release(self) -> None:
        """Let the workers of this machine end while the job continues; those of another scheduler stay."""
        if self._client.cluster is not None and not self._ending.is_alive():
            self._ending = Thread(target=self._end, name="end-workers", daemon=True)
            self._ending.start()

    def wait_released(self) -> None:
        """Wait until the workers that were released have ended."""
        if self._ending.ident is not None:
            self._ending.join()

    def _end(self) -> None:
        self._client.close()
        self._client.cluster.close()


def _open_client(
    cluster: str, patience_seconds: float, options: ClusterOptions, stack: ExitStack, report: Reporter
) -> Client:
    workers = count_local_workers(cluster)
    if not workers:
        return connect(cluster, patience_seconds, options, stack)
    if cluster == LOCAL:
        report.say(events.CLUSTER_LOCAL_WORKERS, workers=workers, processors=os.cpu_count())
    stack.enter_context(local_settings())
    local = stack.enter_context(start_workers(workers, options.lost_workers))
    return stack.enter_context(open_client(local, patience_seconds))


def _wait_for_a_worker(client: Client, cluster: str, patience_seconds: float) -> None:
    try:
        client.wait_for_workers(1, timeout=patience_seconds)
    except TimeoutError as error:
        if client.nthreads():
            raise workers_paused(patience_seconds) from error
        raise ClusterError(
            f"no worker came to the cluster {cluster} within {patience_seconds:g} s (cluster_seconds); start workers, "
            "then run the job again"
        ) from error
