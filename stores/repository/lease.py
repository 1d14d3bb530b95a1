"""A single writer on an object store: a lease, kept in the repository itself, that names its holder.

A dedicated branch points to a snapshot that names the writer, or to the repository's first snapshot, which names
nobody. Icechunk moves a branch only if nobody else has moved it meanwhile, so of several processes that request the
lease at once, exactly one gets it. The holder renews it with a new snapshot three times in LEASE_SECONDS. A waiting
process polls the branch: if it has not moved for LEASE_SECONDS by the waiting process's own clock, the holder is
considered dead; immediately so if its process ran on this machine and has ended. A holder that was only suspended
finds out before its next commit, and does not make it.

The lease only avoids wasted work. It is not what prevents lost or duplicate commits: a commit whose base is not the
latest one is refused in any case.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from time import monotonic, sleep
from typing import TYPE_CHECKING

from ridgestream.stores.errors.exceptions import StoreError, StoreLocked
from ridgestream.stores.errors.translation import store_errors
from ridgestream.stores.errors.zarr_settings import ZARR_FORMAT
from ridgestream.stores.repository.lock_owner import Owner
from ridgestream.stores.requests.activity import ACTIVITY, in_background

if TYPE_CHECKING:
    from ridgestream.stores.repository.client import RepositoryClient

LEASE_SECONDS = 30.0
"""How long a lease is valid without being renewed."""

POLL_SECONDS = 0.5
"""How often a waiting process looks at the lease."""

HOLDER_BRANCH, NOBODY_BRANCH = "writer", "writer.nobody"
"""The branch that points to the holder's snapshot, and the one that points to the snapshot that names nobody."""

_OWNER = "writer"
_UNKNOWN = Owner(0, "another machine", "an unknown time", "", 0.0)


class Lease:
    """A lease held by this process until it is released, or until another process takes it over."""

    def __init__(self, branch: "_LeaseBranch", owner: Owner, snapshot: str) -> None:
        self._branch, self._owner, self._snapshot = branch, owner, snapshot
        self._lost, self._mutex = False, threading.Lock()

    def renew(self) -> None:
        """Extend the lease; raises StoreLocked if another process has it, StoreError if the store cannot be written."""
        with self._mutex:
            renewed = None if self._lost else self._branch.replace(self._snapshot, self._owner)
            if renewed is None:
                self._lost = True
                raise StoreLocked(
                    f"the store {self._branch.location} has been taken over by {self._branch.describe_holder()}, "
                    f"since this run did not answer for {LEASE_SECONDS:g} s (was it stopped, or off the network?); "
                    "what it had committed stands: run the job again"
                )
            self._snapshot = renewed

    def renew_until(self, stop: threading.Event) -> None:
        """Renew the lease periodically until `stop` is set or the lease is lost."""
        with in_background():
            while not stop.wait(LEASE_SECONDS / 3) and not self._lost:
                with suppress(StoreError):  # the next commit renews again and reports the error
                    self.renew()

    def release(self) -> None:
        """Name nobody as holder; if that fails, the lease expires."""
        with self._mutex, suppress(StoreError):
            if not self._lost:
                self._branch.replace(self._snapshot, None)


@contextmanager
def writer_lease(repository: "RepositoryClient", location: str, wait_seconds: float) -> Iterator[Lease]:
    """Hold the lease of the repository at `location`; wait up to `wait_seconds` for another writer to finish.

    A holder that seems to be dead is watched for LEASE_SECONDS even if `wait_seconds` is less. Raises StoreLocked
    naming the holder, StoreError if the store cannot be written.
    """
    lease, stop = _acquire(_LeaseBranch(repository, location), wait_seconds), threading.Event()
    renewer = threading.Thread(target=lease.renew_until, args=(stop,), name="ridgestream-lease", daemon=True)
    renewer.start()
    try:
        yield lease
    finally:
        stop.set()
        renewer.join(LEASE_SECONDS)
        lease.release()


def _acquire(branch: "_LeaseBranch", wait_seconds: float) -> Lease:
    owner, deadline = Owner.of_this_process(), monotonic() + wait_seconds
    first = current = branch.snapshot()
    moved_at = monotonic()
    while True:
        holder = branch.holder(current)
        if holder is None or holder.is_gone() or monotonic() - moved_at >= LEASE_SECONDS:
            if acquired := branch.replace(current, owner):
                return Lease(branch, owner, acquired)
        elif monotonic() >= deadline and not (current == first and branch.seems_expired(current)):
            raise StoreLocked(
                f"the store {branch.location} is being written by {holder}; wait for it to finish, "
                "or use --wait SECONDS"
            )
        else:
            with ACTIVITY.paused():
                sleep(POLL_SECONDS)
        latest = branch.snapshot()
        if latest != current:
            current, moved_at = latest, monotonic()


class _LeaseBranch:
    """The branch that names the writer."""

    def __init__(self, repository: "RepositoryClient", location: str) -> None:
        self.location, self._repository = location, repository
        with store_errors(f"the store {location}"):
            self._nobody = self._ensure_branches()

    def snapshot(self) -> str:
        """Return the snapshot that the branch points to."""
        with store_errors(f"the store {self.location}"):
            return str(self._repository.lookup_branch(HOLDER_BRANCH))

    def holder(self, snapshot: str) -> Owner | None:
        """Return the owner named by a snapshot; an unknown, possibly living owner if the snapshot cannot be read."""
        if snapshot == self._nobody:
            return None
        with suppress(StoreError, KeyError, TypeError), store_errors(f"the store {self.location}"):
            return Owner.from_dict(self._repository.lookup_snapshot(snapshot).metadata[_OWNER])
        return _UNKNOWN

    def seems_expired(self, snapshot: str) -> bool:
        """Return whether the snapshot is older than a lease, as far as the clocks of both machines agree."""
        with suppress(StoreError), store_errors(f"the store {self.location}"):
            committed_at = self._repository.lookup_snapshot(snapshot).written_at
            return (datetime.now(UTC) - committed_at).total_seconds() > LEASE_SECONDS
        return True

    def describe_holder(self) -> str:
        """Return who is writing now, for messages."""
        with suppress(StoreError):
            return str(self.holder(self.snapshot()) or "another process")
        return "another process"

    def replace(self, snapshot: str, owner: Owner | None) -> str | None:
        """Name another owner, or nobody, if the branch still points to `snapshot`; return the branch's new snapshot.

        Returns None if another process was faster.
        """
        import icechunk

        with store_errors(f"the store {self.location}"):
            new = self._nobody if owner is None else self._write_snapshot(owner)
            try:
                self._repository.reset_branch(HOLDER_BRANCH, new, from_snapshot_id=snapshot)
            except icechunk.IcechunkError as error:
                current = self._repository.lookup_branch(HOLDER_BRANCH)
                if current == snapshot and "conflict" not in str(error):  # in a conflict it moved there and back
                    raise
                return None
        return new

    def _write_snapshot(self, owner: Owner) -> str:
        """Write a snapshot that names the owner; no branch points to it yet."""
        import zarr

        session = self._repository.writable_session(NOBODY_BRANCH)
        store = self._repository.store_of(session)
        attributes = {_OWNER: owner.process}  # Icechunk refuses an empty snapshot
        zarr.create_group(store, zarr_format=ZARR_FORMAT, attributes=attributes)
        return self._repository.flush(session, f"Written by {owner}", {_OWNER: owner.as_dict()})

    def _ensure_branches(self) -> str:
        """Create the missing branches, pointing to the first snapshot, and return its id."""
        import icechunk

        for branch in (NOBODY_BRANCH, HOLDER_BRANCH):
            if branch not in self._repository.list_branches():
                with suppress(icechunk.IcechunkError):  # another process created it, or lookup_branch below fails
                    self._repository.create_branch(branch, self._repository.first_snapshot())
        return str(self._repository.lookup_branch(NOBODY_BRANCH))
