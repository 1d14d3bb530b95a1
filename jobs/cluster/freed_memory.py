"""What the allocator of glibc does with memory that is freed, set for this process; others have no such options."""

import ctypes
from contextlib import suppress
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""The options of glibc's `mallopt`."""

_KEPT_BYTES, _MAPPED_BYTES = 64 * 2**20, 16 * 2**20
"""Freed memory that a worker keeps, and the size from which memory is taken from the system by itself."""


@cache
def keep_freed_memory() -> None:
    """Have this process reuse some of the memory that it frees.

    Dask has workers return it to the system at once, which clears each page of a matrix whenever one is made again:
    local experts took half as long again.
    """
    _set((_TRIM_THRESHOLD, _KEPT_BYTES), (_MMAP_THRESHOLD, _MAPPED_BYTES))


@cache
def share_freed_memory() -> None:
    """Have the threads of this process use each other's freed memory.

    Each would keep its own, as much as it ever used: local experts in two threads had 1.9 GB in place of 1.1.
    """
    _set((_ARENA_MAX, 1))


def _set(*options: tuple[int, int]) -> None:
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in options:
            mallopt(option, value)
