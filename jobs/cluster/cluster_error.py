"""The error of a cluster that cannot be used, and its messages."""

import re
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager

_COMMITTED = "what was committed stands"


class ClusterError(RuntimeError):
    """There is no cluster, or it has lost its workers; the message says what to do."""


def scheduler_gone(error: Exception) -> ClusterError:
    """Return the error for a scheduler that does not answer any more, or that dropped a task for `error`."""
    message = re.search(r"^Message: (.*?)\.?$", str(error), re.MULTILINE)  # Dask's own has several lines
    reason = message[1] if message else str(error).partition("\n")[0] or type(error).__name__
    return ClusterError(
        f"the scheduler has gone or has dropped a task: {reason}; {_COMMITTED}, and the same command "
        "continues from there"
    )


def workers_paused(seconds: float) -> ClusterError:
    """Return the error for workers that are all paused and have been so for some seconds."""
    return ClusterError(
        f"all workers of the cluster have been paused for {seconds:g} s, as Dask pauses those that use most of their "
        f"memory limit; give workers more memory, then run the job again: {_COMMITTED}"
    )


def workers_gone(seconds: float) -> ClusterError:
    """Return the error for a cluster that has had no worker for some seconds."""
    return ClusterError(
        f"the cluster has lost its workers, and no other came within {seconds:g} s; start workers, then run the job "
        f"again: {_COMMITTED}"
    )


def given_up(task: str, lost: int, allowed: int, cause: str, remedy: str) -> ClusterError:
    """Return the error for a task over which more workers were lost than `allowed`."""
    return ClusterError(
        f"{task} is given up after {lost} workers were lost over it (cluster_options.lost_workers = {allowed}); the "
        f"likely cause: {cause}; {remedy}, then run the job again: {_COMMITTED}"
    )


@contextmanager
def scheduler_errors() -> Iterator[None]:
    """Raise ClusterError if the scheduler goes while it, or a task that it has, is waited for."""
    from distributed.client import ClosedClientError

    try:
        yield
    except (OSError, ClosedClientError, CancelledError) as error:
        raise scheduler_gone(error) from error
