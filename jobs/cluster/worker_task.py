"""What runs in a worker of a cluster: each task with its threads, checks and failures, and a probe of the worker.

A task checks by itself whether its worker is fit, so that a worker that comes late is held to the same.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from ridgestream.jobs.cluster.freed_memory import keep_freed_memory
from ridgestream.jobs.cluster.package_versions import decisive_versions, differences, version_of
from ridgestream.pipeline.base.blas_threads import blas_threads, limited_threads, numba_threads
from ridgestream.stores.errors.assertions import WITHOUT_ASSERTIONS, asserts
from ridgestream.stores.errors.transient import is_transient
from ridgestream.stores.errors.zarr_settings import use_zarr_defaults

Result = TypeVar("Result")


@dataclass(frozen=True)
class Requirements:
    """What the job requires of every process that runs a task."""

    versions: tuple[tuple[str, str | None], ...]
    """The decisive versions that the job has."""
    threads: int
    """Threads of BLAS and numba."""
    bytes: int = 0
    """The memory that a task may need."""


@dataclass(frozen=True)
class Failed:
    """What a task returns instead of its result if another try may help, or if the worker is unfit."""

    error: Exception | None
    """What was raised; None if the worker is unfit."""
    unfit: str = ""
    """Why the worker is unfit."""
    worker: str = ""
    """The worker's address."""


@dataclass(frozen=True)
class WorkerThreads:
    """How many threads the tasks of a worker have."""

    blas: int
    """The most threads that any BLAS uses."""
    numba: int
    """Threads of numba."""


def perform(requirements: Requirements, function: Callable[..., Result], task: Any, *shared: Any) -> Result | Failed:  # noqa: ANN401
    """Run a task in a worker; raises what it raises, except for trouble that may pass."""
    unfit = _unfit(requirements)
    if unfit:
        return Failed(None, unfit, _address())
    keep_freed_memory()
    try:
        use_zarr_defaults()
        with limited_threads(requirements.threads):
            return function(task, *shared)
    except Exception as error:
        if not is_transient(error):
            raise
        return Failed(error, worker=_address())


def hold(value: Any) -> None:  # noqa: ANN401
    """Do nothing: as an argument of this, a value has come to the worker, which keeps it while it is needed."""


def probe(threads: int) -> WorkerThreads:
    """Return the threads that tasks have in this worker."""
    with limited_threads(threads):
        return WorkerThreads(max(blas_threads(), default=1), numba_threads())


def requirements_of(threads: int) -> Requirements:
    """Return what this process requires of workers."""
    return Requirements(tuple(decisive_versions().items()), threads)


def _unfit(requirements: Requirements) -> str:
    """Return why this process is unfit for a task; empty if it is fit."""
    if not asserts():
        return WITHOUT_ASSERTIONS
    here = dict(requirements.versions)
    differing = differences(here, {name: version_of(name) for name in here})
    if differing:
        return "; ".join(differing)
    limit, needed = _memory_limit(), requirements.bytes
    return f"it may use {limit} bytes, and a task needs {needed}" if limit and limit < needed else ""


def _address() -> str:
    worker = _worker()
    return str(worker.address) if worker else ""


def _memory_limit() -> int | None:
    manager = getattr(_worker(), "memory_manager", None)
    limit = getattr(manager, "memory_limit", None)
    return int(limit) if limit else None


def _worker() -> Any:  # noqa: ANN401
    """Return the worker that runs this task, None elsewhere."""
    from distributed import get_worker

    with suppress(ValueError):
        return get_worker()
    return None
