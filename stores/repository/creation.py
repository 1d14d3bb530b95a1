"""Creation of a store, which several processes may attempt at once, and a kill may interrupt.

In a local folder, the repository is created in a folder beside the writer's lock, whose contents are then moved.

In an object store, Icechunk first writes an empty snapshot, whose id is the same in every repository, and then the
branch that points to it. The prefix may contain the one without the other: another process is just creating the
repository, or was killed. Icechunk itself refuses any prefix that is not empty.
"""

import os
import shutil
from itertools import islice
from pathlib import Path
from time import monotonic, sleep

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import store_errors
from ridgestream.stores.files.paths import list_objects
from ridgestream.stores.repository.client import FIRST_SNAPSHOT, RepositoryClient
from ridgestream.stores.repository.conditional_writes import (
    check_conditional_writes,
    record_conditional_writes,
)
from ridgestream.stores.repository.file_lock import writer_lock
from ridgestream.stores.repository.lease import LEASE_SECONDS, POLL_SECONDS, writer_lease
from ridgestream.stores.repository.store_folder import UNFINISHED, check_writable, flush_folder, is_repository_folder
from ridgestream.stores.repository.store_format import BRANCH, mark_as_store
from ridgestream.stores.repository.store_location import StoreLocation

_INCOMPLETE = {f"snapshots/{FIRST_SNAPSHOT}", f"transactions/{FIRST_SNAPSHOT}"}
"""All objects in a prefix whose creation was interrupted."""


def store_exists(location: StoreLocation) -> bool:
    """Return whether there is a store at the location; raises StoreError if something else is there.

    A repository without a commit does not count: its creation was interrupted, and `create_store` completes it.
    """
    folder = location.folder
    if folder is not None and not is_repository_folder(folder):
        return False
    location.check_reachable()
    with store_errors(f"the store {location.text}"):
        storage = location.storage()
        if RepositoryClient.exists(storage, location.limit):
            return _has_commit(RepositoryClient.open(storage, location.limit))
    if _has_lost_branch(location):
        raise StoreError(f"the store {location.text} has lost refs/branch.{BRANCH}/ref.json; restore it from a copy")
    return False


def _has_lost_branch(location: StoreLocation) -> bool:
    """Return whether there are parts that were written after the branch, which is not there."""
    if location.folder is not None:
        return any((location.folder / name).exists() for name in ("chunks", "manifests"))
    return any(name.startswith(("chunks/", "manifests/")) for name in _list_names(location))


def create_store(location: StoreLocation, wait_seconds: float) -> None:
    """Create an empty store under the writer's lock, unless another process has created it in the meantime."""
    if location.folder is None:
        _create_in_object_store(location, wait_seconds)
    else:
        _create_in_folder(location.folder, wait_seconds)


def _create_in_folder(folder: Path, wait_seconds: float) -> None:
    """Create the repository in a temporary folder and move its parts, the references, which make it count, last."""
    check_writable(folder, create=True)
    with writer_lock(folder, wait_seconds), store_errors(f"the store {folder}"):
        if store_exists(StoreLocation(str(folder))):
            return
        for unfinished in folder.glob(f"{UNFINISHED}*"):
            shutil.rmtree(unfinished)
        new = folder / f"{UNFINISHED}{os.getpid()}"
        mark_as_store(open_or_create_repository(StoreLocation(str(new))))
        flush_folder(folder)
        for name in sorted((entry.name for entry in new.iterdir()), key=lambda name: name in ("refs", "repo")):
            shutil.rmtree(folder / name, ignore_errors=True)
            (new / name).rename(folder / name)
        new.rmdir()


def _create_in_object_store(location: StoreLocation, wait_seconds: float) -> None:
    """Create the repository, or open one whose creation was interrupted, and make its first commit under a lease."""
    with store_errors(f"the store {location.text}"):
        probed = _probe_beside(location)
        repository = open_or_create_repository(location)
        if probed:
            record_conditional_writes(repository, location)
    with writer_lease(repository, location.text, wait_seconds), store_errors(f"the store {location.text}"):
        if not _has_commit(repository):
            mark_as_store(repository)


def _probe_beside(location: StoreLocation) -> bool:
    """Probe the server before anything is created; return False if this process may not write there.

    Then the server is probed below the store's prefix when the first writer takes the lease.
    """
    import icechunk

    try:
        check_conditional_writes(location, beside=True)
    except icechunk.IcechunkError:
        return False
    return True


def _has_commit(repository: RepositoryClient) -> bool:
    return len(list(islice(repository.ancestry(branch=BRANCH), 2))) > 1


def open_or_create_repository(location: StoreLocation) -> RepositoryClient:
    """Return the repository at the location, created empty if there is none; of concurrent callers, one creates it.

    The remains of an interrupted creation are deleted after LEASE_SECONDS without change. Raises StoreError if the
    location contains something else, IcechunkError if it cannot be written.
    """
    import icechunk

    storage = location.storage()
    deadline, deleted = monotonic() + LEASE_SECONDS, False
    while not RepositoryClient.exists(storage, location.limit):
        try:
            return RepositoryClient.create(storage, location.limit)
        except icechunk.IcechunkError:
            names = _list_names(location)
            if RepositoryClient.exists(storage, location.limit):
                break
            if deleted or not names:
                raise
            if not names <= _INCOMPLETE:
                raise StoreError(
                    f"{location.text} holds other objects and is not a Ridgestream store; choose another prefix, or "
                    "restore refs/branch.main/ref.json if it was one"
                ) from None
            if monotonic() >= deadline:
                _delete_incomplete(location)
                deleted = True
            else:
                sleep(POLL_SECONDS)
    return RepositoryClient.open(storage, location.limit)


def _delete_incomplete(location: StoreLocation) -> None:
    """Delete the remains of an interrupted creation, unless it has made progress."""
    if _list_names(location) <= _INCOMPLETE:
        location.prefix.files.delete_dir(location.prefix.path)


def _list_names(location: StoreLocation) -> set[str]:
    """Return the names of all objects below a location in S3; an empty set for other locations."""
    if location.folder is not None or not location.prefix.parsed.is_s3:
        return set()
    return {name for name, _, _ in list_objects(location.prefix)}
