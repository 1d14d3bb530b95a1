"""The limits that this process has on its address space and data (ulimit -v and -d), as seldom as they are set."""

import resource
from collections.abc import Iterator

_USED = {resource.RLIMIT_AS: "vms", resource.RLIMIT_DATA: "data"}
"""Each limit, and psutil's name for what counts against it."""


def limit_of(kind: int) -> int | None:
    """Return a limit in bytes, None if there is none; `kind` is RLIMIT_AS or RLIMIT_DATA."""
    soft = resource.getrlimit(kind)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def left_in_limits() -> Iterator[int]:
    """Yield the bytes that each limit of this process leaves."""
    limits = {kind: limit for kind in _USED if (limit := limit_of(kind)) is not None}
    if limits:
        import psutil

        used = psutil.Process().memory_info()
        yield from (max(0, limit - int(getattr(used, _USED[kind], 0))) for kind, limit in limits.items())
