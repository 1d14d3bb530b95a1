"""One writer at a time on a local store: a file lock that names its owner."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ridgestream.stores.errors import StoreError, StoreLocked
from ridgestream.stores.owners import Owner


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
    try:
        (folder / "writer.json").write_text(json.dumps(Owner.of_this_process().as_dict()))
    except OSError as error:
        raise StoreError(f"the store {folder} cannot be written: {error.strerror or error}") from error


def _owner(folder: Path) -> str:
    try:
        return str(Owner.from_dict(json.loads((folder / "writer.json").read_text())))
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
