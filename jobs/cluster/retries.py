"""Retries: waits for the result of a task, and sends it again if it failed, was dropped, or lost its worker."""

from concurrent.futures import CancelledError
from time import monotonic, sleep
from typing import Any

from ridgestream.jobs.cluster.cluster_error import ClusterError, given_up, scheduler_gone
from ridgestream.jobs.cluster.lost_workers import MEMORY
from ridgestream.jobs.cluster.submission import MAX_SENDINGS, Submission, SubmittedTask
from ridgestream.jobs.cluster.worker_task import Failed
from ridgestream.jobs.cluster.workers import LOOK_SECONDS, Workers
from ridgestream.jobs.config.cluster_options import ClusterOptions
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.stores.requests.activity import ACTIVITY

RETRY_SECONDS = 1.0
"""How long to wait before a task is tried again that failed in reading or writing; twice as long each time."""


class Retries:
    """Decides, by the job's options, how often a task is tried."""

    def __init__(self, submission: Submission, workers: Workers, options: ClusterOptions, report: Reporter) -> None:
        self._submission, self._workers = submission, workers
        self._options, self._report = options, report

    def result(self, task: SubmittedTask) -> Any:  # noqa: ANN401
        """Return the result of a task; raises what the task raised, or ClusterError if it is given up."""
        while True:
            with ACTIVITY.under_way(f"{task.label} on the cluster"):
                result = self._outcome(task)
            self._workers.update_now_and_then()
            self._workers.lost.report()
            self._workers.lost.forget(task.future.key)
            if not isinstance(result, Failed):
                return result
            if result.unfit:
                raise ClusterError(
                    f"the worker {result.worker}, which came after the job began, is not fit for its tasks: "
                    f"{result.unfit}; install the same versions there, or stop it"
                )
            self._retry(task, result)

    def _outcome(self, task: SubmittedTask) -> Any:  # noqa: ANN401
        """Return what a task returned, sending it again if it is dropped or its workers die."""
        from distributed import KilledWorker
        from distributed.comm.core import CommClosedError

        patience = self._workers.patience_seconds
        while True:
            try:
                self._wait(task)
                return task.future.result(timeout=patience)
            except TimeoutError:  # the worker that had the result is gone, or the connection to it is slow
                patience *= 2
            except CommClosedError as error:
                raise scheduler_gone(error) from error
            except KilledWorker as error:
                self._resubmit_lost(task, error.allowed_failures + 1)
            except CancelledError as error:
                self._resubmit_dropped(task, error)
            except ModuleNotFoundError as error:
                if "ridgestream" not in str(error):
                    raise
                raise ClusterError(
                    f"a worker has another ridgestream, or none: {error}; install the same one"
                ) from error

    def _wait(self, task: SubmittedTask) -> None:
        """Wait for a task; raises ClusterError if no worker is left for it, or if it loses all that come."""
        from distributed import wait

        running_at = monotonic()
        while not task.future.done():
            try:
                wait(task.future, timeout=LOOK_SECONDS)
            except TimeoutError as error:
                if self._workers.any_running():
                    running_at = monotonic()
                elif monotonic() - running_at > self._workers.patience_seconds:
                    raise self._workers.none_left() from error
                else:
                    ACTIVITY.moved()  # waiting for a worker has a limit of its own
                self._check_lost(task)

    def _check_lost(self, task: SubmittedTask) -> None:
        """Give a task up if more workers were lost over it than the job allows."""
        lost = task.lost_workers + self._workers.lost.count(task.future.key)
        if lost > self._options.lost_workers:
            self._submission.cancel([task])
            raise self._given_up(task, lost)

    def _resubmit_lost(self, task: SubmittedTask, at_least: int) -> None:
        """Send a task again that the scheduler gave up, after it lost some workers."""
        task.lost_workers += max(self._workers.lost.count(task.future.key), at_least)
        if task.lost_workers > self._options.lost_workers:
            raise self._given_up(task, task.lost_workers)
        self._submission.resubmit(task)

    def _resubmit_dropped(self, task: SubmittedTask, error: CancelledError) -> None:
        """Send a task again that the scheduler dropped, with the values that it shares."""
        if task.sendings >= MAX_SENDINGS or not self._submission.is_connected:
            raise scheduler_gone(error) from error
        sleep(LOOK_SECONDS * (task.sendings - 1))
        self._submission.share_again(task)
        self._submission.resubmit(task)

    def _retry(self, task: SubmittedTask, failed: Failed) -> None:
        """Send a task again, after a wait, that failed in reading or writing; raises its error after the last try."""
        if failed.error is None or task.failures >= self._options.retries:
            raise failed.error or AssertionError(failed)
        seconds = RETRY_SECONDS * 2**task.failures
        self._report.warn(
            events.CLUSTER_TASK_RETRIED,
            doing=task.label,
            worker=failed.worker,
            reason=str(failed.error),
            wait_seconds=seconds,
        )
        with ACTIVITY.paused():
            sleep(seconds)
        task.failures, task.sendings = task.failures + 1, 0
        self._submission.resubmit(task)

    def _given_up(self, task: SubmittedTask, lost: int) -> ClusterError:
        cause = self._workers.lost.cause
        remedy = "give workers more memory" if cause.startswith(MEMORY) else "look at the log of the workers"
        return given_up(task.label, lost, self._options.lost_workers, cause, remedy)
