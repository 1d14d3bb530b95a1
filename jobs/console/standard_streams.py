"""Standard streams that cannot stop a run: closed ones discard, and what cannot be written is dropped and noted.

A run is started by schedulers, shells and supervisors, which may close its streams, stop reading them, or send them to
a full disk. What it prints is never worth its work.
"""

import io
import os
import select
import sys
from time import monotonic
from typing import Any, TextIO

UNREAD_SECONDS = 10.0
"""How long a stream that nobody reads may delay the run, in all, before its lines are dropped until it is read again.

For a pipe that does not block by itself; one that blocks delays a run as it delays any program."""


class _Lossy(io.RawIOBase):
    """A descriptor to which every write succeeds; what could not be written is noted in `failure`."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._patience_seconds = UNREAD_SECONDS
        self.failure: OSError | None = None
        """Why something was dropped, if it was."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, content: Any, /) -> int:  # noqa: ANN401 (any buffer)
        """Write all of the content, or drop the rest of it."""
        rest = memoryview(content).cast("B")
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError as error:
                if not self._wait():
                    self.failure = error
                    break
            except OSError as error:
                self.failure = error
                break
        return len(content)

    def _wait(self) -> bool:
        """Wait until the descriptor can be written; return whether that took no more than the patience left."""
        began = monotonic()
        ready = select.select([], [self._descriptor], [], self._patience_seconds)[1]
        self._patience_seconds = max(0.0, self._patience_seconds - (monotonic() - began)) if ready else 0.0
        return bool(ready)


_CLOSED = set[int]()
"""The standard descriptors that were closed when the process began: nobody wants what goes there."""


def open_standard_streams() -> None:
    """Open closed descriptors 0 to 2 on the null device, and make standard output and error lose what they must.

    To be called before anything else opens a file, which would get the number of a closed descriptor and then all that
    is printed there; worker processes inherit all three. Characters that the encoding lacks are written as escapes.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            os.set_inheritable(descriptor, True)
            _CLOSED.add(descriptor)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = _lossy(1, sys.stdout), _lossy(2, sys.stderr)


def lost_output() -> OSError | None:
    """Flush standard output, and return why some of it could not be written; None if all was, or none was wanted."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _Lossy) and 1 not in _CLOSED else None


def _lossy(descriptor: int, stream: TextIO | None) -> TextIO:
    """Return a stream like `stream` that writes to the descriptor and never raises."""
    is_terminal = os.isatty(descriptor)
    return io.TextIOWrapper(
        io.BufferedWriter(_Lossy(descriptor)),
        encoding="utf-8" if stream is None else stream.encoding,
        errors="backslashreplace",
        line_buffering=is_terminal or descriptor == 2,
    )
