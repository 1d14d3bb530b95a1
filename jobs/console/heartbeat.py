"""A thread that has a line written where none has been for some seconds, so that no part of a run is silent."""

import threading
from collections.abc import Callable
from typing import Self

SILENT_SECONDS = 9.5
"""Longest time without a line: a thread gets its turn late, and ten seconds are promised."""

_LEAST_WAIT = 0.1


class Heartbeat:
    """Calls `beat` whenever nothing has been written for SILENT_SECONDS, from entering the context to leaving it."""

    def __init__(self, quiet_seconds: Callable[[], float], beat: Callable[[], None]) -> None:
        self._quiet_seconds, self._beat = quiet_seconds, beat
        self._closed = threading.Event()
        self.thread = threading.Thread(target=self._run, name="ridgestream-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()

    def look(self) -> float:
        """Beat if that is due; return the seconds until it may be due again."""
        quiet = self._quiet_seconds()
        if quiet < SILENT_SECONDS:
            return max(SILENT_SECONDS - quiet, _LEAST_WAIT)
        self._beat()
        return SILENT_SECONDS

    def _run(self) -> None:
        while not self._closed.wait(self.look()):
            pass
