"""An executor whose tasks run on a local or a remote Dask cluster."""

import logging
import os
import re
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import Any, TypeVar, cast

from ridgestream.jobs.cluster.connection import (
    LOOK_SECONDS,
    ClusterError,
    check_versions,
    connect,
    reaches_workers,
    tell_of_workers,
)
from ridgestream.jobs.cluster.lost_workers import MEMORY, Losses
from ridgestream.jobs.cluster.worker_task import Failed, order_of, perform
from ridgestream.jobs.config.cluster_options import ClusterOptions
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.base.executor import Executor, InProcess, Need
from ridgestream.pipeline.base.memory_plan import show_bytes
from ridgestream.pipeline.base.reporter import Reporter, Silent
from ridgestream.pipeline.dataset.task_label import work_of

__all__ = ["ClusterError", "OnCluster", "open_executor"]

TASKS_A_WORKER = 2
"""Tasks under way for each worker: one that runs, one that waits."""

SENDINGS = 5
"""How often a task is sent before a cluster that drops it, or what it needs, is given up; each time it waits longer."""

RETRY_SECONDS = 1.0
"""How long to wait before a task is tried again that failed in reading or writing; twice as long each time."""

_SILENCE = logging.CRITICAL + 1

Task = TypeVar("Task")
Result = TypeVar("Result")


@contextmanager
def open_executor(
    cluster: str,
    patience_seconds: float,
    options: ClusterOptions | None = None,
    report: Reporter | None = None,
) -> Iterator[Executor]:
    """Yield the executor that a job names.

    `cluster` is `none`, `local`, `local:N` (N worker processes), a scheduler's address, or `file:` and the path of a
    scheduler's file. Raises ClusterError if there is no scheduler, or at any time no worker, for `patience_seconds`, or
    if a worker has other versions than this process.
    """
    if cluster == "none":
        yield InProcess()
        return
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        yield _open(cluster, patience_seconds, options or ClusterOptions(), report or Silent(), stack)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's own log from among the job's lines, which tell what there is to tell."""
    import distributed  # noqa: F401  (its log is set up as it is imported)

    handlers = [(handler, handler.level) for handler in logging.getLogger("distributed").handlers]
    for handler, _ in handlers:
        handler.setLevel(_SILENCE)
    try:
        yield
    finally:
        for handler, level in handlers:
            handler.setLevel(level)


@dataclass
class Shared:
    """A value that every worker has."""

    value: Any
    """The value, kept here to be sent again where the workers that had it are gone."""
    future: Any
    """What stands for it on the cluster."""
    sendings: int = 1
    """How often it was sent."""


@dataclass
class Sent:
    """A task under way."""

    call: tuple[Any, ...]
    """Function, task and what is shared."""
    with_sending: dict[int, int]
    """Which sending of each shared value it was sent with, by the place in the call."""
    future: Any
    """What stands for its result."""
    sendings: int = 1
    """How often it was sent since it was last done, dropped or not."""
    failures: int = 0
    """How often it failed in reading or writing."""
    lost: int = 0
    """How many workers were lost over it before it was last sent."""

    @property
    def name(self) -> str:
        """What it is of."""
        with suppress(OSError):
            return str(work_of(self.call[1]) or "a task")
        return "a task"


class OnCluster:
    """Runs tasks on the workers of a Dask cluster; results come in the order of the tasks."""

    def __init__(self, client: Any, patience_seconds: float, options: ClusterOptions, report: Reporter) -> None:  # noqa: ANN401 (distributed has no types)
        self._client, self._patience_seconds = client, patience_seconds
        self._options, self._report = options, report
        self._order = order_of(options.threads)
        self._losses = Losses(client, report)
        self._looked, self._silent = 0.0, set[str]()

    def meet_workers(self) -> None:
        """Raise ClusterError, naming each worker, if one has other versions that matter; tell what workers have."""
        workers = {address: worker for address, worker in self._workers().items() if address not in self._silent}
        tell_of_workers(self._client, workers, self._options.threads, self._patience_seconds, self._report)

    def count_workers(self) -> int:
        """Return how many workers there are now; raise ClusterError if the scheduler is gone."""
        with _answers():
            return len(self._client.nthreads())

    def admit(self, needs: Iterable[Need]) -> None:
        """Raise MemoryRefused, with the numbers, if a worker's limit is lower than what a task needs."""
        limits = {name: worker["memory_limit"] for name, worker in self._workers().items() if worker["memory_limit"]}
        need = max(needs, key=lambda need: need.bytes, default=Need(0))
        for name, limit in limits.items():
            if limit < need.bytes:
                remedy = f", or {need.remedy}" if need.least_bytes <= limit else ""
                raise MemoryRefused(
                    f"{need.of} needs {show_bytes(need.bytes)} of memory, and the worker {name} may use "
                    f"{show_bytes(limit)}: give workers more{remedy}"
                )
        self._order = replace(self._order, bytes=need.bytes)

    def broadcast(self, value: Any) -> Any:  # noqa: ANN401
        """Send a value to every worker once; return what stands for it."""
        return Shared(value, self._scatter(value))

    def run(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *shared: Any,  # noqa: ANN401
    ) -> Iterator[Result]:
        """Yield the results in order, with a bounded number of tasks under way; raise what a task raised.

        A task that fails in reading or writing, in a way that may pass, is tried again after a wait.
        """
        waiting: deque[Sent] = deque()
        window = TASKS_A_WORKER * max(1, len(self._workers()))
        try:
            for task in tasks:
                call = (function, task, *shared)
                waiting.append(Sent(call, _sendings(call), self._submit(call)))
                if len(waiting) >= window:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            for sent in waiting:
                self._losses.forget(sent.future.key)
            with suppress(Exception):  # a scheduler that is gone, or a client, has no tasks to forget
                self._client.cancel([sent.future for sent in waiting])

    def _submit(self, call: tuple[Any, ...]) -> Any:  # noqa: ANN401
        arguments = [part.future if isinstance(part, Shared) else part for part in call]
        with _answers():
            future = self._client.submit(perform, self._order, *arguments, pure=False)
        self._losses.watch(future.key, call[1])
        return future

    def _scatter(self, value: Any) -> Any:  # noqa: ANN401
        """Send a value to every worker; again where one of them dies while it is sent."""
        for sending in range(1, SENDINGS + 1):
            try:
                return self._client.scatter(  # in a list, since parts of a tuple would be sent one by one
                    [value], broadcast=True, hash=False, direct=False, timeout=self._patience_seconds
                )[0]
            except TimeoutError as error:
                raise self._no_workers() from error
            except OSError as error:
                if sending == SENDINGS or self._client.status != "running":
                    raise _gone(error) from error
                sleep(LOOK_SECONDS * sending)
        raise AssertionError

    def _result(self, sent: Sent) -> Any:  # noqa: ANN401
        while True:
            result = self._outcome(sent)
            if monotonic() - self._looked > LOOK_SECONDS:
                self._workers()
            self._losses.tell()
            self._losses.forget(sent.future.key)
            if not isinstance(result, Failed):
                return result
            if result.unfit:
                raise ClusterError(
                    f"the worker {result.worker}, which came after the job began, is no place for its tasks: "
                    f"{result.unfit}; install the same versions there, or stop it"
                )
            self._try_again(sent, result)

    def _outcome(self, sent: Sent) -> Any:  # noqa: ANN401
        """Return what came of a task, sending it again where it is dropped or its workers die."""
        from distributed import KilledWorker
        from distributed.comm.core import CommClosedError

        patience = self._patience_seconds
        while True:
            try:
                self._wait(sent)
                return sent.future.result(timeout=patience)
            except TimeoutError:  # the worker that had it is gone, or the way to it is slow
                patience *= 2
            except CommClosedError as error:
                raise _gone(error) from error
            except KilledWorker as error:
                sent.lost += max(self._losses.count(sent.future.key), error.allowed_failures + 1)
                if sent.lost > self._options.lost_workers:
                    raise self._given_up(sent) from error
                self._send_again(sent)
            except CancelledError as error:
                if sent.sendings >= SENDINGS or self._client.status != "running":
                    raise _gone(error) from error
                sleep(LOOK_SECONDS * (sent.sendings - 1))
                self._share_again(sent)
                self._send_again(sent)
            except ModuleNotFoundError as error:
                if "ridgestream" not in str(error):
                    raise
                raise ClusterError(
                    f"a worker has another ridgestream, or none: {error}; install the same one"
                ) from error

    def _try_again(self, sent: Sent, failed: Failed) -> None:
        """Send a task again, after a wait, that failed in reading or writing; raise its error after the last try."""
        if failed.error is None or sent.failures >= self._options.retries:
            raise failed.error or AssertionError(failed)
        seconds = RETRY_SECONDS * 2**sent.failures
        self._report.warn(
            events.CLUSTER_TASK_RETRIED,
            doing=sent.name,
            worker=failed.worker,
            reason=str(failed.error),
            wait_seconds=seconds,
        )
        sleep(seconds)
        sent.failures, sent.sendings = sent.failures + 1, 0
        self._send_again(sent)

    def _share_again(self, sent: Sent) -> None:
        """Send again what a task shares that was dropped: its workers are gone, or so it seems to the scheduler."""
        for place, sending in sent.with_sending.items():
            part = sent.call[place]
            if part.sendings == sending:  # no other task has had it sent again since
                part.future, part.sendings = self._scatter(part.value), sending + 1

    def _send_again(self, sent: Sent) -> None:
        """Send a task again."""
        self._losses.forget(sent.future.key)
        sent.with_sending, sent.future = _sendings(sent.call), self._submit(sent.call)
        sent.sendings += 1

    def _wait(self, sent: Sent) -> None:
        """Wait for the task, but not for ever where no worker is left to do it, and not where it ends all that come."""
        from distributed import wait

        seen = monotonic()
        while not sent.future.done():
            try:
                wait(sent.future, timeout=LOOK_SECONDS)
            except TimeoutError as error:
                if self._works():
                    seen = monotonic()
                elif monotonic() - seen > self._patience_seconds:
                    raise self._no_workers() from error
                if sent.lost + self._losses.count(sent.future.key) > self._options.lost_workers:
                    sent.lost += self._losses.count(sent.future.key)
                    self._client.cancel([sent.future])
                    raise self._given_up(sent) from error

    def _given_up(self, sent: Sent) -> ClusterError:
        cause = self._losses.cause
        remedy = "give workers more memory" if cause.startswith(MEMORY) else "look at the log of the workers"
        return ClusterError(
            f"{sent.name} is given up after {sent.lost} workers were lost over it (cluster_options.lost_workers = "
            f"{self._options.lost_workers}); the likely cause: {cause}; {remedy}, then run the job again: what was "
            "committed stands"
        )

    def _works(self) -> bool:
        """Tell whether a worker takes tasks: one that is there and not paused."""
        return any(worker["status"] == "running" for worker in self._workers().values())

    def _workers(self) -> dict[str, Any]:
        with _answers():
            workers = cast("dict[str, Any] | None", self._client.scheduler_info(n_workers=-1).get("workers"))
        if workers is None:
            raise _gone(ConnectionError("the connection to it is lost"))
        self._looked = monotonic()
        come = self._losses.note_workers(workers)
        if come:
            self._silent |= check_versions(self._client, come, self._report)
        return workers

    def _no_workers(self) -> ClusterError:
        self._losses.tell()
        if self.count_workers():
            return _paused(self._patience_seconds)
        return ClusterError(
            f"the cluster has lost its workers, and no other came within {self._patience_seconds:g} s; start workers, "
            "then run the job again: what was committed stands"
        )


def _sendings(call: tuple[Any, ...]) -> dict[int, int]:
    return {place: part.sendings for place, part in enumerate(call) if isinstance(part, Shared)}


@contextmanager
def _answers() -> Iterator[None]:
    """Say what is the matter where a scheduler goes while it is asked."""
    from distributed.client import ClosedClientError

    try:
        yield
    except (OSError, ClosedClientError) as error:
        raise _gone(error) from error


def _gone(error: Exception) -> ClusterError:
    message = re.search(r"^Message: (.*?)\.?$", str(error), re.MULTILINE)  # Dask's own is of several lines
    reason = message[1] if message else str(error).partition("\n")[0] or type(error).__name__
    return ClusterError(
        f"the scheduler has gone or has dropped a task: {reason}; what was committed stands, and the same command goes "
        "on from there"
    )


def _paused(seconds: float) -> ClusterError:
    return ClusterError(
        f"all workers of the cluster have been paused for {seconds:g} s, as Dask pauses those that use most of their "
        "memory limit; give workers more memory, then run the job again: what was committed stands"
    )


def _open(
    cluster: str, patience_seconds: float, options: ClusterOptions, report: Reporter, stack: ExitStack
) -> OnCluster:
    from distributed import Client

    workers = _count_local_workers(cluster)
    if workers:
        local = stack.enter_context(_start_workers(workers, options.lost_workers))
        client = stack.enter_context(Client(local, timeout=patience_seconds))
    else:
        client = connect(cluster, patience_seconds, options, stack)
    try:
        client.wait_for_workers(1, timeout=patience_seconds)
    except TimeoutError as error:
        if client.nthreads():
            raise _paused(patience_seconds) from error
        raise ClusterError(
            f"no worker came to the cluster {cluster} within {patience_seconds:g} s (cluster_seconds); start workers, "
            "then run the job again"
        ) from error
    with _answers():
        executor = OnCluster(client, patience_seconds, options, report)
        executor.meet_workers()
        client.direct_to_workers = reaches_workers(client)
    return executor


def _start_workers(workers: int, lost_workers: int) -> Any:  # noqa: ANN401
    from multiprocessing import resource_tracker

    from distributed import LocalCluster

    resource_tracker.ensure_running()  # which takes no signal, and to be started would undo the mask
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # workers inherit it: Ctrl-C is for this process
    try:
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            silence_logs=_SILENCE,
            dashboard_address=None,
            scheduler_kwargs={
                "dashboard_address": "127.0.0.1:0",  # without it, port 8787 even with no dashboard
                "allowed_failures": lost_workers,
            },
        )
    except (RuntimeError, OSError, TimeoutError) as error:
        raise ClusterError(
            f"the {workers} workers of this machine did not start: {str(error).rstrip('.')}; nothing was changed: run "
            "the job again"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _count_local_workers(cluster: str) -> int:
    """Return how many worker processes of this machine a job names; 0 where it names none of them."""
    name, _, count = cluster.partition(":")
    return (int(count) if count else os.cpu_count() or 1) if name == "local" else 0
