"""One BLAS thread where a sum must come out the same bits whatever the machine's number of cores."""

import functools
from contextlib import AbstractContextManager
from typing import cast

from threadpoolctl import ThreadpoolController


@functools.cache
def _controller() -> ThreadpoolController:
    import numpy as np  # noqa: F401  (the controller sees the libraries that are loaded when it is made)
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[None]:
    """Hold BLAS to one thread inside the context; it is put back on leaving."""
    return cast("AbstractContextManager[None]", _controller().limit(limits=1, user_api="blas"))


def blas_threads() -> list[int]:
    """Return the number of threads that each loaded BLAS would use now."""
    return [int(library["num_threads"]) for library in _controller().info() if library["user_api"] == "blas"]
