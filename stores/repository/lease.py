"""One writer at a time on an object store: a lease kept in the repository itself, which names its holder.

A branch of its own points to a snapshot that names who writes, or to the repository's first, which names nobody.
Icechunk moves a branch only if nobody else has moved it meanwhile, so that of several who reach for the lease one gets
it. The holder renews it, by a new snapshot, three times in `LEASE_SECONDS`. Who waits looks at the branch: if it stands
still for all of that time, by the clock of who waits, the holder is taken for dead, and at once if its process was on
this machine and is gone. A holder that was only stopped finds out before its next commit, and does not make it.

The lease keeps writers from working in vain. That no commit is lost or doubled does not hang on it: a commit whose base
is not the last one is refused in any case.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from time import monotonic, sleep
from typing import TYPE_CHECKING

from ridgestream.stores.errors.exceptions import StoreError, StoreLocked
from ridgestream.stores.errors.translation import store_errors
from ridgestream.stores.repository.lock_owner import Owner

if TYPE_CHECKING:
    import icechunk

LEASE_SECONDS = 30.0
"""How long a lease holds that is not renewed."""

LOOK_SECONDS = 0.5
"""How often who waits looks."""

HOLDER_BRANCH, NOBODY_BRANCH = "writer", "writer.nobody"
"""The branch that points to the holder's snapshot, and the one that points to the snapshot of nobody."""

FIRST_SNAPSHOT = "1CECHNKREP0F1RSTCMT0"
"""The snapshot with which a repository begins."""

_OWNER = "writer"
_UNKNOWN = Owner(0, "another machine", "an unknown time", "", 0.0)


class Lease:
    """A lease that this process holds, until another takes it for dead."""

    def __init__(self, register: "_Register", owner: Owner, snapshot: str) -> None:
        self._register, self._owner, self._snapshot = register, owner, snapshot
        self._lost, self._mutex = False, threading.Lock()

    def renew(self) -> None:
        """Prolong the lease; raise StoreLocked if another has taken it, StoreError if the store cannot be written."""
        with self._mutex:
            renewed = None if self._lost else self._register.replace(self._snapshot, self._owner)
            if renewed is None:
                self._lost = True
                raise StoreLocked(
                    f"the store {self._register.place} has been taken over by {self._register.describe_holder()}, "
                    f"since this run did not answer for {LEASE_SECONDS:g} s (was it stopped, or off the network?); "
                    "what it had committed stands: run the job again"
                )
            self._snapshot = renewed

    def keep(self, stop: threading.Event) -> None:
        """Renew the lease again and again until told to stop, or until it is lost."""
        while not stop.wait(LEASE_SECONDS / 3) and not self._lost:
            with suppress(StoreError):  # whoever commits asks again, and is told
                self.renew()

    def release(self) -> None:
        """Name nobody; where that fails, the lease runs out by itself."""
        with self._mutex, suppress(StoreError):
            if not self._lost:
                self._register.replace(self._snapshot, None)


@contextmanager
def writer_lease(repository: "icechunk.Repository", place: str, wait_seconds: float) -> Iterator[Lease]:
    """Hold the lease of the repository at `place`; wait up to `wait_seconds` for another writer to leave.

    A holder that seems to be dead is watched for LEASE_SECONDS also by who does not want to wait. Raises StoreLocked
    naming the holder, StoreError if the store cannot be written.
    """
    lease, stop = _acquire(_Register(repository, place), wait_seconds), threading.Event()
    keeper = threading.Thread(target=lease.keep, args=(stop,), name="ridgestream-lease", daemon=True)
    keeper.start()
    try:
        yield lease
    finally:
        stop.set()
        keeper.join(LEASE_SECONDS)
        lease.release()


def _acquire(register: "_Register", wait_seconds: float) -> Lease:
    owner, give_up = Owner.of_this_process(), monotonic() + wait_seconds
    first = seen = register.snapshot()
    seen_at = monotonic()
    while True:
        holder = register.holder(seen)
        if holder is None or holder.is_gone() or monotonic() - seen_at >= LEASE_SECONDS:
            if taken := register.replace(seen, owner):
                return Lease(register, owner, taken)
        elif monotonic() >= give_up and not (seen == first and register.seems_old(seen)):
            raise StoreLocked(
                f"the store {register.place} is being written by {holder}; wait for it to finish, or use --wait SECONDS"
            )
        else:
            sleep(LOOK_SECONDS)
        now_seen = register.snapshot()
        if now_seen != seen:
            seen, seen_at = now_seen, monotonic()


class _Register:
    """The branch that names who writes."""

    def __init__(self, repository: "icechunk.Repository", place: str) -> None:
        self.place, self._repository = place, repository
        with store_errors(f"the store {place}"):
            self._nobody = self._ensure_branches()

    def snapshot(self) -> str:
        """Return the snapshot that the branch points to."""
        with store_errors(f"the store {self.place}"):
            return str(self._repository.lookup_branch(HOLDER_BRANCH))

    def holder(self, snapshot: str) -> Owner | None:
        """Return whom a snapshot names: someone unknown, who may live, where it cannot be read."""
        if snapshot == self._nobody:
            return None
        with suppress(StoreError, KeyError, TypeError), store_errors(f"the store {self.place}"):
            return Owner.from_dict(self._repository.lookup_snapshot(snapshot).metadata[_OWNER])
        return _UNKNOWN

    def seems_old(self, snapshot: str) -> bool:
        """Tell whether the clocks of the holder and of this machine make the snapshot one that was not renewed."""
        with suppress(StoreError), store_errors(f"the store {self.place}"):
            written = self._repository.lookup_snapshot(snapshot).written_at
            return (datetime.now(UTC) - written).total_seconds() > LEASE_SECONDS
        return True

    def describe_holder(self) -> str:
        """Return who writes now, in words; for messages."""
        with suppress(StoreError):
            return str(self.holder(self.snapshot()) or "another process")
        return "another process"

    def replace(self, snapshot: str, owner: Owner | None) -> str | None:
        """Name another holder, or nobody, if the branch still points to `snapshot`; return to what it points then.

        None means that another was quicker.
        """
        import icechunk

        with store_errors(f"the store {self.place}"):
            new = self._nobody if owner is None else self._write_down(owner)
            try:
                self._repository.reset_branch(HOLDER_BRANCH, new, from_snapshot_id=snapshot)
            except icechunk.IcechunkError as error:
                found = self._repository.lookup_branch(HOLDER_BRANCH)
                if found == new:  # a request that is sent twice is refused the second time
                    return new
                if found == snapshot and "conflict" not in str(error):  # else it has moved, and moved back
                    raise
                return None
        return new

    def _write_down(self, owner: Owner) -> str:
        """Write a snapshot that names the owner, to which no branch points yet."""
        import zarr

        session = self._repository.writable_session(NOBODY_BRANCH)
        zarr.create_group(session.store, attributes={_OWNER: owner.process})  # a snapshot without a change is refused
        return str(session.flush(f"Written by {owner}", metadata={_OWNER: owner.as_dict()}))

    def _ensure_branches(self) -> str:
        """Make the branches that are missing, which point to the first snapshot, and return that."""
        import icechunk

        for branch in (NOBODY_BRANCH, HOLDER_BRANCH):
            if branch not in self._repository.list_branches():
                with suppress(icechunk.IcechunkError):  # another has made it meanwhile, or the next line fails
                    self._repository.create_branch(branch, self._first_snapshot())
        return str(self._repository.lookup_branch(NOBODY_BRANCH))

    def _first_snapshot(self) -> str:
        """Return the repository's first snapshot, which is of the same name in all but very old ones."""
        import icechunk

        try:
            return str(self._repository.lookup_snapshot(FIRST_SNAPSHOT).id)
        except icechunk.IcechunkError:
            *_, first = self._repository.ancestry(branch="main")
            return str(first.id)
