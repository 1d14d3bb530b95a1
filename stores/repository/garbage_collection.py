"""Garbage collection: deletes objects of a store that no branch or tag references."""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ridgestream.stores.errors.translation import store_errors
from ridgestream.stores.repository.repository import Store

LONGEST_SESSION = timedelta(days=1)
"""On an object store, a younger object may belong to another writer's session, not committed yet."""

_STAGED = re.compile(r".+#\d+")
"""A file left unfinished by a killed writer."""


def collect(store: Store, older_than: timedelta = LONGEST_SESSION, *, dry_run: bool = False) -> int:
    """Delete unreferenced objects, on an object store only those older than `older_than`, and return their bytes.

    Lists all objects. The caller holds the writer's lock, so there is no other session. Readers of a local store read
    referenced objects: `clean` removes no reference that a reader needs. Raises StoreError if the store cannot be read.
    """
    folder, now = store.location.folder, datetime.now(UTC)
    with store_errors(f"the store {store.location.text}"):
        store.check_lease()
        store.flush()  # new references must be on disk before objects without references are deleted
        summary = store.repository.garbage_collect(now if folder else now - older_than, dry_run=dry_run)
        return int(summary.bytes_deleted) + (_sweep(folder, dry_run=dry_run) if folder else 0)


def measure_bytes(store: Store) -> int | None:
    """Return the bytes of a local store's files; None for an object store."""
    folder = store.location.folder
    return None if folder is None else sum(_size(path) for path in _files(folder))


def _sweep(folder: Path, *, dry_run: bool) -> int:
    """Delete unfinished files and return their bytes."""
    unfinished = [path for path in _files(folder) if _STAGED.fullmatch(path.name)]
    freed = sum(map(_size, unfinished))
    for path in () if dry_run else unfinished:
        path.unlink(missing_ok=True)
    return freed


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):  # a reader's entry, deleted meanwhile
        return path.stat().st_size
    return 0
