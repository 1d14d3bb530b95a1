"""Cleaning a store: deletes expired commits, unused checkpoints, and unreferenced objects.

Data of open readers is kept. On a local store readers register themselves (`repository/reader_registry.py`), and all
commits since the oldest snapshot in use are kept. On an object store, readers are protected only by `older_than`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ridgestream.stores.catalog.checkpoints import delete_branch, model_of_branch
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import NIGHT, list_models, night_tag, read_model, require_model
from ridgestream.stores.errors.translation import store_errors
from ridgestream.stores.repository.garbage_collection import collect
from ridgestream.stores.repository.reader_registry import Reader, list_readers
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_format import BRANCH

if TYPE_CHECKING:
    import icechunk

ABANDONED = timedelta(days=30)
"""Age beyond which a checkpoint is considered abandoned."""

_OPENING = timedelta(minutes=1)
"""A reader whose snapshot is not known yet reads one that was the latest at most this long before it registered."""


@dataclass(frozen=True)
class CleaningResult:
    """What a cleaning deleted, or with `dry_run` would delete."""

    expired_snapshots: int
    """Number of commits that can no longer be read."""
    dropped_checkpoints: tuple[str, ...]
    """The models of deleted checkpoints."""
    freed_bytes: int
    """Bytes of unreferenced objects."""
    readers: int
    """Number of readers of a local store at that time."""
    forgotten_nights: int = 0
    """Number of nights that can no longer be restored."""


def clean(
    store: Store, older_than: timedelta, *, keep_nights: int | None = None, dry_run: bool = False
) -> CleaningResult:
    """Delete unreferenced objects and untagged commits older than `older_than`; the caller holds the writer's lock.

    The last commit is kept, and the one that was the last at that age. Of each model all nights are kept, or with
    `keep_nights` its last nights, the served one, and those tagged by a user; the history of all nights is kept. With
    `dry_run` nothing is deleted, and the bytes counted are those that are unreferenced already. If killed, it has
    deleted less. Raises StoreError if the store cannot be read or written.
    """
    readers = list_readers(store.location.folder) if store.location.folder else []
    now = datetime.now(UTC)
    with store_errors(f"the store {store.location.text}"):
        if not dry_run:
            store.restore_tags()
        unused = _unused_checkpoints(store, now, older_than)
        forgotten = [] if keep_nights is None else _old_nights(store, keep_nights)
        expired, until = _expired(store, readers, now - older_than, forgotten)
        if not dry_run:
            for tag in forgotten:
                store.repository.delete_tag(tag)
            for branch in unused:
                delete_branch(store, branch)
            if expired:
                store.repository.expire_snapshots(until)
        freed = collect(store, older_than, dry_run=dry_run)
    return CleaningResult(
        expired_snapshots=len(expired),
        dropped_checkpoints=tuple(str(model_of_branch(branch)) for branch in unused),
        freed_bytes=freed,
        readers=len(readers),
        forgotten_nights=len(forgotten),
    )


def _old_nights(store: Store, keep_nights: int) -> list[str]:
    """Return the tags of each model's nights before its last `keep_nights`.

    Excludes the served night, and nights that a user has tagged.
    """
    root, tags, old = store.root(), store.tags(), list[str]()
    user_tagged = {store.snapshot_of_tag(tag) for tag in tags if not tag.startswith(NIGHT)}
    for name in list_models(root):
        record = require_model(root, name)
        nights = [night.number for night in record.history]
        staying = {*nights[-keep_nights:], record.serves} if keep_nights else {record.serves}
        old += [night_tag(name, number) for number in nights if number not in staying]
    return [tag for tag in old if tag in tags and store.snapshot_of_tag(tag) not in user_tagged]


def _expired(
    store: Store, readers: list[Reader], cut_off: datetime, forgotten: list[str]
) -> "tuple[list[icechunk.SnapshotInfo], datetime]":
    """Return the commits that expire, and the time before which Icechunk expires exactly these of the untagged commits.

    It is the time of the commit that was the last one at the cut-off, or when the oldest reader began.
    """
    repository = store.repository
    retained = {repository.lookup_tag(tag) for tag in store.tags().difference(forgotten)} | {store.snapshot()}
    cut_off = min([cut_off, *(_snapshot_time(store, reader) for reader in readers if reader.snapshot not in retained)])
    cut_off = min([cut_off, *(_snapshot_time(store, reader) for reader in readers if reader.snapshot not in retained)])
    commits = list(repository.ancestry(branch=BRANCH))
    until = next((commit.written_at for commit in commits if commit.written_at <= cut_off), commits[-1].written_at)
    older = [commit for commit in commits[:-1] if commit.written_at < until]  # the first, empty commit is kept
    return [commit for commit in older if commit.id not in retained], until


def _snapshot_time(store: Store, reader: Reader) -> datetime:
    """Return the commit time of the snapshot that a reader uses, or an earlier time if that is not known."""
    import icechunk

    if reader.snapshot is not None:
        try:
            return store.repository.lookup_snapshot(reader.snapshot).written_at
        except icechunk.IcechunkError:  # already unreferenced when it was opened
            pass
    return reader.since - _OPENING


def _unused_checkpoints(store: Store, now: datetime, older_than: timedelta) -> list[str]:
    """Return the branches of checkpoints that no training will resume from."""
    branches = [branch for branch in sorted(store.repository.list_branches()) if model_of_branch(branch) is not None]
    return [branch for branch in branches if _is_unused(store, branch, now, older_than)]


def _is_unused(store: Store, branch: str, now: datetime, older_than: timedelta) -> bool:
    """Return whether a checkpoint is damaged, abandoned, older than a later night, or has nothing left to learn."""
    import icechunk

    try:
        saved_at = next(iter(store.repository.ancestry(branch=branch))).written_at
    except icechunk.IcechunkError:
        return True
    root = store.root()
    record = read_model(root, str(model_of_branch(branch)))
    if saved_at < now - ABANDONED or record is None:
        return saved_at < now - ABANDONED
    if record.history and saved_at < datetime.fromisoformat(record.history[-1].finished_at):
        return True
    handled = {*record.learned, *record.excluded}
    return saved_at < now - older_than and all(entry.segment in handled for entry in read_ledger(root).entries)
