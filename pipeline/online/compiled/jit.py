"""How the learners' loops are compiled."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

Compiled = TypeVar("Compiled", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract"}, "error_model": "numpy"}
"""Sums may be reordered, the same way every time; a division by zero gives infinity, as in NumPy."""


def compiled(function: Compiled) -> Compiled:
    """Compile what Python calls; keep the machine code for the next process.

    It is not kept where neither the package nor a home can be written.
    """
    try:
        return _compile(function, cache=True, nogil=True)
    except RuntimeError:
        return _compile(function, nogil=True)


def compiled_part(function: Compiled) -> Compiled:
    """Compile what only compiled code calls; it has no door for Python, which would take longest to make."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def compiled_inline(function: Compiled) -> Compiled:
    """Compile a part into each of its callers: a call costs as much as a loop over a hundred numbers."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


def _compile(function: Compiled, **options: bool) -> Compiled:
    return cast("Compiled", cast("Any", njit)(**options, **_OPTIONS)(function))


@compiled_part
def zero() -> int:
    """Return a zero that Numba takes for a variable: with a constant it would compile what is called with it twice."""
    return int(np.empty(0).size)
