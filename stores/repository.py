"""The repository behind a store: opening, one commit for what belongs together, errors that say what to do.

Icechunk gives Zarr atomic commits and snapshots. Every change is made in a session and becomes visible by one commit:
a reader sees the state before it or after it, whole; a process killed in between leaves only files that nothing names.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, cast

from ridgestream.stores.errors import ModelError, NewerFormat, PartitionError, StoreError
from ridgestream.stores.locations import StoreLocation
from ridgestream.stores.lock import writer_lock

if TYPE_CHECKING:
    import icechunk
    import zarr

FORMAT_VERSION = 1
"""The version of what is on disk. A store of a higher one is refused; one of a lower one is read."""

BRANCH = "main"
_MARK = "ridgestream"


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


class Store:
    """A Ridgestream store at a location, open for reading; writers take `lock` and then `write`."""

    def __init__(self, location: StoreLocation, repository: "icechunk.Repository") -> None:
        self.location = location
        self.repository = repository

    @classmethod
    def open(cls, location: StoreLocation) -> Self:
        """Open an existing store; raise StoreError if there is none, NewerFormat if a newer release wrote it."""
        store = cls(location, _open_repository(location))
        found = store.root().attrs.asdict().get(_MARK)
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
        """Tell whether there is a repository at the location; raise StoreError if something else is in its place."""
        folder = location.folder
        if folder is not None and not _is_repository_folder(folder):
            return False
        with store_errors(location.text):
            return bool(_icechunk().Repository.exists(location.storage()))

    @classmethod
    def create(cls, location: StoreLocation) -> Self:
        """Make an empty store; raise StoreError if the place is taken or cannot be written."""
        import zarr

        if cls.exists(location):
            raise StoreError(f"there is already a store at {location.text}")
        if location.folder is not None:
            _check_writable(location.folder, create=True)
        icechunk = _icechunk()
        version = {} if icechunk.__version__.startswith("1.") else {"spec_version": 1}
        with store_errors(location.text):
            repository = icechunk.Repository.create(location.storage(), **cast("dict[str, Any]", version))
            session = repository.writable_session(BRANCH)
            zarr.create_group(session.store, attributes={_MARK: {"format_version": FORMAT_VERSION}})
            session.commit("Create the store")
        return cls(location, repository)

    def root(self, snapshot: str | None = None) -> "zarr.Group":
        """Return the root group of the last commit, or of a snapshot by its name, read-only."""
        import zarr

        with store_errors(self.location.text):
            repository = self.repository
            session = (
                repository.readonly_session(snapshot_id=snapshot) if snapshot else repository.readonly_session(BRANCH)
            )
            return zarr.open_group(session.store, mode="r")

    def snapshot(self) -> str:
        """Return the name of the last commit's snapshot."""
        with store_errors(self.location.text):
            return str(self.repository.lookup_branch(BRANCH))

    def lock(self, wait_seconds: float = 0.0) -> AbstractContextManager[None]:
        """Hold the store for writing. On an object store nothing is locked: there, a conflicting commit is refused."""
        folder = self.location.folder
        if folder is None:
            return nullcontext()
        _check_writable(folder, create=False)
        return writer_lock(folder, wait_seconds)

    @contextmanager
    def write(self, message: str) -> Iterator[Writing]:
        """Open a session; commit it with `message` on leaving, unless an exception leaves, and flush it to disk."""
        with store_errors(self.location.text):
            writing = Writing(self.repository.writable_session(BRANCH))
            yield writing
            writing.snapshot = writing.session.commit(message)
            if self.location.folder is not None:
                _flush(self.location.folder)


@contextmanager
def store_errors(place: str) -> Iterator[None]:
    """Turn the errors of Icechunk, Zarr and the operating system into StoreError with the place and a first line."""
    import icechunk

    try:
        yield
    except (StoreError, PartitionError, ModelError):
        raise
    except icechunk.ConflictError as error:
        raise StoreError(f"another writer has committed to the store {place} meanwhile; run the job again") from error
    except (icechunk.IcechunkError, OSError) as error:
        raise StoreError(f"the store {place} cannot be read or written: {_first_line(error)}") from error
    except RuntimeError as error:  # what Zarr's codecs raise for bytes that do not decode
        raise StoreError(f"the store {place} holds damaged data: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip(" │|x×`->╰─▶") for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(("context:", "0:", "at "))]
    return telling[0] if telling else type(error).__name__


def _open_repository(location: StoreLocation) -> "icechunk.Repository":
    if not Store.exists(location):
        raise StoreError(f"there is no store at {location.text}; `ridgestream ingest` or `ridgestream run` makes one")
    with store_errors(location.text):
        return cast("icechunk.Repository", _icechunk().Repository.open(location.storage()))


def _icechunk() -> ModuleType:
    """Import Icechunk without its warning that local commits are not safe: the writer's lock makes them so."""
    import icechunk

    icechunk.set_logs_filter("error")
    return icechunk


def _is_repository_folder(folder: Path) -> bool:
    """Look at the folder before Icechunk does, which would make it, or take any folder for its own."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise StoreError(f"the store {folder} is a file; a store is a folder")
    try:
        names = {entry.name for entry in folder.iterdir()} - {"writer.lock", "writer.json"}
    except OSError as error:
        raise StoreError(f"the store {folder} cannot be read: {error.strerror}") from error
    if names and not {"refs", "snapshots"} <= names and "repo" not in names:
        raise StoreError(f"{folder} holds other files and is not a Ridgestream store; choose another folder")
    return bool(names)


def _check_writable(folder: Path, *, create: bool) -> None:
    try:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StoreError(f"the store {folder} cannot be written: {error.strerror}") from error


def _flush(folder: Path) -> None:
    """Flush the file system that holds the folder, so that a commit outlives a power cut from here on."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            os.sync()
    except AttributeError:  # no syncfs outside Linux
        os.sync()
    finally:
        os.close(descriptor)
