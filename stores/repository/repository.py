"""The repository behind a store: opening, one commit for what belongs together, errors that say what to do.

Icechunk gives Zarr atomic commits and snapshots. Every change is made in a session and becomes visible by one commit:
a reader sees the state before it or after it, whole; a process killed in between leaves only files that nothing names.
"""

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from ridgestream.stores.errors.exceptions import NewerFormat, StoreError
from ridgestream.stores.errors.transient import may_pass
from ridgestream.stores.errors.translation import reading, store_errors
from ridgestream.stores.repository.creation import begin_repository
from ridgestream.stores.repository.file_lock import writer_lock
from ridgestream.stores.repository.lease import Lease, writer_lease
from ridgestream.stores.repository.reader_registry import READERS, registered
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.segments.segments import SEGMENTS
from ridgestream.stores.segments.size_limits import check_metadata

if TYPE_CHECKING:
    import icechunk
    import zarr

FORMAT_VERSION = 3
"""The version of what is on disk. A store of a higher one is refused; one of a lower one is read, and raised to this
one by the first change.

2 has several targets, or classes each learned against the rest; 3 names the segment of each partition, and what became
of partitions that were rejected or left out.
"""

BRANCH = "main"
_MARK = "ridgestream"
_TAG = "tag"
_PROBE, _MAKING = ".probe-", ".making-"


@dataclass
class Writing:
    """A session in which changes are made; they become visible by its commit, or never."""

    session: "icechunk.Session"
    """Icechunk's writable session."""
    snapshot: str | None = None
    """The snapshot that the commit made, None before."""

    @property
    def root(self) -> "zarr.Group":
        """The root group; changes to it and below are part of the commit."""
        import zarr

        return zarr.open_group(self.session.store, mode="a")

    def raise_format(self) -> None:
        """Mark the store as one of this release's format, unless it is marked so."""
        with store_errors("the store's mark"):
            if cast("dict[str, Any]", self.root.attrs[_MARK])["format_version"] < FORMAT_VERSION:
                self.root.attrs[_MARK] = {"format_version": FORMAT_VERSION}


class Store:
    """A Ridgestream store at a location, open for reading; writers take `lock` and then `write`."""

    def __init__(self, location: StoreLocation, repository: "icechunk.Repository") -> None:
        self.location = location
        self.repository = repository
        self._lease: Lease | None = None

    @classmethod
    def open(cls, location: StoreLocation) -> Self:
        """Open an existing store; raise StoreError if there is none, NewerFormat if a newer release wrote it."""
        store = cls(location, _open_repository(location))
        found = store._mark()
        if not isinstance(found, dict) or "format_version" not in found:
            raise StoreError(f"{location.text} is an Icechunk repository, but not a Ridgestream store")
        if cast("int", found["format_version"]) > FORMAT_VERSION:
            raise NewerFormat(
                f"the store {location.text} has format version {found['format_version']}; this release reads up to "
                f"{FORMAT_VERSION}: install a newer ridgestream"
            )
        return store

    @classmethod
    def exists(cls, location: StoreLocation) -> bool:
        """Tell whether there is a repository at the location; raise StoreError if something else is in its place.

        A repository without a commit does not count: its making was cut off, and `create` goes on from there.
        """
        import icechunk

        folder = location.folder
        if folder is not None and not _is_repository_folder(folder):
            return False
        location.check_there()
        with store_errors(f"the store {location.text}"):
            storage = location.storage()
            if icechunk.Repository.exists(storage):
                return _has_commit(icechunk.Repository.open(storage))
        if folder is not None and ((folder / "chunks").exists() or (folder / "manifests").exists()):
            raise StoreError(f"the store {folder} has lost refs/branch.{BRANCH}/ref.json; restore it from a copy")
        return False

    @classmethod
    def create(cls, location: StoreLocation) -> Self:
        """Make an empty store; raise StoreError if the place is taken or cannot be written.

        One writer makes it: another that comes meanwhile gets StoreLocked.
        """
        if cls.exists(location):
            raise StoreError(f"there is already a store at {location.text}")
        return cls.open_or_create(location)

    @classmethod
    def open_or_create(cls, location: StoreLocation, wait_seconds: float = 0.0) -> Self:
        """Open the store; if there is none, make it whole, under the writer's lock, waiting for that as `lock` does."""
        if cls.exists(location):
            return cls.open(location)
        if location.folder is None:
            _make_in_object_store(location, wait_seconds)
        else:
            _make_in_folder(location.folder, wait_seconds)
        return cls.open(location)

    def root(self, snapshot: str | None = None) -> "zarr.Group":
        """Return the root group of the last commit, or of a snapshot by its name, read-only."""
        import zarr

        with reading(f"the store {self.location.text}"), registered(self.location.folder) as registration:
            session = self._session(snapshot)
            check_metadata(session.store, "")
            group = zarr.open_group(session.store, mode="r")
            if registration is not None:
                registration.reads(session.snapshot_id, group.store)
            return group

    def snapshot(self) -> str:
        """Return the name of the last commit's snapshot."""
        with store_errors(f"the store {self.location.text}"):
            return str(self.repository.lookup_branch(BRANCH))

    @contextmanager
    def lock(self, wait_seconds: float = 0.0) -> Iterator[None]:
        """Hold the store for writing; wait up to `wait_seconds` for another writer to leave.

        Raises StoreLocked naming the other writer, StoreError if the store cannot be written. A folder is locked by the
        operating system, an object store by a lease: `write` makes no commit once that is lost.
        """
        folder = self.location.folder
        if folder is not None:
            _check_writable(folder, create=False)
            with writer_lock(folder, wait_seconds):
                yield
            return
        with writer_lease(self.repository, self.location.text, wait_seconds) as lease:
            self._lease = lease
            try:
                yield
            finally:
                self._lease = None

    @property
    def format_version(self) -> int:
        """The version of the last commit."""
        return cast("int", cast("dict[str, Any]", self._mark())["format_version"])

    @contextmanager
    def write(self, message: str, tag: str | None = None) -> Iterator[Writing]:
        """Open a session; commit it with `message` on leaving, unless an exception leaves, and flush it to disk.

        The commit gets the tag, at once or, after a kill in between, by `mend_tags`.
        """
        with store_errors(f"the store {self.location.text}"):
            writing = Writing(self.repository.writable_session(BRANCH))
        yield writing  # what goes wrong in there is not the store's fault, unless a writer of its arrays says so
        writing.raise_format()
        self.check_held()
        with store_errors(f"the store {self.location.text}"):
            writing.snapshot = self._commit(writing.session, message, {_TAG: tag} if tag else None)
            if tag:
                self.repository.create_tag(tag, writing.snapshot)
            self.flush()

    def check_held(self) -> None:
        """Raise StoreLocked if another has taken an object store over from this process while that was stopped."""
        if self._lease is not None:
            self._lease.renew()

    def _commit(self, session: "icechunk.Session", message: str, metadata: dict[str, Any] | None) -> str:
        """Commit the session, and in a folder have it all on disk before the branch points to it."""
        if self.location.folder is None:
            return session.commit(message, metadata)
        base, snapshot = session.snapshot_id, session.flush(message, metadata=metadata)
        self.flush()
        self.repository.reset_branch(BRANCH, snapshot, from_snapshot_id=base)
        return snapshot

    def flush(self) -> None:
        """Flush a local store to disk, so that what it holds outlives a power cut from here on."""
        if self.location.folder is not None:
            _flush(self.location.folder)

    def tags(self) -> set[str]:
        """Return the names of all tags."""
        with store_errors(f"the store {self.location.text}"):
            return set(self.repository.list_tags())

    def tagged(self, tag: str) -> str:
        """Return the snapshot of a tag; raise StoreError if there is no such tag."""
        with store_errors(f"the store {self.location.text}"):
            if tag in self.repository.list_tags():
                return str(self.repository.lookup_tag(tag))
        raise StoreError(f"the store {self.location.text} has no tag {tag!r}")

    def tag(self, name: str, snapshot: str) -> None:
        """Name a snapshot for good; raise StoreError if the name is taken, or if there is no such snapshot."""
        if name in self.tags():
            raise StoreError(f"the store {self.location.text} has a tag {name!r} already; a tag stays where it is")
        with store_errors(f"the store {self.location.text}"):
            self.repository.create_tag(name, snapshot)

    def has_snapshot(self, name: str) -> bool:
        """Tell whether there is a snapshot of that name; raise StoreError where that cannot be seen."""
        import icechunk

        with store_errors(f"the store {self.location.text}"):
            try:
                self.repository.lookup_snapshot(name)
            except (icechunk.IcechunkError, ValueError) as error:
                if may_pass(error):
                    raise
                return False
        return True

    def mend_tags(self) -> None:
        """Tag the commits that a kill has left without the tag that they were to have; for who holds the lock."""
        with store_errors(f"the store {self.location.text}"):
            known = self.repository.list_tags()
            for commit in self.repository.ancestry(branch=BRANCH):
                tag = commit.metadata.get(_TAG)
                if tag in known:
                    return  # whoever made the commits before this one has looked after theirs
                if tag is not None:
                    self.repository.create_tag(str(tag), commit.id)

    def _session(self, snapshot: str | None) -> "icechunk.Session":
        if snapshot is None:
            return self.repository.readonly_session(BRANCH)
        return self.repository.readonly_session(snapshot_id=snapshot)

    def _mark(self) -> object:
        """Return what marks a repository as a Ridgestream store, None if there is no such thing."""
        import zarr

        with reading(f"the store {self.location.text}"):
            try:
                kept = self._session(None).store
                check_metadata(kept, "")
                root = zarr.open_group(kept, mode="r")
            except (zarr.errors.GroupNotFoundError, zarr.errors.ContainsArrayError):
                return None
            return root.attrs.asdict().get(_MARK)


def _open_repository(location: StoreLocation) -> "icechunk.Repository":
    import icechunk

    if not Store.exists(location):
        raise StoreError(f"there is no store at {location.text}; `ridgestream ingest` or `ridgestream run` makes one")
    with store_errors(f"the store {location.text}"):
        return icechunk.Repository.open(location.storage())


def _make_in_folder(folder: Path, wait_seconds: float) -> None:
    """Make a repository beside the writer's lock; it counts from the moment in which its branches appear."""
    _check_writable(folder, create=True)
    location = StoreLocation(str(folder))
    with writer_lock(folder, wait_seconds), store_errors(f"the store {folder}"):
        if Store.exists(location):
            return
        for cut_off in folder.glob(f"{_MAKING}*"):
            shutil.rmtree(cut_off)
        making = folder / f"{_MAKING}{os.getpid()}"
        _mark_as_store(begin_repository(StoreLocation(str(making))))
        _flush(folder)
        for name in sorted((entry.name for entry in making.iterdir()), key=lambda name: name in ("refs", "repo")):
            shutil.rmtree(folder / name, ignore_errors=True)
            (making / name).rename(folder / name)
        making.rmdir()


def _make_in_object_store(location: StoreLocation, wait_seconds: float) -> None:
    """Make an empty repository, or open one whose making was cut off, and by its lease mark it as a store."""
    with store_errors(f"the store {location.text}"):
        repository = begin_repository(location)
    with writer_lease(repository, location.text, wait_seconds), store_errors(f"the store {location.text}"):
        if not _has_commit(repository):
            _mark_as_store(repository)


def _mark_as_store(repository: "icechunk.Repository") -> None:
    import zarr

    session = repository.writable_session(BRANCH)
    root = zarr.create_group(session.store, attributes={_MARK: {"format_version": FORMAT_VERSION}})
    root.create_group(SEGMENTS)  # here, since of writers in forked sessions only one may create a group
    session.commit("Create the store")


def _has_commit(repository: "icechunk.Repository") -> bool:
    return len(list(islice(repository.ancestry(branch=BRANCH), 2))) > 1


def _is_repository_folder(folder: Path) -> bool:
    """Look at the folder before Icechunk does, which would make it, or take any folder for its own.

    A folder with nothing but snapshots is none: the making of a store was cut off there.
    """
    try:
        if not folder.exists():
            return False
        is_folder = folder.is_dir()
        links = _links_in(folder) if is_folder else []
        names = {entry.name for entry in folder.iterdir() if not _is_writers(entry.name)} if is_folder else set()
    except OSError as error:
        raise StoreError(f"the store {folder} cannot be read: {error.strerror}") from error
    if not is_folder:
        raise StoreError(f"the store {folder} is a file; a store is a folder")
    if links:
        raise StoreError(f"{links[0]} of the store is a link to {links[0].readlink()}; a store has none: move it back")
    if names <= {"snapshots", "transactions"}:
        return False
    if not {"refs", "snapshots"} <= names and "repo" not in names:
        raise StoreError(f"{folder} holds other files and is not a Ridgestream store; choose another folder")
    return True


def _links_in(folder: Path) -> list[Path]:
    """Return what is a link in the folder of a store: what is written there would be written elsewhere."""
    refs = folder / "refs"
    return [p for p in (*folder.iterdir(), *(refs.iterdir() if refs.is_dir() else ())) if p.is_symlink()]


def _is_writers(name: str) -> bool:
    return name in ("writer.lock", "writer.json", READERS) or name.startswith((_PROBE, _MAKING))


def _check_writable(folder: Path, *, create: bool) -> None:
    try:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f"{_PROBE}{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StoreError(f"the store {folder} cannot be written: {error.strerror}") from error


def _flush(folder: Path) -> None:
    """Flush the file system that holds the folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            os.sync()
    except AttributeError:  # no syncfs outside Linux
        os.sync()
    finally:
        os.close(descriptor)
