"""Worker processes on this machine, for a job that has no scheduler of its own.

Whoever reaches a Dask scheduler runs code as its user, and a port of this machine is open to all of its users. So
scheduler, workers and job speak TLS with a certificate that is made for each job and known to them alone, and serve no
page. Dask's own defaults hold, whatever DASK_* variables and ~/.config/dask say to a cluster of one's own.
"""

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ridgestream.jobs.cluster.cluster_error import ClusterError

LOCAL = "local"
"""The cluster of as many workers as this process may use processors."""

_SILENCE = logging.CRITICAL + 1

_NO_PAGES: dict[str, Any] = {"distributed": {side: {"http": {"routes": []}} for side in ("scheduler", "worker")}}
"""Dask's setting for servers that report to nobody what they do."""


def count_local_workers(cluster: str) -> int:
    """Return how many worker processes `local` or `local:N` asks for; 0 for any other cluster."""
    name, _, count = cluster.partition(":")
    return (int(count) if count else usable_processors()) if name == LOCAL else 0


def usable_processors() -> int:
    """Return how many processors this process may use: by its affinity, and by the quota of its control group."""
    from dask.system import cpu_count

    return max(1, int(cpu_count()))


@contextmanager
def local_settings() -> Iterator[None]:
    """Give Dask its own defaults, but for the folder of temporary files, as long as there are local workers."""
    import dask.config
    import distributed  # noqa: F401  (which adds its defaults)

    folder = {"temporary-directory": dask.config.get("temporary-directory", None)}
    with dask.config.set(dask.config.merge(*dask.config.defaults, _NO_PAGES, folder)):
        yield


def start_workers(workers: int, lost_workers: int) -> Any:  # noqa: ANN401
    """Start a scheduler and worker processes; return Dask's LocalCluster, which stops them.

    `lost_workers` is how many workers may be lost over a task. Raises ClusterError if they do not start.
    """
    from multiprocessing import resource_tracker

    from distributed import LocalCluster, Security

    resource_tracker.ensure_running()  # started later, it would undo the mask
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # workers inherit it: Ctrl-C is for this process
    try:
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            silence_logs=_SILENCE,
            security=Security.temporary(),
            dashboard_address=None,
            scheduler_kwargs={
                "dashboard_address": "127.0.0.1:0",  # without it, port 8787 even with no dashboard
                "allowed_failures": lost_workers,
            },
        )
    except (RuntimeError, OSError, AssertionError) as error:  # asserted: that its thread starts within ten seconds
        raise ClusterError(
            f"the {workers} workers of this machine did not start: {str(error).rstrip('.')}; nothing was changed: run "
            "the job again"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def silenced_log() -> Iterator[None]:
    """Keep the log of Dask itself out of the job's lines, which report what matters of it.

    Raises ClusterError if Dask, imported here, cannot read its configuration.
    """
    try:
        import distributed  # noqa: F401  (its log is set up when it is imported)
    except (ValueError, OSError) as error:
        raise ClusterError(f"Dask cannot read its configuration (~/.config/dask, DASK_CONFIG): {error}") from error
    handlers = [(handler, handler.level) for handler in logging.getLogger("distributed").handlers]
    for handler, _ in handlers:
        handler.setLevel(_SILENCE)
    try:
        yield
    finally:
        for handler, level in handlers:
            handler.setLevel(level)
