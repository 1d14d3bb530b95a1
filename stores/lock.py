"""One writer at a time on a local store: a file lock that names its owner."""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ridgestream.stores.errors import StoreError, StoreLocked


@contextmanager
def writer_lock(folder: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the writer's lock of the store in `folder`; wait up to `wait_seconds` for another writer to leave.

    The lock is the operating system's, so it goes with its process, however that ends. Raises StoreLocked naming the
    owner, StoreError if the folder cannot be written.
    """
    lock = FileLock(folder / "writer.lock")
    try:
        lock.acquire(timeout=wait_seconds)
    except Timeout as error:
        raise StoreLocked(
            f"the store {folder} is being written by {_owner(folder)}; wait for it to finish, or use --wait SECONDS"
        ) from error
    except OSError as error:
        raise StoreError(f"the store {folder} cannot be written: {error.strerror or error}") from error
    try:
        _name_owner(folder)
        yield
    finally:
        lock.release()


def _name_owner(folder: Path) -> None:
    owner = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S%z")}
    try:
        (folder / "writer.json").write_text(json.dumps(owner))
    except OSError as error:
        raise StoreError(f"the store {folder} cannot be written: {error.strerror or error}") from error


def _owner(folder: Path) -> str:
    try:
        owner = json.loads((folder / "writer.json").read_text())
        return f"process {owner['process']} on {owner['host']} since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
