"""A watch over the server of a store: a server that takes requests and never answers, Icechunk waits for without end.

While nothing moves in this process, the server is asked for the bucket now and then, with a time limit. Where it stays
silent, the process is left: native code that waits cannot be called back.
"""

import threading
from collections.abc import Callable
from time import monotonic

from ridgestream.stores.errors.exceptions import ServerSilent, StoreError
from ridgestream.stores.repository.store_location import StoreLocation

QUIET_SECONDS = 10.0
"""How long nothing moves before the server is asked, and between two answers."""

SILENT_SECONDS = 20.0
"""How long the server is silent, asked again and again, before it is given up."""

_AGAIN_SECONDS = 2.0


class ServerWatch:
    """Asks the server of a store for its bucket while nothing moves, and tells `leave` why, once it is silent."""

    def __init__(self, location: StoreLocation, moved: Callable[[], float], leave: Callable[[str], None]) -> None:
        """Begin, unless the store is no S3 server's; `moved` tells when something last moved here (monotonic).

        GCS and Azure are asked with time limits of Icechunk's own.
        """
        self._location, self._moved, self._leave = location, moved, leave
        self._closed = threading.Event()
        if location.folder is None and location.prefix.parsed.is_s3:
            threading.Thread(target=self._watch, name="ridgestream-server", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _watch(self) -> None:
        silent_since: float | None = None
        while not self._closed.wait(QUIET_SECONDS if silent_since is None else _AGAIN_SECONDS):
            began, why = monotonic(), ""
            if began - self._moved() >= QUIET_SECONDS:
                why = self._ask()
            silent_since = (silent_since or began) if why else None
            if silent_since is not None and monotonic() - silent_since > SILENT_SECONDS and not self._closed.is_set():
                self._leave(f"{why}; what was committed stands, and the same command goes on from there")

    def _ask(self) -> str:
        """Return why there is no answer; an answer may be any, also that there is no access."""
        try:
            self._location.check_reachable()
        except ServerSilent as error:
            return str(error)
        except StoreError:
            return ""
        return ""
