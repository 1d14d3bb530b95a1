"""Decorators that compile the learner's loops."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import event
from numba.core.caching import FunctionCache

from ridgestream.pipeline.online.compiled.cache_folder import cache_folder, compiled_sources

Compiled = TypeVar("Compiled", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract"}, "error_model": "numpy"}
"""Sums may be reordered, the same way every time; a division by zero gives infinity, as in NumPy."""

_config: Any = numba.config
_FunctionCache: Any = FunctionCache

_FOLDER = cache_folder(compiled_sources(), _config.CACHE_DIR)


def compiled(function: Compiled) -> Compiled:
    """Compile a function that Python calls; cache the machine code for the next process (see `cache_folder`).

    Where that folder cannot be written, numba chooses another; where there is none, nothing is cached.
    """
    try:
        with _caching_in(_FOLDER):
            cache = _DispensableCache(function)
    except RuntimeError:
        return _compile(function, nogil=True)
    dispatcher = _compile(function, nogil=True)
    dispatcher._cache = cache  # type: ignore[attr-defined]  # noqa: SLF001 - numba has no other way to give a cache
    return dispatcher


class _DispensableCache(_FunctionCache):  # type: ignore[misc]
    """Numba's cache, but what it cannot read or write costs a compilation and a warning, never the run."""

    def load_overload(self, *key: object) -> object:
        """Return the cached machine code for a signature; None where there is none, or none that is intact."""
        try:
            return super().load_overload(*key)
        except Exception as error:  # noqa: BLE001 - whatever a damaged file raises
            self._warn(error)
            with suppress(Exception):
                self.flush()
        return None

    def save_overload(self, *compiled_code: object) -> None:
        """Cache the machine code for a signature."""
        try:
            super().save_overload(*compiled_code)
        except Exception as error:  # noqa: BLE001 - the code is compiled, and runs without a cache
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        text = f"the machine code in {self.cache_path} cannot be used, so it is compiled: {error!r}"
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def compiled_part(function: Compiled) -> Compiled:
    """Compile a function that only compiled code calls, without the wrappers for Python, which take longest."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def compiled_inline(function: Compiled) -> Compiled:
    """Compile a function into each of its callers: a call counts the references of every array that it passes."""
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


@contextmanager
def noticing_compilation(call: Callable[[], None]) -> Iterator[None]:
    """Call `call` once, as soon as something is compiled meanwhile; machine code from the cache is not."""
    with event.install_listener("numba:compile", _Once(call)):
        yield


class _Once(event.Listener):
    """Calls a function at the first event."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def on_start(self, event: object) -> None:  # noqa: ARG002
        """Call it, unless that is done."""
        call, self._call = self._call, None
        if call is not None:
            call()

    def on_end(self, event: object) -> None:
        """Do nothing."""


@compiled_part
def zero() -> int:
    """Return a zero that numba takes for a variable: with a constant it would compile what is called with it twice."""
    return int(np.empty(0).size)
