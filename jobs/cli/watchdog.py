"""A watchdog that ends a command in which nothing has moved for minutes: a stuck server, mount or cluster.

Native code that waits cannot be interrupted, and requests to disks have no time limit, so the process is ended. What
moves is a row, a line of the log, a finished request or task (`stores/requests/activity.py`), and a process of the
command that computes: compiled loops and solvers report nothing until they are done.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, process_time, thread_time

import psutil

from ridgestream.stores.requests.activity import ACTIVITY

STALL_SECONDS = 600.0
"""How long nothing moves, by default, before the command is ended."""

_WORKING_SHARE = 0.1
"""The share of a processor from which a process counts as computing; idle workers of Dask use two or three per cent."""

_LOOKS = 20
"""How often the processes are looked at within the time in which nothing may move."""


class Watchdog:
    """Calls `end` with the reason once nothing has moved for `seconds`."""

    def __init__(self, seconds: float, end: Callable[[str], None]) -> None:
        self._seconds, self._end = seconds, end
        self._closed = threading.Event()
        ACTIVITY.moved()
        threading.Thread(target=self._watch, name="ridgestream-watchdog", daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self._closed.set()

    def _watch(self) -> None:
        processors = _Processors()
        while not self._closed.wait(self._seconds / _LOOKS):
            if processors.any_working():
                ACTIVITY.moved()
            if ACTIVITY.quiet_seconds() >= self._seconds and not self._closed.is_set():
                self._end(
                    f"nothing has moved for {self._seconds:g} s (stall_seconds): it waited for {ACTIVITY.waits_for()}; "
                    "what was committed stands, and the same command goes on from there"
                )
                return


class _Processors:
    """The processor times of this process and its children."""

    def __init__(self) -> None:
        self._looked_at, self._seconds = monotonic(), _cpu_seconds()

    def any_working(self) -> bool:
        """Return whether any of the processes has computed since the last call."""
        now, seconds = monotonic(), _cpu_seconds()
        elapsed, before = now - self._looked_at, self._seconds
        self._looked_at, self._seconds = now, seconds
        return any(used - before.get(process, used) >= _WORKING_SHARE * elapsed for process, used in seconds.items())


def _cpu_seconds() -> dict[int, float]:
    """Return the processor time of each process, by its number; of this one, without the calling thread's."""
    own = psutil.Process()
    seconds = {own.pid: process_time() - thread_time()}
    for process in own.children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            seconds[process.pid] = times.user + times.system
    return seconds
