"""What goes on in a worker of a cluster: a look at what it has, and each task with its threads, checks and failures.

A task finds out by itself whether it is where it should be, so that a worker that comes late is held to the same.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from ridgestream import __version__
from ridgestream.pipeline.base.blas_threads import blas_threads, limited_threads, numba_threads
from ridgestream.stores.errors.transient import is_transient

Result = TypeVar("Result")

OWN = "ridgestream"
OWN_VERSION = "ridgestream:__version__"
"""Where the version of the code that runs is found; metadata of some version may lie in any working directory."""

DECISIVE = (OWN, "numpy", "scipy", "numba", "icechunk")
"""Packages in which another version may make other bits, or may not understand what a task brings."""

TOLD = ("dask", "distributed", "zarr", "pyarrow", "cloudpickle")
"""Packages in which another version is told."""

PYTHON = "python"

Versions = Mapping[str, str | None]


@dataclass(frozen=True)
class Order:
    """What the job asks of every process that does a task."""

    versions: tuple[tuple[str, str | None], ...]
    """The decisive versions that the job has."""
    threads: int
    """Threads of BLAS and numba."""
    bytes: int = 0
    """What a task may need."""


@dataclass(frozen=True)
class Failed:
    """What a task gives in place of its result where another try may help, or where the worker is no place for it."""

    error: Exception | None
    """What was raised; none if the worker is unfit."""
    unfit: str = ""
    """Why the worker is no place for it."""
    worker: str = ""
    """The worker's address."""


@dataclass(frozen=True)
class Sight:
    """What a worker's tasks have."""

    blas: int
    """The most threads that any BLAS uses."""
    numba: int
    """Threads of numba."""


def perform(order: Order, function: Callable[..., Result], task: Any, *shared: Any) -> Result | Failed:  # noqa: ANN401
    """Do a task in a worker; raise what it raises, unless it is trouble that may pass."""
    unfit = _unfit(order)
    if unfit:
        return Failed(None, unfit, _address())
    try:
        with limited_threads(order.threads):
            return function(task, *shared)
    except Exception as error:
        if not is_transient(error):
            raise
        return Failed(error, worker=_address())


def look(threads: int) -> Sight:
    """Return what tasks have in this worker."""
    with limited_threads(threads):
        return Sight(max(blas_threads(), default=1), numba_threads())


def order_of(threads: int) -> Order:
    """Return what this process asks of workers."""
    return Order(tuple((name, version_of(name)) for name in (PYTHON, *DECISIVE)), threads)


def own_versions() -> Versions:
    """Return the versions that this process has of everything that is compared."""
    return {name: version_of(name) for name in (PYTHON, *DECISIVE, *TOLD)}


def compare_versions(here: Versions, there: Versions) -> tuple[list[str], list[str]]:
    """Return what differs of a worker that could change results, and what else does, as text."""
    decisive = [_differ(n, here[n], there.get(n)) for n in (PYTHON, *DECISIVE) if here[n] != there.get(n)]
    return decisive, [_differ(n, here[n], there.get(n)) for n in TOLD if here[n] != there.get(n)]


def feature_release(python: str | None) -> str | None:
    """Return 3.11 of 3.11.9.final.0: what decides which code a Python understands."""
    return ".".join(python.split(".")[:2]) if python else None


def _unfit(order: Order) -> str:
    differing = [_differ(name, here, version_of(name)) for name, here in order.versions if here != version_of(name)]
    if differing:
        return "; ".join(differing)
    limit = _memory_limit()
    return f"it may use {limit} bytes, and a task needs {order.bytes}" if limit and limit < order.bytes else ""


def _differ(name: str, here: str | None, there: str | None) -> str:
    return f"{name} {there or 'missing'} (here {here or 'missing'})"


@cache
def version_of(name: str) -> str | None:
    """Return the version of a package, None if it is not installed; of Python, its feature release."""
    if name == OWN:
        return __version__
    if name == PYTHON:
        return f"{sys.version_info[0]}.{sys.version_info[1]}"
    try:
        return version(name)
    except PackageNotFoundError:
        return None


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
