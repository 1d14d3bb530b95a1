"""Who reads a local store: each open session is a file in the folder `readers` that its process holds locked.

A cleaner reads them before it takes anything away. The lock is the operating system's, so it goes with its process,
however that ends, and a file that nobody holds is swept away by whoever comes next. A store that cannot be written
registers nobody: what its readers read is then protected by its age alone.
"""

import fcntl
import json
import os
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

READERS = "readers"
"""The folder, in that of the store."""

_NEW, _NEW_SECONDS = ".new", 60.0


@dataclass(frozen=True)
class Reader:
    """A session that is open."""

    since: datetime
    """When it was opened, or is about to be."""
    snapshot: str | None
    """The snapshot that it reads; None if that is not known yet."""


class Registration:
    """The entry of one reader, from before its session is opened until what reads by it is gone."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor, self._process = path, descriptor, os.getpid()

    def reads(self, snapshot: str, reading_by: object) -> None:
        """Name the snapshot, and end with the object that everything is read by."""
        with suppress(OSError):
            os.pwrite(self._descriptor, json.dumps({"snapshot": snapshot}).encode(), 0)
        weakref.finalize(reading_by, self.end)

    def end(self) -> None:
        """Take the entry out; in a forked process, which has it from its parent, do nothing."""
        if os.getpid() == self._process:
            with suppress(OSError):
                self._path.unlink()
            with suppress(OSError):
                os.close(self._descriptor)


@contextmanager
def registered(folder: Path | None) -> Iterator[Registration | None]:
    """Enter a reader of the store in `folder` who is about to open a session; None where that is not possible.

    An exception that leaves takes the entry out again.
    """
    registration = None
    with suppress(OSError):
        registration = _register(folder / READERS) if folder is not None else None
    try:
        yield registration
    except BaseException:
        if registration is not None:
            registration.end()
        raise


def _register(folder: Path) -> Registration:
    """Enter a reader: the file appears under its name when it is locked already."""
    folder.mkdir(exist_ok=True)
    list_readers(folder.parent)
    path = folder / f"{socket.gethostname()}.{os.getpid()}.{uuid4().hex[:12]}.json"
    new = path.with_suffix(_NEW)
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        new.rename(path)
    except OSError:
        os.close(descriptor)
        new.unlink(missing_ok=True)
        raise
    return Registration(path, descriptor)


def list_readers(folder: Path) -> list[Reader]:
    """Return the readers of the store in `folder`; the entries of those that ended without a word are swept away."""
    paths = list((folder / READERS).iterdir()) if (folder / READERS).is_dir() else []
    return [reader for reader in map(_look_at, paths) if reader is not None]


def _look_at(path: Path) -> Reader | None:
    """Return the reader if it lives; sweep its entry away if it does not."""
    since = datetime.fromtimestamp(0, UTC)
    try:
        since = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        if path.suffix == _NEW and time.time() - since.timestamp() <= _NEW_SECONDS:
            return Reader(since, None)  # to ask for its lock would keep its own process from it
        with path.open("rb") as file:
            if _is_held(file.fileno()):
                return Reader(since, _snapshot_in(file.read()))
        path.unlink()
    except FileNotFoundError:
        return None
    except OSError:  # another user's, or a file that cannot even be looked at: it may be of any age
        return Reader(since, None)
    return None


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _snapshot_in(text: bytes) -> str | None:
    try:
        return str(json.loads(text)["snapshot"])
    except (ValueError, KeyError, TypeError):
        return None
