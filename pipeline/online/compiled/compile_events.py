"""Notices when numba compiles, which takes many seconds, and where it keeps the machine code for the next process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from numba.core import event

from ridgestream.pipeline.online.compiled.update import run_rows


class _Once(event.Listener):
    """Calls a function at the first compilation; machine code from the cache is none."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def on_start(self, event: Any) -> None:  # noqa: ANN401, ARG002
        """Call it, unless that is done."""
        call, self._call = self._call, None
        if call is not None:
            call()

    def on_end(self, event: Any) -> None:  # noqa: ANN401
        """Do nothing."""


@contextmanager
def noticing_compilation(call: Callable[[], None]) -> Iterator[None]:
    """Call `call` once, as soon as something is compiled meanwhile."""
    with event.install_listener("numba:compile", _Once(call)):
        yield


def cache_path() -> str | None:
    """Return the folder in which the machine code is cached; None where it is not."""
    statistics = getattr(cast("Any", run_rows), "stats", None)  # none where numba is told not to compile
    return statistics.cache_path if statistics is not None else None
