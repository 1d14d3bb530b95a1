"""Decorators that compile the learner's loops."""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock

from ridgestream.pipeline.online.compiled.cache_folder import cache_folder, compiled_sources

Compiled = TypeVar("Compiled", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract"}, "error_model": "numpy"}
"""Sums may be reordered, the same way every time; a division by zero gives infinity, as in NumPy."""

_config: Any = numba.config
_OWN_SETTINGS: dict[str, Any] = {
    "DISABLE_JIT": 0,
    "OPT": _config._OptLevel(3),  # noqa: SLF001 - an integer does not do
    "LOOP_VECTORIZE": 1,
    "SLP_VECTORIZE": 0,
    "CPU_NAME": None,
    "CPU_FEATURES": None,
    "BOUNDSCHECK": None,
    "DEBUGINFO_DEFAULT": 0,
}
"""Numba's defaults for what decides whether and how code is compiled, and so the bits of its sums.

They hold for the code of this folder, whatever NUMBA_* variables, a `.numba_config.yaml` or the calling program set for
other code. NUMBA_ENABLE_AVX=0 is respected: without it, there is no way around a processor that is not what it says.
"""

_FunctionCache: Any = FunctionCache
_IndexDataCacheFile: Any = IndexDataCacheFile
_DIGEST_BYTES = hashlib.sha256().digest_size

_FOLDER = cache_folder(compiled_sources(), _config.CACHE_DIR)


def compiled(function: Compiled) -> Compiled:
    """Compile a function that Python calls; cache the machine code for the next process (see `cache_folder`).

    Where that folder cannot be written, numba chooses another; where there is none, nothing is cached.
    """
    try:
        with _numba_settings({} if _FOLDER is None else {"CACHE_DIR": str(_FOLDER)}):
            cache = _DispensableCache(function)
    except Exception as error:  # noqa: BLE001 - whatever keeps numba from a folder of its own
        text = f"machine code cannot be cached, so each process compiles it: {error!r}; set NUMBA_CACHE_DIR"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return _compile(function, nogil=True)
    dispatcher = _compile(function, nogil=True)
    dispatcher._cache = cache  # type: ignore[attr-defined]  # noqa: SLF001 - numba has no other way to give a cache
    return dispatcher


class _CheckedFiles(_IndexDataCacheFile):  # type: ignore[misc]
    """Numba's files of machine code, each with a digest at its end, which numba ignores: a damaged one is not run."""

    def _save_data(self, name: str, data: object) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(content + hashlib.sha256(content).digest())

    def _load_data(self, name: str) -> object:
        stored = Path(self._data_path(name)).read_bytes()
        if hashlib.sha256(stored[:-_DIGEST_BYTES]).digest() != stored[-_DIGEST_BYTES:]:
            raise ValueError(f"{name} is damaged")
        return super()._load_data(name)


class _DispensableCache(_FunctionCache):  # type: ignore[misc]
    """Numba's cache, but what it cannot read or write costs a compilation and a warning, never the run."""

    def __init__(self, function: object) -> None:
        super().__init__(function)
        self._cache_file: Any = _CheckedFiles(
            cache_path=self.cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=self._impl.locator.get_source_stamp(),
        )

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
    """Return the function as numba compiles it at its first call, with this folder's settings."""
    with _numba_settings(_OWN_SETTINGS):
        dispatcher: Any = cast("Any", numba.njit)(**options, **_OPTIONS)(function)
    compile_with_any = dispatcher.compile

    def compile_with_own(signature: object) -> object:
        with global_compiler_lock, _numba_settings(_OWN_SETTINGS):
            return compile_with_any(signature)

    dispatcher.compile = compile_with_own
    return cast("Compiled", dispatcher)


@contextmanager
def _numba_settings(settings: Mapping[str, Any]) -> Iterator[None]:
    """Change numba's settings meanwhile, which it looks up when it decorates and when it compiles."""
    before = {name: getattr(_config, name) for name in settings}
    vars(_config).update(settings)
    try:
        yield
    finally:
        vars(_config).update(before)


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
