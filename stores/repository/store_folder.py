"""The folder of a local store: which names it may contain, whether it can be written, and flushing it to disk."""

import ctypes
import os
from pathlib import Path

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.reader_registry import READERS
from ridgestream.stores.requests.activity import ACTIVITY

UNFINISHED = ".making-"
"""Prefix of the folder in which a repository is created before it is moved."""

_PROBE = ".probe-"


def is_repository_folder(folder: Path) -> bool:
    """Return whether a folder contains a repository; raises StoreError for other contents and for links.

    Must be called before Icechunk opens the folder, since that would create it, or accept any folder. A folder that
    contains only snapshots does not count: creating a store was interrupted there.
    """
    with ACTIVITY.under_way(f"the folder {folder}"):
        return _is_repository_folder(folder)


def _is_repository_folder(folder: Path) -> bool:
    try:
        if not folder.exists():
            return False
        is_folder = folder.is_dir()
        links = _links_in(folder) if is_folder else []
        names = {entry.name for entry in folder.iterdir() if not _is_auxiliary(entry.name)} if is_folder else set()
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


def may_hold_store(folder: Path) -> bool:
    """Return whether a folder is a store or could become one: it is not there yet, or holds nothing else."""
    try:
        is_repository_folder(folder)
    except StoreError:
        return (folder / "snapshots").is_dir()  # a store that is damaged
    return True


def _links_in(folder: Path) -> list[Path]:
    """Return the links in a store's folder: anything written through them would be written elsewhere."""
    refs = folder / "refs"
    return [p for p in (*folder.iterdir(), *(refs.iterdir() if refs.is_dir() else ())) if p.is_symlink()]


def _is_auxiliary(name: str) -> bool:
    """Return whether a file or folder belongs to locks, readers or an unfinished creation, not to the repository."""
    return name in ("writer.lock", "writer.json", READERS) or name.startswith((_PROBE, UNFINISHED))


def check_writable(folder: Path, *, create: bool) -> None:
    """Raise StoreError unless files can be created in the folder, which is created itself if `create`."""
    try:
        with ACTIVITY.under_way(f"a file written to {folder}"):
            if create:
                folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f"{_PROBE}{os.getpid()}"
            probe.touch()
            probe.unlink()
    except OSError as error:
        raise StoreError(f"the store {folder} cannot be written: {error.strerror}") from error


def flush_folder(folder: Path) -> None:
    """Flush the file system that contains the folder to disk."""
    with ACTIVITY.under_way(f"the disk of {folder} to be flushed"):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
                os.sync()
        except AttributeError:  # syncfs exists only on Linux
            os.sync()
        finally:
            os.close(descriptor)
