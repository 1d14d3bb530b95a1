"""The process that the command runs in: what the environment may change of it, and what it refuses to run in."""

import ctypes
import gc
import os
import resource
import sys
import warnings
from contextlib import suppress

from ridgestream.stores.errors.assertions import WITHOUT_ASSERTIONS, asserts
from ridgestream.stores.segments.memory_limits import limit_of

_QUIET = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""What Python itself ignores unless it is set otherwise."""

_LEAST_BYTES = {resource.RLIMIT_AS: 2**30, resource.RLIMIT_DATA: 2**29}
"""What the libraries of any command take of each limit; with less, some of them wait for threads that never started."""

_NAMES = {resource.RLIMIT_AS: "address space (ulimit -v)", resource.RLIMIT_DATA: "data (ulimit -d)"}

_ARENAS = 2
_M_ARENA_MAX = -8

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MALLOC = {_M_TRIM_THRESHOLD: 2**26, _M_MMAP_THRESHOLD: 3 * 2**23}
"""Blocks larger than those of kernel values go back to the system when they are freed; glibc comes to keep them."""

_COLLECT_EVERY = 10_000
"""Containers made between two searches for cyclic garbage: a ledger of many partitions has more, all of which stay."""


def prepare_process() -> None:
    """Keep warnings harmless and memory allocators modest, above all under a limit on address space or data.

    To be called before libraries are imported; workers inherit what it sets.
    """
    gc.set_threshold(_COLLECT_EVERY, *gc.get_threshold()[1:])
    _keep_warnings_harmless()
    warnings.showwarning = _write_warning
    for option, value in _MALLOC.items():
        _set_malloc(option, value)
    if any(limit_of(kind) is not None for kind in _LEAST_BYTES):
        _reserve_little()


def keep_modules() -> None:
    """Leave what is imported by now out of every search for cyclic garbage; some hundred thousand objects."""
    gc.freeze()


def check_process() -> None:
    """Raise JobFileError if a command cannot run in this process at all, MemoryRefused if it may use too little."""
    from ridgestream.jobs.config.values import JobFileError
    from ridgestream.pipeline.base.errors import MemoryRefused

    if not asserts():
        raise JobFileError(WITHOUT_ASSERTIONS)
    for kind, least in _LEAST_BYTES.items():
        limit = limit_of(kind)
        if limit is not None and limit < least:
            raise MemoryRefused(
                f"the process may use {limit / 1e6:,.0f} MB of {_NAMES[kind]}, and its libraries alone need "
                f"{least / 1e6:,.0f} MB: raise this limit, or limit memory by memory_limit or a control group instead"
            )


def _keep_warnings_harmless() -> None:
    """Let no warning stop the command or its workers: where a filter makes errors of them, Python's own filters hold.

    `PYTHONWARNINGS=error` is meant for tests; libraries warn of what will change in their next release.
    """
    if all(entry[0] != "error" for entry in warnings.filters):
        return
    warnings.resetwarnings()
    for category in _QUIET:
        warnings.simplefilter("ignore", category)
    sys.warnoptions[:] = ["default"] if sys.flags.dev_mode else []  # workers get these
    os.environ.pop("PYTHONWARNINGS", None)


def _write_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Write a warning as an event of the log, in place of Python's lines with one of source."""
    from ridgestream.jobs.console.log_format import guess_log
    from ridgestream.jobs.console.progress import LineReporter
    from ridgestream.pipeline.base import events

    facts = {"warning": str(message), "kind": category.__name__, "place": f"{filename}:{lineno}"}
    LineReporter(guess_log(sys.argv[1:], os.environ)).warn(events.LIBRARY_WARNED, **facts)


def _reserve_little() -> None:
    """Let allocators reserve what they use: Arrow's own takes 1 GB at once, glibc's 128 MB for each thread."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("MALLOC_ARENA_MAX", str(_ARENAS))
    _set_malloc(_M_ARENA_MAX, _ARENAS)


def _set_malloc(option: int, value: int) -> None:
    with suppress(AttributeError):  # glibc alone has it
        ctypes.CDLL(None).mallopt(option, value)
