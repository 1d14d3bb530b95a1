"""One BLAS thread where a sum must come out the same bits whatever the machine's number of cores."""

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

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders = 0
        self._limiter: Any = None

    def take(self) -> None:
        """Hold BLAS to one thread."""
        with self._lock:
            if self._holders == 0:
                _take_control()
                self._limiter = _controller().limit(limits=1, user_api="blas")
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


_LIMIT = _Limit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread inside the context, in all threads; the last context to be left puts it back."""
    _LIMIT.take()
    try:
        yield
    finally:
        _LIMIT.give_back()


def blas_threads() -> list[int]:
    """Return the number of threads that each loaded BLAS would use now."""
    return [int(library["num_threads"]) for library in _controller().info() if library["user_api"] == "blas"]
