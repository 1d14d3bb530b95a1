"""The time limit of requests: one without a whole answer is abandoned and repeated, and finally reported.

Icechunk 1 has no limit of its own for a request that a server accepts and never answers. Its functions exist as
coroutines, too, which can be abandoned; Zarr's event loop runs them.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from ridgestream.stores.errors.exceptions import ServerSilent
from ridgestream.stores.errors.transient import is_cut_off
from ridgestream.stores.requests.activity import ACTIVITY

TRIES = 3
"""How often a request is sent before its server is reported as silent."""

REQUEST_SECONDS = 60.0
"""How long a request may take by default."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class TimeLimit:
    """The time limit of each request to one store."""

    seconds: float | None = REQUEST_SECONDS
    """How long a request may take; None for a local folder, which only the watchdog limits."""
    location: str = "the store"
    """The store, for messages."""

    async def answer(
        self, request: Callable[[], Awaitable[Answer]], subject: str, *, tries: int = TRIES, requests: int = 1
    ) -> Answer:
        """Return the answer to what may be repeated; raises ServerSilent if none comes in the time of `requests`."""
        seconds = None if self.seconds is None else requests * self.seconds
        with ACTIVITY.under_way(f"{subject} of {self.location}"):
            for number in range(tries):
                try:
                    async with asyncio.timeout(seconds):
                        return await request()
                except TimeoutError as error:
                    silence = error
                except Exception as error:
                    if number == tries - 1 or not is_cut_off(error):
                        raise
        raise ServerSilent(
            f"{subject} of {self.location}: no answer within {seconds:g} s (storage.request_seconds), asked "
            f"{tries} times; is the server overloaded, or a proxy in between stuck? What was committed stands, and the "
            "same command continues from there"
        ) from silence

    def wait(
        self, request: Callable[[], Awaitable[Answer]], subject: str, *, tries: int = TRIES, requests: int = 1
    ) -> Answer:
        """Like `answer`, from outside the event loop.

        An exception that a signal raises here is raised once the request has ended, so that no write is cut off.
        """
        from zarr.core.sync import sync

        ended = threading.Event()

        async def run() -> Answer:
            try:
                return await self.answer(request, subject, tries=tries, requests=requests)
            finally:
                ended.set()

        try:
            return sync(run())
        except BaseException:
            ended.wait(None if self.seconds is None else tries * requests * self.seconds)
            raise
