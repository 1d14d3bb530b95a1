"""A single writer on a local store: a file lock that names its owner."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep

from filelock import FileLock, Timeout

from ridgestream.stores.errors.exceptions import StoreError, StoreLocked
from ridgestream.stores.repository.lock_owner import Owner
from ridgestream.stores.requests.activity import ACTIVITY

_READS, _READ_SECONDS = 10, 0.05
"""How often, and at which interval, the file that names the owner is read."""


@contextmanager
def writer_lock(folder: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the writer's lock of the store in `folder`; wait up to `wait_seconds` for another writer to finish.

    The lock belongs to the operating system, so it is released when its process ends, however that happens. Raises
    StoreLocked naming the owner, StoreError if the folder cannot be written.
    """
    lock = FileLock(folder / "writer.lock")
    try:
        with ACTIVITY.paused():
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
    try:
        (folder / "writer.json").write_text(json.dumps(Owner.of_this_process().as_dict()))
    except OSError as error:
        raise StoreError(f"the store {folder} cannot be written: {error.strerror or error}") from error


def _owner(folder: Path) -> str:
    """Return the lock's holder. A new holder may not have overwritten the previous owner's file yet."""
    for _ in range(_READS):
        with suppress(OSError, ValueError, KeyError, TypeError):
            owner = Owner.from_dict(json.loads((folder / "writer.json").read_text()))
            if not owner.is_gone():
                return str(owner)
        sleep(_READ_SECONDS)
    return "another process"
