"""Limits on the threads of BLAS and numba, and computing in several threads of this process.

Sums that must have the same bits on any number of cores run on one BLAS thread; processes that share a machine limit
both libraries. Threads of this process have one BLAS thread each; compiled code, NumPy's operations on arrays and the
routines of `unlocked_lapack` let the others run meanwhile.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import OpenBLASController, ThreadpoolController

MOST_THREADS = 8
"""The most threads that tasks share: beyond, each costs memory and waits for Python's lock."""

ITEMS_PER_THREAD = 2
"""Items under way for each thread: one that runs, one that waits."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@functools.cache
def _controller() -> ThreadpoolController:
    import numpy as np  # noqa: F401  (the controller only sees libraries that are loaded when it is created)
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()


class _Limit:
    """A limit shared by all threads of the process, since BLAS has one number of threads for all of them."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = Lock()
        self._holders = 0
        self._limiter: Any = None

    def acquire(self) -> None:
        """Limit BLAS to this number of threads."""
        with self._lock:
            if self._holders == 0:
                _take_control()
                self._limiter = _controller().limit(limits=self._threads, user_api="blas")
            self._holders += 1

    def release(self) -> None:
        """End this use of the limit; the last one restores the previous number of threads."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                _take_control()
                self._limiter.restore_original_limits()
                _take_control()


def _take_control() -> None:
    """Let this thread set the limit: newer releases of threadpoolctl only obey the thread that set it last."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@functools.cache
def _limit_to(threads: int) -> _Limit:
    return _Limit(threads)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread in all threads of the process; the last context to exit restores the previous limit."""
    limit = _limit_to(1)
    limit.acquire()
    try:
        yield
    finally:
        limit.release()


def blas_threads() -> list[int]:
    """Return the current number of threads of each loaded BLAS library."""
    return [int(library["num_threads"]) for library in _controller().info() if library["user_api"] == "blas"]


def most_threads() -> int:
    """Return the threads of this process that may compute, at most MOST_THREADS.

    They are as many as BLAS uses by itself: the cores, or what OMP_NUM_THREADS or OPENBLAS_NUM_THREADS says.
    """
    return min(max(blas_threads(), default=1), MOST_THREADS)


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Limit BLAS and numba to `count` threads inside the context; `one_blas_thread` may limit BLAS further."""
    limit = _limit_to(count)
    limit.acquire()
    try:
        with _limited_numba(count):
            yield
    finally:
        limit.release()


@contextmanager
def _limited_numba(count: int) -> Iterator[None]:
    """Limit numba to `count` threads; imports it, since importing it later would reset the limit."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(min(count, int(numba.config.NUMBA_NUM_THREADS)))  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba.set_num_threads(before)


def numba_threads() -> int:
    """Return numba's current number of threads; imports it."""
    import numba

    return int(numba.get_num_threads())


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield the function's results in the order of the items, of which a bounded number is taken ahead.

    With one thread, each result is computed in the calling thread when it is requested. Other threads have this one's
    context variables and floating-point error settings. An error is raised where its result would be yielded, once what
    runs has ended.
    """
    if threads == 1:
        yield from map(function, items)
        return
    import numpy as np

    settings: Any = np.geterr()

    def compute(item: Item) -> Result:
        with np.errstate(**settings):
            return function(item)

    waiting: deque[Future[Result]] = deque()
    with one_blas_thread(), ThreadPoolExecutor(threads, thread_name_prefix="compute") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(copy_context().run, compute, item))
                if len(waiting) >= ITEMS_PER_THREAD * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
