"""The repository of a store: opening, reading, locking, and committing related changes at once.

Icechunk provides atomic commits and snapshots of Zarr hierarchies. Every change is made in a session and becomes
visible by one commit: readers see the state before it or after it, never part of it; a process killed in between leaves
only unreferenced files.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ridgestream.stores.errors.exceptions import NewerFormat, StoreError
from ridgestream.stores.errors.transient import is_transient
from ridgestream.stores.errors.translation import read_errors, store_errors
from ridgestream.stores.errors.zarr_settings import ZARR_FORMAT
from ridgestream.stores.repository.client import RepositoryClient
from ridgestream.stores.repository.conditional_writes import ensure_conditional_writes
from ridgestream.stores.repository.creation import create_store, store_exists
from ridgestream.stores.repository.file_lock import writer_lock
from ridgestream.stores.repository.lease import Lease, writer_lease
from ridgestream.stores.repository.reader_registry import registered
from ridgestream.stores.repository.store_folder import check_writable, flush_folder
from ridgestream.stores.repository.store_format import BRANCH, FORMAT_VERSION, RootRecord, list_hashes, read_root_record
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.requests.limited_store import Fork
from ridgestream.stores.schema.record_hash import hash_plain
from ridgestream.stores.segments.size_limits import check_metadata

if TYPE_CHECKING:
    import icechunk
    import zarr

_TAG, _TAG_HASH = "tag", "tag_sha256"


@dataclass
class WriteSession:
    """A session for changes, which become visible by its commit, or never."""

    session: "icechunk.Session"
    """Icechunk's writable session."""
    repository: RepositoryClient
    """Its repository."""
    snapshot: str | None = None
    """The snapshot created by the commit, None before it."""

    @property
    def root(self) -> "zarr.Group":
        """The root group; changes to it and its descendants are part of the commit."""
        import zarr

        return zarr.open_group(self.repository.store_of(self.session), mode="a", zarr_format=ZARR_FORMAT)

    def fork(self) -> Fork:
        """Return a fork of the session for other processes; nothing may have been changed in the session before."""
        with store_errors(self.repository.limit.location):
            return Fork(self.session.fork(), self.repository.limit)

    def merge(self, forks: Iterable[Fork]) -> None:
        """Add the changes made in forks."""
        with store_errors(self.repository.limit.location):
            self.session.merge(*(fork.session for fork in forks))

    def upgrade_format(self) -> None:
        """Set the store's format version to FORMAT_VERSION if it is older, and list the hashes of its records."""
        with read_errors("the store's format version"):
            list_hashes(self.root, {})


class Store:
    """A Ridgestream store at a location, open for reading; to write, hold `lock` and use `write`."""

    def __init__(self, location: StoreLocation, repository: RepositoryClient) -> None:
        self.location = location
        self.repository = repository
        self._lease: Lease | None = None

    @classmethod
    def open(cls, location: StoreLocation) -> Self:
        """Open an existing store; raises StoreError if there is none, NewerFormat if a newer release wrote it."""
        store = cls(location, _open_repository(location))
        store._check_readable(store._root_record())
        return store

    @classmethod
    def exists(cls, location: StoreLocation) -> bool:
        """Return whether there is a repository at the location; raises StoreError if something else is there.

        A repository without a commit does not count: its creation was interrupted, and `create` completes it.
        """
        return store_exists(location)

    @classmethod
    def create(cls, location: StoreLocation) -> Self:
        """Create an empty store; raises StoreError if the location is occupied or cannot be written.

        Raises StoreLocked if another process is creating it at the same time.
        """
        if cls.exists(location):
            raise StoreError(f"there is already a store at {location.text}")
        return cls.open_or_create(location)

    @classmethod
    def open_or_create(cls, location: StoreLocation, wait_seconds: float = 0.0) -> Self:
        """Open the store; if there is none, create it under the writer's lock, for which it waits like `lock`."""
        if cls.exists(location):
            return cls.open(location)
        create_store(location, wait_seconds)
        return cls.open(location)

    def root(self, snapshot: str | None = None) -> "zarr.Group":
        """Return the root group of the last commit, or of the snapshot with this id, read-only."""
        import zarr

        with read_errors(f"the store {self.location.text}"), registered(self.location.folder) as registration:
            session = self._session(snapshot)
            store = self.repository.store_of(session)
            check_metadata(store, "")
            group = zarr.open_group(store, mode="r", zarr_format=ZARR_FORMAT)
            self._check_readable(read_root_record(group))
            if registration is not None:
                registration.set_snapshot(session.snapshot_id, group.store)
            return group

    def snapshot(self) -> str:
        """Return the id of the last commit's snapshot."""
        with store_errors(f"the store {self.location.text}"):
            return str(self.repository.lookup_branch(BRANCH))

    @contextmanager
    def lock(self, wait_seconds: float = 0.0) -> Iterator[None]:
        """Hold the writer's lock; wait up to `wait_seconds` for another writer to finish.

        Raises StoreLocked naming the other writer, StoreError if the store cannot be written. A folder is protected by
        a file lock, an object store by a lease: `write` does not commit once the lease is lost.
        """
        folder = self.location.folder
        if folder is not None:
            check_writable(folder, create=False)
            with writer_lock(folder, wait_seconds):
                yield
            return
        with store_errors(f"the store {self.location.text}"):
            ensure_conditional_writes(self.repository, self.location)
        with writer_lease(self.repository, self.location.text, wait_seconds) as lease:
            self._lease = lease
            try:
                yield
            finally:
                self._lease = None

    @property
    def format_version(self) -> int:
        """The format version of the last commit."""
        return self._check_readable(self._root_record()).format_version

    @contextmanager
    def write(self, message: str, tag: str | None = None) -> Iterator[WriteSession]:
        """Open a session; on exit without an exception, commit it with `message` and flush it to disk.

        The commit gets the tag, immediately or, after a kill in between, from `restore_tags`.
        """
        with store_errors(f"the store {self.location.text}"):
            writing = WriteSession(self.repository.writable_session(BRANCH), self.repository)
        yield writing  # outside store_errors: errors of the caller's own code are not errors of the store
        writing.upgrade_format()
        self.check_lease()
        with store_errors(f"the store {self.location.text}"):
            writing.snapshot = self._commit(writing.session, message, _metadata_of(tag) if tag else None)
            if tag:
                self.repository.create_tag(tag, writing.snapshot)
            self.flush()

    def check_lease(self) -> None:
        """Raise StoreLocked if another process has taken over an object store while this one was suspended."""
        if self._lease is not None:
            self._lease.renew()

    def _commit(self, session: "icechunk.Session", message: str, metadata: dict[str, Any] | None) -> str:
        """Commit the session; in a local store, everything is on disk before the branch points to it."""
        base = session.snapshot_id
        snapshot = self.repository.flush(session, message, metadata)
        self.flush()
        self.repository.publish(BRANCH, snapshot, base)
        return snapshot

    def flush(self) -> None:
        """Flush a local store to disk, so that its current contents survive a power failure."""
        if self.location.folder is not None:
            flush_folder(self.location.folder)

    def tags(self) -> set[str]:
        """Return the names of all tags."""
        with store_errors(f"the store {self.location.text}"):
            return set(self.repository.list_tags())

    def find_tag(self, tag: str) -> str | None:
        """Return the snapshot of a tag, None if there is no such tag; without a look at the other tags."""
        with store_errors(f"the store {self.location.text}"):
            return self.repository.find_tag(tag)

    def snapshot_of_tag(self, tag: str) -> str:
        """Return the snapshot of a tag; raises StoreError if there is no such tag."""
        snapshot = self.find_tag(tag)
        if snapshot is None:
            raise StoreError(f"the store {self.location.text} has no tag {tag!r}")
        return snapshot

    def tag(self, name: str, snapshot: str) -> None:
        """Tag a snapshot permanently; raises StoreError if the tag exists or the snapshot does not."""
        if self.find_tag(name) is not None:
            raise StoreError(f"the store {self.location.text} has a tag {name!r} already; a tag stays where it is")
        with store_errors(f"the store {self.location.text}"):
            self.repository.create_tag(name, snapshot)

    def has_snapshot(self, name: str) -> bool:
        """Return whether a snapshot with this id exists; raises StoreError if that cannot be determined."""
        import icechunk

        with store_errors(f"the store {self.location.text}"):
            try:
                self.repository.lookup_snapshot(name)
            except (icechunk.IcechunkError, ValueError) as error:
                if is_transient(error):
                    raise
                return False
        return True

    def restore_tags(self) -> None:
        """Tag the commits that a kill has left without their tag; the caller holds the writer's lock."""
        with store_errors(f"the store {self.location.text}"):
            for commit in self.repository.ancestry(branch=BRANCH):
                tag = _tag_of(commit.metadata)
                if tag is None:
                    continue
                if self.repository.find_tag(tag) is not None:
                    return  # the writers of earlier commits have checked theirs
                self.repository.create_tag(tag, commit.id)

    def _session(self, snapshot: str | None) -> "icechunk.Session":
        if snapshot is None:
            return self.repository.readonly_session(BRANCH)
        return self.repository.readonly_session(snapshot_id=snapshot)

    def _root_record(self) -> RootRecord | None:
        """Return the record that identifies a repository as a Ridgestream store, None if there is none."""
        import zarr

        with read_errors(f"the store {self.location.text}"):
            try:
                store = self.repository.store_of(self._session(None))
                check_metadata(store, "")
                root = zarr.open_group(store, mode="r", zarr_format=ZARR_FORMAT)
            except (zarr.errors.GroupNotFoundError, zarr.errors.ContainsArrayError):
                return None
            return read_root_record(root)

    def _check_readable(self, record: RootRecord | None) -> RootRecord:
        """Return the root record; raises StoreError if there is none, NewerFormat if a newer release wrote it."""
        if record is None:
            raise StoreError(f"{self.location.text} is an Icechunk repository, but not a Ridgestream store")
        if record.format_version > FORMAT_VERSION:
            raise NewerFormat(
                f"the store {self.location.text} has format version {record.format_version}; this release reads up to "
                f"{FORMAT_VERSION}: install a newer ridgestream"
            )
        return record


def _metadata_of(tag: str) -> dict[str, Any]:
    """Return the metadata of a commit that gets a tag."""
    return {_TAG: tag, _TAG_HASH: hash_plain({_TAG: tag})}


def _tag_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the tag of a commit with this metadata, None if it has none; raises StoreError if it is damaged."""
    tag, digest = metadata.get(_TAG), metadata.get(_TAG_HASH)
    if digest is not None and digest != hash_plain({_TAG: tag}):
        raise StoreError(f"the tag {tag!r:.100} of a commit is not what was written; restore the store from a copy")
    return tag


def _open_repository(location: StoreLocation) -> RepositoryClient:
    if not Store.exists(location):
        raise StoreError(f"there is no store at {location.text}; `ridgestream ingest` or `ridgestream run` makes one")
    with store_errors(f"the store {location.text}"):
        return RepositoryClient.open(location.storage(), location.limit)
