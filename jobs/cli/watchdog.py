"""A watchdog that ends a command in which nothing has moved for minutes: a stuck server, mount or cluster.

Native code that waits cannot be interrupted, and requests to disks have no time limit, so the process is ended. What
moves is a row, a line of the log, a finished request or task (`stores/requests/activity.py`), and a process of the
command that computes: compiled loops and solvers report nothing until they are done.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

import psutil

from ridgestream.stores.requests.activity import ACTIVITY

STALL_SECONDS = 600.0
"""How long nothing moves, by default, before the command is ended."""

_WORKING_SHARE = 0.1
"""The share of the time from which a thread counts as computing; idle threads of Dask use two or three per cent."""

_LOOKS = 20
"""How often the threads are looked at within the time in which nothing may move."""


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
                    "what was committed stands, and the same command continues from there"
                )
                return


class _Processors:
    """The time that the threads of this process and its children compute, or would if a processor were free."""

    def __init__(self) -> None:
        self._looked_at, self._seconds = monotonic(), _busy_seconds()

    def any_working(self) -> bool:
        """Return whether any of the threads has computed since the last call."""
        now, seconds = monotonic(), _busy_seconds()
        elapsed, before = now - self._looked_at, self._seconds
        self._looked_at, self._seconds = now, seconds
        return any(used - before.get(thread, used) >= _WORKING_SHARE * elapsed for thread, used in seconds.items())


def _busy_seconds() -> dict[int, float]:
    """Return the busy time of each thread but this one, by its number; of each process where there is no /proc."""
    own, seconds = psutil.Process(), dict[int, float]()
    for process in (own, *own.children(recursive=True)):
        tasks = Path(f"/proc/{process.pid}/task")
        with suppress(psutil.Error, OSError, ValueError):
            if tasks.is_dir():
                seconds |= {int(task.name): _scheduled_seconds(task) for task in tasks.iterdir()}
            else:
                seconds[process.pid] = sum(process.cpu_times()[:2])
    seconds.pop(threading.get_native_id(), None)
    return seconds


def _scheduled_seconds(task: Path) -> float:
    """Return how long a thread has run, or waited for a processor, as on an overloaded machine."""
    try:
        ran, waited, *_ = map(int, (task / "schedstat").read_text().split())
    except FileNotFoundError:  # it has ended
        return 0.0
    return (ran + waited) / 1e9
