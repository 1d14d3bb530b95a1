"""Collecting garbage: the objects of a store that no branch and no tag names any more."""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ridgestream.stores.errors.translation import store_errors
from ridgestream.stores.repository.repository import Store

LONGEST_SESSION = timedelta(days=1)
"""On an object store a younger object may be of another writer, who has not committed yet."""

_STAGED = re.compile(r".+#\d+")
"""A file that a killed writer had not finished."""


def collect(store: Store, older_than: timedelta = LONGEST_SESSION, *, dry_run: bool = False) -> int:
    """Delete what nothing names, on an object store only if it is older, and return the bytes; lists all objects.

    For who holds the writer's lock: no other writer has a session then. Readers of a local store read what is named:
    `clean` takes the name of nothing that one of them has open. Raises StoreError where the store cannot be read.
    """
    folder, now = store.location.folder, datetime.now(UTC)
    with store_errors(f"the store {store.location.text}"):
        store.check_held()
        store.flush()  # what is named now is on disk before what was named until now is gone
        summary = store.repository.garbage_collect(now if folder else now - older_than, dry_run=dry_run)
        return int(summary.bytes_deleted) + (_sweep(folder, dry_run=dry_run) if folder else 0)


def measure_bytes(store: Store) -> int | None:
    """Return what the files of a local store take; None for an object store."""
    folder = store.location.folder
    return None if folder is None else sum(_size(path) for path in _files(folder))


def _sweep(folder: Path, *, dry_run: bool) -> int:
    """Delete unfinished files, and return their bytes."""
    unfinished = [path for path in _files(folder) if _STAGED.fullmatch(path.name)]
    freed = sum(map(_size, unfinished))
    for path in () if dry_run else unfinished:
        path.unlink(missing_ok=True)
    return freed


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):  # a reader's, who has gone
        return path.stat().st_size
    return 0
