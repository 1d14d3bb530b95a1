"""Signals that end a run: first between two pieces of work, then anywhere, and in the end without asking.

SIGTERM and SIGINT ask a run to leave. It does so where its reporter is next told of rows, so that nothing is cut off
that is being written, and what was learned is kept. Where that takes longer than SOFT_SECONDS, a long task or a wait
for another writer, Stopped is raised wherever the main thread is; HARD_SECONDS after the signal, or at a second one,
the process ends, and its children with it. A signal is noted in the moment in which it comes, also in native code.
"""

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import NoReturn

from ridgestream.pipeline.base.events import Event, Step
from ridgestream.pipeline.base.reporter import Fact, Reporter, Stopped

SOFT_SECONDS = 3.0
"""How long a run may go on to the end of a piece of work."""

HARD_SECONDS = 8.0
"""When a run is left that has not come to an end."""

REPEAT_SECONDS = 0.5
"""A signal that comes again so soon is the same one: `timeout` sends it to a process and to its group."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_POKE = signal.SIGALRM
_CLOSED = 0


class Stopping:
    """Whether the run has been asked to end."""

    def __init__(self, soft_seconds: float, say: Callable[[str, int], None]) -> None:
        """Be patient for so long; `say` is told, with the exit code, why a process ends without an exception."""
        self._soft_seconds, self._say = soft_seconds, say
        self._number, self._raised = 0, False
        self.checked_at = monotonic()
        """When something last moved."""

    @property
    def number(self) -> int:
        """The signal that asked for it; 0 if none has."""
        return self._number

    def check(self) -> None:
        """Raise Stopped if the run is to end."""
        self.checked_at = monotonic()
        if self._number:
            self._raised = True
            raise Stopped(self._number)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look out for signals; for the main thread. One that was ignored from the start stays so."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._handle) for number in (*heard, _POKE)}
        wakeup = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        thread = threading.Thread(target=self._watch, args=(ours,), name="ridgestream-signals", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._raised = True
            signal.set_wakeup_fd(wakeup)
            theirs.close()
            thread.join()
            ours.close()
            for number, handler in before.items():  # only now, since the thread may have poked
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Raise Stopped in the main thread when it was patient for long enough."""
        del frame
        if number == _POKE and not self._raised:
            self.check()

    def _watch(self, ours: socket.socket) -> None:
        self._number, began = _next_signal(ours, None) or _CLOSED, monotonic()
        if self._number and self._waits(ours, began, self._soft_seconds):
            self._interrupt()
            if self._waits(ours, began, HARD_SECONDS):
                self._give_up()

    def _waits(self, ours: socket.socket, began: float, seconds: float) -> bool:
        """Wait so long after the first signal; tell whether the run is still there."""
        while (left := began + seconds - monotonic()) > 0:
            again = _next_signal(ours, left)
            if again == _CLOSED:
                return False
            if again and monotonic() - began > REPEAT_SECONDS:
                self._leave("left at once; the last commit stands, and the same command goes on from there", again)
        return True

    def _interrupt(self) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, _POKE)

    def _give_up(self) -> NoReturn:
        message = f"left amid its work after {HARD_SECONDS:g} s; the last commit stands, and the same command goes on"
        self._leave(message, self._number)

    def _leave(self, message: str, number: int) -> NoReturn:
        """End the process and its children now."""
        self.leave_now(f"{name_of(number)}; {message}", 128 + number)

    def leave_now(self, message: str, code: int) -> NoReturn:
        """Say why, and end the process and its children, whatever its threads are at."""
        with suppress(Exception):
            self._say(message, code)
            sys.stderr.flush()
        with suppress(Exception):
            _kill_children()
        os._exit(code)


class Stoppable:
    """A reporter that raises Stopped between two pieces of work, if the run is to end."""

    def __init__(self, report: Reporter, stopping: Stopping) -> None:
        self._report, self._stopping = report, stopping

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:
        """Begin a step, unless the run is to end."""
        self._stopping.check()
        self._report.begin(step, total_rows, **facts)

    def advance(self, rows: int, **facts: Fact) -> None:
        """Tell of rows; the run may end here."""
        self._report.advance(rows, **facts)
        self._stopping.check()

    def end(self, **facts: Fact) -> None:
        """End the step."""
        self._report.end(**facts)

    def say(self, event: Event, **facts: Fact) -> None:
        """Tell something."""
        self._report.say(event, **facts)

    def warn(self, event: Event, **facts: Fact) -> None:
        """Tell something that a person should look at."""
        self._report.warn(event, **facts)


def name_of(number: int) -> str:
    """Return what the signal does to a run, in a word."""
    return "interrupted" if number == signal.SIGINT else "terminated"


def _next_signal(ours: socket.socket, seconds: float | None) -> int | None:
    """Return the next signal that ends runs, None if none comes in time, _CLOSED where nobody listens any more."""
    give_up = None if seconds is None else monotonic() + seconds
    while select.select([ours], [], [], None if give_up is None else max(0.0, give_up - monotonic()))[0]:
        came = ours.recv(1)
        if not came:
            return _CLOSED
        if came[0] in SIGNALS:
            return came[0]
    return None


def _kill_children() -> None:
    import psutil

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
