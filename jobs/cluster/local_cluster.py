"""Worker processes on this machine, for a job that has no scheduler of its own."""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ridgestream.jobs.cluster.cluster_error import ClusterError

_SILENCE = logging.CRITICAL + 1


def count_local_workers(cluster: str) -> int:
    """Return how many worker processes `local` or `local:N` asks for; 0 for any other cluster."""
    name, _, count = cluster.partition(":")
    return (int(count) if count else os.cpu_count() or 1) if name == "local" else 0


def start_workers(workers: int, lost_workers: int) -> Any:  # noqa: ANN401
    """Start a scheduler and worker processes; return Dask's LocalCluster, which stops them.

    `lost_workers` is how many workers may be lost over a task. Raises ClusterError if they do not start.
    """
    from multiprocessing import resource_tracker

    from distributed import LocalCluster

    resource_tracker.ensure_running()  # started later, it would undo the mask
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


@contextmanager
def silenced_log() -> Iterator[None]:
    """Keep the log of Dask itself out of the job's lines, which report what matters of it."""
    import distributed  # noqa: F401  (its log is set up when it is imported)

    handlers = [(handler, handler.level) for handler in logging.getLogger("distributed").handlers]
    for handler, _ in handlers:
        handler.setLevel(_SILENCE)
    try:
        yield
    finally:
        for handler, level in handlers:
            handler.setLevel(level)
