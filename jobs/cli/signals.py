"""Signals that end a run: first between two pieces of work, then anywhere, and finally by ending the process.

SIGTERM and SIGINT ask a run to stop. It stops at the next report of progress, so no write is cut off and what was
learned is kept. If that takes longer than SOFT_SECONDS (a long task, or a wait for another writer), Stopped is raised
wherever the main thread is. HARD_SECONDS after the signal, or at a second signal, the process ends, and its children
with it. A thread receives signals at once, even while the main thread is in native code.
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
from ridgestream.stores.requests.activity import ACTIVITY

SOFT_SECONDS = 3.0
"""How long a run may continue to the end of a piece of work."""

HARD_SECONDS = 8.0
"""How long after the signal the process of a run that has not stopped is ended."""

REPEAT_SECONDS = 0.5
"""A signal that is repeated within this time is the same one: `timeout` signals a process and its group."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_WAKE = signal.SIGALRM
_CLOSED = 0


class SignalHandler:
    """Records whether the run has been asked to stop, and stops it."""

    def __init__(self, soft_seconds: float, write_reason: Callable[[str, int, str], None]) -> None:
        """Leave a run `soft_seconds` to the end of a piece of work.

        `write_reason` is called with a message, the exit code and the kind of the end before the process is ended
        without an exception.
        """
        self._soft_seconds, self._write_reason = soft_seconds, write_reason
        self._number, self._raised = 0, False

    @property
    def number(self) -> int:
        """The signal that asked the run to stop; 0 if none has."""
        return self._number

    def check(self) -> None:
        """Raise Stopped if the run has been asked to stop."""
        if self._number:
            self._raised = True
            raise Stopped(self._number)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle signals, called in the main thread. A signal that was ignored at the start stays ignored."""
        receiver, sender = socket.socketpair()
        sender.setblocking(False)
        handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        previous = {number: signal.signal(number, self._handle) for number in (*handled, _WAKE)}
        wakeup = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        thread = threading.Thread(target=self._watch, args=(receiver,), name="ridgestream-signals", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._raised = True
            signal.set_wakeup_fd(wakeup)
            sender.close()
            thread.join()
            receiver.close()
            for number, handler in previous.items():  # only now, since the thread may have woken the main thread
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Raise Stopped in the main thread when the thread wakes it."""
        del frame
        if number == _WAKE and not self._raised:
            self.check()

    def _watch(self, receiver: socket.socket) -> None:
        self._number, received_at = _next_signal(receiver, None) or _CLOSED, monotonic()
        if self._number and self._still_runs(receiver, received_at, self._soft_seconds):
            self._interrupt()
            if self._still_runs(receiver, received_at, HARD_SECONDS):
                self._give_up()

    def _still_runs(self, receiver: socket.socket, received_at: float, seconds: float) -> bool:
        """Wait until `seconds` after the first signal, and return whether the run still continues then."""
        while (left := received_at + seconds - monotonic()) > 0:
            repeated = _next_signal(receiver, left)
            if repeated == _CLOSED:
                return False
            if repeated and monotonic() - received_at > REPEAT_SECONDS:
                self._exit("ended at once; the last commit stands, and the same command continues from there", repeated)
        return True

    def _interrupt(self) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, _WAKE)

    def _give_up(self) -> NoReturn:
        message = f"ended after {HARD_SECONDS:g} s, not stopped; the last commit stands, and the same command continues"
        self._exit(message, self._number)

    def _exit(self, message: str, number: int) -> NoReturn:
        """End the process and its children now."""
        self.exit_now(f"{name_of(number)}; {message}", 128 + number, Stopped.__name__)

    def exit_now(self, message: str, code: int, kind: str) -> NoReturn:
        """Write the reason, and end the process and its children, whatever its threads are doing."""
        with suppress(Exception):
            self._write_reason(message, code, kind)
            sys.stderr.flush()
        with suppress(Exception):
            _kill_children()
        os._exit(code)


class StoppableReporter:
    """A reporter that raises Stopped between two pieces of work, if the run has been asked to stop."""

    def __init__(self, report: Reporter, signals: SignalHandler) -> None:
        self._report, self._signals, self._step = report, signals, ""

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:
        """Begin a step, unless the run has been asked to stop."""
        self._step = step.name
        ACTIVITY.moved(f"the step {step.name!r}")
        self._signals.check()
        self._report.begin(step, total_rows, **facts)

    def advance(self, rows: int, **facts: Fact) -> None:
        """Report rows; the run may stop here."""
        ACTIVITY.moved(f"the step {self._step!r}, beyond {_show(facts)}" if facts else "")
        self._report.advance(rows, **facts)
        self._signals.check()

    def end(self, **facts: Fact) -> None:
        """End the step."""
        ACTIVITY.moved(f"what follows the step {self._step!r}")
        self._report.end(**facts)

    def say(self, event: Event, **facts: Fact) -> None:
        """Report an event."""
        ACTIVITY.moved()
        self._report.say(event, **facts)

    def warn(self, event: Event, **facts: Fact) -> None:
        """Report an event that a person should look at."""
        ACTIVITY.moved()
        self._report.warn(event, **facts)


def _show(facts: dict[str, Fact]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def name_of(number: int) -> str:
    """Return what the signal does to a run, in one word."""
    return "interrupted" if number == signal.SIGINT else "terminated"


def _next_signal(receiver: socket.socket, seconds: float | None) -> int | None:
    """Return the next signal that ends runs; None if none arrives in time, _CLOSED if the handler is uninstalled."""
    give_up = None if seconds is None else monotonic() + seconds
    while select.select([receiver], [], [], None if give_up is None else max(0.0, give_up - monotonic()))[0]:
        received = receiver.recv(1)
        if not received:
            return _CLOSED
        if received[0] in SIGNALS:
            return received[0]
    return None


def _kill_children() -> None:
    import psutil

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
