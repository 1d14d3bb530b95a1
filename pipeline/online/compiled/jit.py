"""Decorators that compile the learner's loops."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numba
import numpy as np

from ridgestream.pipeline.online.compiled.cache_folder import cache_folder, compiled_sources

Compiled = TypeVar("Compiled", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract"}, "error_model": "numpy"}
"""Sums may be reordered, the same way every time; a division by zero gives infinity, as in NumPy."""

_config: Any = numba.config

_FOLDER = cache_folder(compiled_sources(), _config.CACHE_DIR)


def compiled(function: Compiled) -> Compiled:
    """Compile a function that Python calls; cache the machine code for the next process (see `cache_folder`).

    Where that folder cannot be written, numba chooses another; where there is none, nothing is cached.
    """
    try:
        with _caching_in(_FOLDER):
            return _compile(function, cache=True, nogil=True)
    except RuntimeError:
        return _compile(function, nogil=True)


def compiled_part(function: Compiled) -> Compiled:
    """Compile a function that only compiled code calls, without the wrappers for Python, which take longest."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def compiled_inline(function: Compiled) -> Compiled:
    """Compile a function into each of its callers: a call costs as much as a loop over a hundred numbers."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


def _compile(function: Compiled, **options: bool) -> Compiled:
    return cast("Compiled", cast("Any", numba.njit)(**options, **_OPTIONS)(function))


@contextmanager
def _caching_in(folder: object) -> Iterator[None]:
    """Make numba cache what is decorated meanwhile in `folder`, if there is one: it decides when it decorates."""
    before = _config.CACHE_DIR
    if folder is not None:
        _config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        _config.CACHE_DIR = before


@compiled_part
def zero() -> int:
    """Return a zero that numba takes for a variable: with a constant it would compile what is called with it twice."""
    return int(np.empty(0).size)
