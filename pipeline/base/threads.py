"""Computing in several threads of this process, each with one BLAS thread, so that no bit depends on their number.

Compiled code, NumPy's operations on arrays and the routines of `unlocked_lapack` let other threads run meanwhile.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

import numpy as np

from ridgestream.pipeline.base.blas_threads import one_blas_thread

ITEMS_PER_THREAD = 2
"""Items under way for each thread: one that runs, one that waits."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield the function's results in the order of the items, of which a bounded number is taken ahead.

    With one thread, each result is computed in the calling thread when it is requested. Other threads have this one's
    context variables and floating-point error settings. An error is raised where its result would be yielded, once what
    runs has ended.
    """
    if threads == 1:
        yield from map(function, items)
        return
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
