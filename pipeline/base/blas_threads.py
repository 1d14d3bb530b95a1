"""One BLAS thread where a sum must come out the same bits whatever the machine's number of cores.

And as many of BLAS and numba as are asked for, where several processes share a machine.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController


@functools.cache
def _controller() -> ThreadpoolController:
    import numpy as np  # noqa: F401  (the controller sees the libraries that are loaded when it is made)
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()


class _Limit:
    """The limit as it is held by all threads of the process together: BLAS knows one number of threads for them all."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = Lock()
        self._holders = 0
        self._limiter: Any = None

    def take(self) -> None:
        """Hold BLAS to so many threads."""
        with self._lock:
            if self._holders == 0:
                _take_control()
                self._limiter = _controller().limit(limits=self._threads, user_api="blas")
            self._holders += 1

    def give_back(self) -> None:
        """Let go; the last one to do so puts the number of threads back."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                _take_control()
                self._limiter.restore_original_limits()
                _take_control()


def _take_control() -> None:
    """Let this thread set the limit: newer releases of threadpoolctl heed only the thread that set it last."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@functools.cache
def _limit_to(threads: int) -> _Limit:
    return _Limit(threads)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread inside the context, in all threads; the last context to be left puts it back."""
    limit = _limit_to(1)
    limit.take()
    try:
        yield
    finally:
        limit.give_back()


def blas_threads() -> list[int]:
    """Return the number of threads that each loaded BLAS would use now."""
    return [int(library["num_threads"]) for library in _controller().info() if library["user_api"] == "blas"]


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Hold BLAS and numba to so many threads inside the context; `one_blas_thread` may hold BLAS to one in there."""
    limit = _limit_to(count)
    limit.take()
    try:
        with _limited_numba(count):
            yield
    finally:
        limit.give_back()


@contextmanager
def _limited_numba(count: int) -> Iterator[None]:
    """Hold numba to so many threads; it is loaded here, since what loads it later would have them all."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(min(count, int(numba.config.NUMBA_NUM_THREADS)))  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba.set_num_threads(before)


def numba_threads() -> int:
    """Return the number of threads that numba would use now; loads it."""
    import numba

    return int(numba.get_num_threads())
