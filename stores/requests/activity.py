"""What this process waits for, and when something last moved: a row, a line of the log, a finished request or task.

A watchdog (`jobs/cli/watchdog.py`) ends a command in which nothing moves for minutes, and names what was under way.
Waiting that was asked for, as for another writer, pauses it. What a thread does in the background, such as renewing a
lease, is no progress of the command.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TypeVar, cast

Item = TypeVar("Item")

_in_background = ContextVar("in_background", default=False)


class Activity:
    """Requests, tasks and waits under way in this process; safe to use from several threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._moved_at, self._pauses, self._doing = monotonic(), 0, ""
        self._under_way: dict[int, str] = {}
        self._number = 0

    def moved(self, doing: str = "") -> None:
        """Note progress; `doing` says of what, until the next one."""
        if not _in_background.get():
            self._moved_at, self._doing = monotonic(), doing or self._doing

    @contextmanager
    def under_way(self, subject: str) -> Iterator[Callable[[str], None]]:
        """Name what is waited for inside the context; its end is progress, and so is a call with a new name."""
        if _in_background.get():
            yield lambda _: None
            return
        with self._mutex:
            self._number = number = self._number + 1
            self._under_way[number] = subject

        def rename(subject: str) -> None:
            self._under_way[number] = subject
            self.moved()

        try:
            yield rename
        finally:
            with self._mutex:
                del self._under_way[number]
            self.moved()

    def each(self, items: Iterable[Item], subject: str) -> Iterator[Item]:
        """Yield the items, each of which is waited for under this name."""
        remaining, end = iter(items), object()
        while True:
            with self.under_way(subject):
                item = next(remaining, end)
            if item is end:
                return
            yield cast("Item", item)

    def counted(self, items: Collection[Item], subject: str) -> Iterator[Item]:
        """Yield the items, and name what is done with them: the subject, and how many of them are done."""
        with self.under_way(subject) as rename:
            for done, item in enumerate(items):
                rename(f"{subject}, {done:,} of {len(items):,} done")
                yield item

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count no time inside the context, in which something is waited for on purpose, up to a limit of its own."""
        with self._mutex:
            self._pauses += 1
        try:
            yield
        finally:
            with self._mutex:
                self._pauses -= 1
            self.moved()

    def quiet_seconds(self) -> float:
        """Return the seconds since something last moved; 0 while it is paused."""
        return 0.0 if self._pauses else monotonic() - self._moved_at

    @property
    def oldest(self) -> str | None:
        """What has been under way for longest; None if nothing is."""
        with self._mutex:
            return next(iter(self._under_way.values()), None)

    def waits_for(self) -> str:
        """Return what has been under way for longest, or else what last made progress."""
        return self.oldest or self._doing or "its first step"


@contextmanager
def in_background() -> Iterator[None]:
    """Let what this thread does inside the context not count as progress."""
    token = _in_background.set(True)
    try:
        yield
    finally:
        _in_background.reset(token)


ACTIVITY = Activity()
"""The activity of this process."""
