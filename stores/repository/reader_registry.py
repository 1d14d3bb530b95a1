"""The registry of readers of a local store: each open session is a file in `readers`, locked by its process.

`clean` lists the registered readers before it deletes anything. The lock belongs to the operating system, so it is
released when its process ends, however that happens, and a file that nobody locks is deleted by the next process that
lists the folder. In a read-only store readers are not registered; only the age of what they read protects it.
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
"""The folder of the registry, inside the store."""

_NEW, _NEW_SECONDS = ".new", 60.0


@dataclass(frozen=True)
class Reader:
    """An open reading session."""

    since: datetime
    """When it was opened, or registered to be opened."""
    snapshot: str | None
    """The snapshot that it reads; None if not known yet."""


class Registration:
    """The registry entry of one reader, from before its session is opened until everything that reads by it is gone."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor, self._process = path, descriptor, os.getpid()

    def set_snapshot(self, snapshot: str, used_by: object) -> None:
        """Record the snapshot, and delete the entry once `used_by`, through which all data is read, is garbage."""
        with suppress(OSError):
            os.pwrite(self._descriptor, json.dumps({"snapshot": snapshot}).encode(), 0)
        weakref.finalize(used_by, self.end)

    def end(self) -> None:
        """Delete the entry; does nothing in a forked process, which has inherited it."""
        if os.getpid() == self._process:
            with suppress(OSError):
                self._path.unlink()
            with suppress(OSError):
                os.close(self._descriptor)


@contextmanager
def registered(folder: Path | None) -> Iterator[Registration | None]:
    """Register a reader of the store in `folder` that is about to open a session; yields None if that is not possible.

    The entry is deleted if the context exits with an exception.
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
    """Register a reader: the file is locked before it appears under its final name."""
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
    """Return the readers of the store in `folder`; deletes the entries of processes that ended without doing so."""
    paths = list((folder / READERS).iterdir()) if (folder / READERS).is_dir() else []
    return [reader for reader in map(_read_entry, paths) if reader is not None]


def _read_entry(path: Path) -> Reader | None:
    """Return the reader if its process is alive, else delete its entry and return None."""
    since = datetime.fromtimestamp(0, UTC)
    try:
        since = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        if path.suffix == _NEW and time.time() - since.timestamp() <= _NEW_SECONDS:
            return Reader(since, None)  # testing its lock could make the new reader's own locking fail
        with path.open("rb") as file:
            if _is_locked(file.fileno()):
                return Reader(since, _snapshot_in(file.read()))
        path.unlink()
    except FileNotFoundError:
        return None
    except OSError:  # another user's file, or an unreadable one: it may be of any age
        return Reader(since, None)
    return None


def _is_locked(descriptor: int) -> bool:
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
