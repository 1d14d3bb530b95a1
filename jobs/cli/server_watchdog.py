"""A watchdog over the server of a store, since Icechunk waits without end for one that accepts requests only.

While the command makes no progress, the server is asked for the bucket now and then, with a time limit. If it stays
silent, the process is ended: native code that waits cannot be interrupted.
"""

import threading
from collections.abc import Callable
from time import monotonic

from ridgestream.stores.errors.exceptions import ServerSilent, StoreError
from ridgestream.stores.repository.store_location import StoreLocation

QUIET_SECONDS = 10.0
"""How long there is no progress before the server is asked, and the pause after an answer."""

SILENT_SECONDS = 20.0
"""How long the server is silent, asked repeatedly, before the process is ended."""

_RETRY_SECONDS = 2.0
"""The pause after a request without an answer."""


class ServerWatchdog:
    """Asks the server of a store for its bucket while there is no progress, and ends the process once it is silent."""

    def __init__(self, location: StoreLocation, progressed_at: Callable[[], float], end: Callable[[str], None]) -> None:
        """Start, if the store is on an S3 server; for GCS and Azure, Icechunk has time limits of its own.

        `progressed_at` returns when there was progress last (monotonic); `end` is called with the reason.
        """
        self._location, self._progressed_at, self._end = location, progressed_at, end
        self._closed = threading.Event()
        if location.folder is None and location.prefix.parsed.is_s3:
            threading.Thread(target=self._watch, name="ridgestream-server", daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self._closed.set()

    def _watch(self) -> None:
        silent_since: float | None = None
        while not self._closed.wait(QUIET_SECONDS if silent_since is None else _RETRY_SECONDS):
            asked_at, failure = monotonic(), ""
            if asked_at - self._progressed_at() >= QUIET_SECONDS:
                failure = self._ask()
            silent_since = (silent_since or asked_at) if failure else None
            if silent_since is not None and monotonic() - silent_since > SILENT_SECONDS and not self._closed.is_set():
                self._end(f"{failure}; what was committed stands, and the same command goes on from there")

    def _ask(self) -> str:
        """Return why there is no answer; any response counts as an answer, even a refusal."""
        try:
            self._location.check_reachable()
        except ServerSilent as error:
            return str(error)
        except StoreError:
            return ""
        return ""
