"""The workers of a cluster: which there are now, and what they have."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, cast

from ridgestream.jobs.cluster.cluster_error import (
    ClusterError,
    scheduler_errors,
    scheduler_gone,
    workers_gone,
    workers_paused,
)
from ridgestream.jobs.cluster.lost_workers import LostWorkers
from ridgestream.jobs.cluster.version_check import ANSWER_SECONDS, Client, check_versions
from ridgestream.jobs.cluster.worker_task import WorkerThreads, probe
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.memory_plan import show_bytes
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.stores.requests.activity import ACTIVITY

LOOK_SECONDS = 1.0
"""How long a wait lasts before it checks again whether workers or tasks have changed."""

_WORKING_PERCENT = 20
"""The share of a processor from which a worker counts as computing."""

_PROBED, _PROBE_SECONDS = 3, 2.0


class Workers:
    """The workers that the scheduler has; those that come are checked, and those that are lost are reported."""

    def __init__(self, client: Client, patience_seconds: float, report: Reporter) -> None:
        self._client, self._report = client, report
        self.patience_seconds = patience_seconds
        """How long the job waits without any worker."""
        self.lost = LostWorkers(client, report)
        """Those that are lost, and the tasks that they took with them."""
        self._updated_at = 0.0
        self._silent = set[str]()
        self._heard: dict[str, float | None] = {}  # when each worker was heard of last, by the scheduler's clock

    def count(self) -> int:
        """Return how many workers there are now; raises ClusterError if the scheduler is gone."""
        with scheduler_errors():
            return len(self._client.nthreads())

    def update(self) -> dict[str, Any]:
        """Ask the scheduler for its workers and check those that are new; return what it says of each, by address.

        Raises ClusterError if the scheduler is gone, or if a worker is not fit.
        """
        with scheduler_errors():
            workers = cast("dict[str, Any] | None", self._client.scheduler_info(n_workers=-1).get("workers"))
        if workers is None:
            raise scheduler_gone(ConnectionError("the connection to it is lost"))
        self._updated_at = monotonic()
        if self._any_computing(workers):
            ACTIVITY.moved()
        new = self.lost.note_workers(workers)
        if new:
            self._silent |= check_versions(self._client, new, self._report)
        return workers

    def _any_computing(self, workers: Mapping[str, Any]) -> bool:
        """Return whether a worker computes, by what it has said since the last look, that has a task of this job.

        Where none has one, tasks wait for workers that compute for other jobs.
        """
        before, self._heard = self._heard, {address: worker.get("last_seen") for address, worker in workers.items()}
        heard = {address for address, at in self._heard.items() if at != before.get(address)}
        computing = {a for a in heard if (workers[a].get("metrics") or {}).get("cpu", 0) >= _WORKING_PERCENT}
        if not computing:
            return False
        with scheduler_errors():
            tasks = self._client.processing()
        own = {address for address, keys in tasks.items() if self.lost.watches(keys)}
        return bool(own & computing if own else computing)

    def update_now_and_then(self) -> None:
        """Update, unless that was done within the last LOOK_SECONDS."""
        if monotonic() - self._updated_at > LOOK_SECONDS:
            self.update()

    def any_running(self) -> bool:
        """Return whether a worker accepts tasks: one that is there and not paused."""
        return any(worker["status"] == "running" for worker in self.update().values())

    def memory_limits(self) -> dict[str, int]:
        """Return the memory limit of each worker that has one, in bytes, by address."""
        return {name: worker["memory_limit"] for name, worker in self.update().items() if worker["memory_limit"]}

    def none_left(self) -> ClusterError:
        """Return the error for a cluster in which no worker accepts tasks any more."""
        self.lost.report()
        return workers_paused(self.patience_seconds) if self.count() else workers_gone(self.patience_seconds)

    def describe(self, threads: int) -> None:
        """Report how many workers there are, with their threads and memory limits; `threads` is what the job asks."""
        workers = {address: worker for address, worker in self.update().items() if address not in self._silent}
        probes = self._probe(workers, threads)
        limits = [worker["memory_limit"] for worker in workers.values() if worker.get("memory_limit")]
        self._report.say(
            events.CLUSTER_WORKERS_CONNECTED,
            workers=len(workers),
            task_threads=sum(worker["nthreads"] for worker in workers.values()),
            blas_threads=max((each.blas for each in probes), default=threads),
            numba_threads=max((each.numba for each in probes), default=threads),
            memory_limit=show_bytes(min(limits)) if limits else "none",
        )

    def _probe(self, workers: Mapping[str, Any], threads: int) -> list[WorkerThreads]:
        """Return the threads that tasks have in the workers that answer in time."""
        from distributed import wait

        submit = self._client.submit
        probes = [submit(probe, threads, workers=[a], pure=False, allow_other_workers=False) for a in workers]
        with suppress(TimeoutError):
            wait(probes, timeout=min(self.patience_seconds, ANSWER_SECONDS))
        answers: list[WorkerThreads] = []
        for future in probes:
            if future.status == "finished":
                with suppress(Exception):  # a worker that has gone meanwhile is reported elsewhere
                    answers.append(future.result(timeout=LOOK_SECONDS))
        self._client.cancel(probes)
        return answers


def reaches_workers(client: Client) -> bool:
    """Return whether workers can be reached from here past the scheduler: results need not pass through it then."""
    from distributed.comm.addressing import get_address_host_port

    for address in list(client.nthreads())[:_PROBED]:
        try:
            with socket.create_connection(get_address_host_port(address), timeout=_PROBE_SECONDS):
                pass
        except (OSError, ValueError):
            return False
    return True
