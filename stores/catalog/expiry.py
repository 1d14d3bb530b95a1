"""Cleaning a store: commits that nobody is to see again, checkpoints of no use, and what nothing names.

Nothing is taken from whoever reads. On a local store readers register themselves (`repository/reader_registry.py`), and
commits since the oldest snapshot that one of them reads stay. On an object store their age alone protects them.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ridgestream.stores.catalog.checkpoints import forget, model_of
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import NIGHT, list_models, night_tag, read_model, require_model
from ridgestream.stores.errors.translation import store_errors
from ridgestream.stores.repository.garbage_collection import collect
from ridgestream.stores.repository.reader_registry import Reader, list_readers
from ridgestream.stores.repository.repository import BRANCH, Store

if TYPE_CHECKING:
    import icechunk

ABANDONED = timedelta(days=30)
"""After so long nobody goes on from a checkpoint."""

_OPENING = timedelta(minutes=1)
"""A reader of whom no snapshot is known yet reads one that was the last not longer ago."""


@dataclass(frozen=True)
class Cleaned:
    """What a cleaning took away, or would take."""

    expired_snapshots: int
    """Commits that are no longer to be seen."""
    dropped_checkpoints: tuple[str, ...]
    """The models of checkpoints that nothing goes on from."""
    freed_bytes: int
    """Bytes of what nothing named."""
    readers: int
    """Readers of a local store at that time."""
    forgotten_nights: int = 0
    """Nights that can no longer be gone back to."""


def clean(store: Store, older_than: timedelta, *, keep_nights: int | None = None, dry_run: bool = False) -> Cleaned:
    """Take away what nothing names, and commits that are older and have no tag; for who holds the writer's lock.

    The last commit stays, and the one that was the last at that age. Of each model all nights stay, or the last
    `keep_nights`, the one that is served, and those that a user has tagged; what they did stays in its history. With
    `dry_run` nothing is taken, and the bytes are those that nothing names already. Killed in between, it took less.
    Raises StoreError where the store cannot be read or written.
    """
    readers = list_readers(store.location.folder) if store.location.folder else []
    now = datetime.now(UTC)
    with store_errors(f"the store {store.location.text}"):
        if not dry_run:
            store.mend_tags()
        unused = _unused_checkpoints(store, now, older_than)
        forgotten = [] if keep_nights is None else _old_nights(store, keep_nights)
        expired, until = _expired(store, readers, now - older_than, forgotten)
        if not dry_run:
            for tag in forgotten:
                store.repository.delete_tag(tag)
            for branch in unused:
                forget(store, branch)
            if expired:
                store.repository.expire_snapshots(until)
        freed = collect(store, older_than, dry_run=dry_run)
    return Cleaned(len(expired), tuple(str(model_of(branch)) for branch in unused), freed, len(readers), len(forgotten))


def _old_nights(store: Store, keep_nights: int) -> list[str]:
    """Return the tags of the nights of each model before the last ones.

    But for that of the one that is served, and of those that a user has named by a tag.
    """
    root, tags, old = store.root(), store.tags(), list[str]()
    named = {store.tagged(tag) for tag in tags if not tag.startswith(NIGHT)}
    for name in list_models(root):
        record = require_model(root, name)
        nights = [night.number for night in record.history]
        staying = {*nights[-keep_nights:], record.serves} if keep_nights else {record.serves}
        old += [night_tag(name, number) for number in nights if number not in staying]
    return [tag for tag in old if tag in tags and store.tagged(tag) not in named]


def _expired(
    store: Store, readers: list[Reader], cut_off: datetime, forgotten: list[str]
) -> "tuple[list[icechunk.SnapshotInfo], datetime]":
    """Return the commits that are to expire, and the moment that all of them, and of the untagged no others, precede.

    It is that of the commit which was the last at the cut-off, or when the oldest reader began.
    """
    repository = store.repository
    kept = {repository.lookup_tag(tag) for tag in store.tags().difference(forgotten)} | {store.snapshot()}
    cut_off = min([cut_off, *(_moment_of(store, reader) for reader in readers if reader.snapshot not in kept)])
    commits = list(repository.ancestry(branch=BRANCH))
    until = next((commit.written_at for commit in commits if commit.written_at <= cut_off), commits[-1].written_at)
    older = [commit for commit in commits[:-1] if commit.written_at < until]  # the first is empty, and stays
    return [commit for commit in older if commit.id not in kept], until


def _moment_of(store: Store, reader: Reader) -> datetime:
    """Return when what the reader reads was committed, or a moment before."""
    import icechunk

    if reader.snapshot is not None:
        try:
            return store.repository.lookup_snapshot(reader.snapshot).written_at
        except icechunk.IcechunkError:  # it was named by nothing when it was opened
            pass
    return reader.since - _OPENING


def _unused_checkpoints(store: Store, now: datetime, older_than: timedelta) -> list[str]:
    """Return the branches of checkpoints that no training will go on from."""
    branches = [branch for branch in sorted(store.repository.list_branches()) if model_of(branch) is not None]
    return [branch for branch in branches if _is_unused(store, branch, now, older_than)]


def _is_unused(store: Store, branch: str, now: datetime, older_than: timedelta) -> bool:
    """Tell whether it is damaged, or superseded by a night, or has nothing left to learn, or was left for long."""
    import icechunk

    try:
        kept_at = next(iter(store.repository.ancestry(branch=branch))).written_at
    except icechunk.IcechunkError:
        return True
    root = store.root()
    record = read_model(root, str(model_of(branch)))
    if kept_at < now - ABANDONED or record is None:
        return kept_at < now - ABANDONED
    if record.history and kept_at < datetime.fromisoformat(record.history[-1].finished_at):
        return True
    known = {*record.learned, *record.excluded}
    return kept_at < now - older_than and all(entry.segment in known for entry in read_ledger(root).entries)
