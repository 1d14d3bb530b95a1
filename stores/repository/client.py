"""Icechunk's repository with a time limit for every request, and with certainty about its conditional writes.

Branches and tags move by conditional requests. Where the answer to one is lost, Icechunk 1 repeats it against itself
and reports a conflict, although the change was made. So after a failure the branch or tag is looked up: if it is where
this process wanted it, the change was its own, since no other one knows the id of a snapshot that it has just written.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from ridgestream.stores.errors.exceptions import ServerSilent
from ridgestream.stores.requests.activity import ACTIVITY
from ridgestream.stores.requests.clock import await_clock
from ridgestream.stores.requests.limited_store import LimitedStore
from ridgestream.stores.requests.time_limit import TimeLimit

if TYPE_CHECKING:
    import icechunk

FIRST_SNAPSHOT = "1CECHNKREP0F1RSTCMT0"
"""The id of every repository's first snapshot."""

_LONGEST_BURST = 100
"""How many commits another writer may have made before this process looks whether its own is below them."""

_FLUSH_REQUESTS = 5
"""How many requests after each other make a snapshot: manifests, transaction log, snapshot, and a look at it."""

Answer = TypeVar("Answer")


class RepositoryClient:
    """The repository of a store; methods have the names and the errors of Icechunk's, and ServerSilent."""

    def __init__(self, repository: "icechunk.Repository", limit: TimeLimit) -> None:
        self._repository, self.limit = repository, limit
        self._known: dict[str, tuple[str, object]] = {}

    @classmethod
    def exists(cls, storage: "icechunk.Storage", limit: TimeLimit) -> bool:
        """Return whether there is a repository."""
        import icechunk

        return limit.wait(lambda: icechunk.Repository.exists_async(storage), "the branch main")

    @classmethod
    def open(cls, storage: "icechunk.Storage", limit: TimeLimit) -> "RepositoryClient":
        """Open a repository."""
        import icechunk

        config = _config(limit)
        return cls(limit.wait(lambda: icechunk.Repository.open_async(storage, config), "the repository"), limit)

    @classmethod
    def create(cls, storage: "icechunk.Storage", limit: TimeLimit) -> "RepositoryClient":
        """Create an empty repository, or open one that was created meanwhile; all are alike.

        Raises IcechunkError if the prefix contains anything else.
        """
        import icechunk

        version: dict[str, Any] = {} if icechunk.__version__.startswith("1.") else {"spec_version": 1}
        try:
            limit.wait(lambda: icechunk.Repository.create_async(storage, **version), "the new repository", tries=1)
        except icechunk.IcechunkError:
            if not cls.exists(storage, limit):
                raise
        return cls.open(storage, limit)

    def store_of(self, session: "icechunk.Session") -> LimitedStore:
        """Return the Zarr store of a session; all of them share what is known of records."""
        return LimitedStore(session.store, self.limit, self._known)

    def readonly_session(self, branch: str | None = None, *, snapshot_id: str | None = None) -> "icechunk.Session":
        """Open a session for reading the last commit of a branch, or a snapshot, which is read at once."""
        session = self._ask(
            lambda: self._repository.readonly_session_async(branch, snapshot_id=snapshot_id),
            f"the branch {branch}" if branch else f"the snapshot {snapshot_id}",
        )
        self.lookup_snapshot(session.snapshot_id)  # Zarr would take a lost one for an empty store
        return session

    def writable_session(self, branch: str) -> "icechunk.Session":
        """Open a session for changes."""
        return self._ask(lambda: self._repository.writable_session_async(branch), f"the branch {branch}")

    def flush(self, session: "icechunk.Session", message: str, metadata: dict[str, Any] | None = None) -> str:
        """Write the session's changes as a snapshot that no branch points to yet, and return its id.

        Waits if this machine's clock is a few seconds behind the parent's commit. Raises StoreError if it is more.
        """
        await_clock(self.lookup_snapshot(session.snapshot_id).written_at)
        return self._ask(
            lambda: session.flush_async(message, metadata=metadata), "the new snapshot", requests=_FLUSH_REQUESTS
        )

    def lookup_branch(self, branch: str) -> str:
        """Return the snapshot that a branch points to."""
        return str(self._ask(lambda: self._repository.lookup_branch_async(branch), f"the branch {branch}"))

    def lookup_snapshot(self, snapshot_id: str) -> "icechunk.SnapshotInfo":
        """Return what is known of a snapshot."""
        return self._ask(lambda: self._repository.lookup_snapshot_async(snapshot_id), f"the snapshot {snapshot_id}")

    def list_branches(self) -> set[str]:
        """Return the names of all branches."""
        return set(self._ask(self._repository.list_branches_async, "the list of branches"))

    def list_tags(self) -> set[str]:
        """Return the names of all tags."""
        return set(self._ask(self._repository.list_tags_async, "the list of tags"))

    def lookup_tag(self, tag: str) -> str:
        """Return the snapshot of a tag."""
        return str(self._ask(lambda: self._repository.lookup_tag_async(tag), f"the tag {tag}"))

    def find_tag(self, tag: str) -> str | None:
        """Return the snapshot of a tag; None if there is no such tag. Tags are listed, which takes long, only then."""
        import icechunk

        try:
            return self.lookup_tag(tag)
        except icechunk.IcechunkError:
            if tag in self.list_tags():
                raise
            return None

    def ancestry(self, *, branch: str) -> "Iterator[icechunk.SnapshotInfo]":
        """Yield a branch's commits, newest first; Icechunk's own iterator has no time limit."""
        snapshot_id: str | None = self.lookup_branch(branch)
        while snapshot_id is not None:
            commit = self.lookup_snapshot(snapshot_id)
            yield commit
            snapshot_id = commit.parent_id

    def first_snapshot(self) -> str:
        """Return the id of the repository's first snapshot, which differs from FIRST_SNAPSHOT only in very old ones."""
        import icechunk

        try:
            return str(self.lookup_snapshot(FIRST_SNAPSHOT).id)
        except icechunk.IcechunkError:
            *_, first = self.ancestry(branch="main")
            return str(first.id)

    def save_config(self, inline_bytes: int) -> bool:
        """Write the repository's configuration; return False if another client has since this one was opened."""
        import icechunk

        config = icechunk.RepositoryConfig.default()
        config.inline_chunk_threshold_bytes = inline_bytes
        changed = self._ask(lambda: self._repository.reopen_async(config), "the configuration")
        try:
            self._ask(changed.save_config_async, "the configuration", tries=1)
        except icechunk.IcechunkError as error:
            if "updated by other session" in str(error):
                return False
            raise
        return True

    def create_branch(self, branch: str, snapshot_id: str) -> None:
        """Create a branch that points to a snapshot; nothing happens if it does so already."""
        self._settle(
            lambda: self._repository.create_branch_async(branch, snapshot_id),
            f"the branch {branch}",
            lambda: self.lookup_branch(branch) == snapshot_id,
        )

    def reset_branch(self, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None) -> None:
        """Point a branch to a snapshot, if it points to `from_snapshot_id`; nothing happens if it does already."""
        self._settle(
            lambda: self._repository.reset_branch_async(branch, snapshot_id, from_snapshot_id=from_snapshot_id),
            f"the branch {branch}",
            lambda: self.lookup_branch(branch) == snapshot_id,
        )

    def publish(self, branch: str, snapshot_id: str, base: str) -> None:
        """Point a branch from the snapshot `base` to one made from it; a later one may be on top of that already."""
        self._settle(
            lambda: self._repository.reset_branch_async(branch, snapshot_id, from_snapshot_id=base),
            f"the branch {branch}",
            lambda: self._contains(branch, snapshot_id),
        )

    def delete_branch(self, branch: str) -> None:
        """Delete a branch."""
        self._ask(lambda: self._repository.delete_branch_async(branch), f"the branch {branch}")

    def create_tag(self, tag: str, snapshot_id: str) -> None:
        """Tag a snapshot; nothing happens if it has the tag already."""
        self._settle(
            lambda: self._repository.create_tag_async(tag, snapshot_id),
            f"the tag {tag}",
            lambda: self.lookup_tag(tag) == snapshot_id,
        )

    def delete_tag(self, tag: str) -> None:
        """Delete a tag."""
        self._settle(
            lambda: self._repository.delete_tag_async(tag), f"the tag {tag}", lambda: tag not in self.list_tags()
        )

    def expire_snapshots(self, older_than: datetime) -> set[str]:
        """Forget the untagged commits before a time; takes as long as there are commits."""
        with ACTIVITY.under_way(f"the expiry of commits of {self.limit.location}"):
            return self._repository.expire_snapshots(older_than)

    def garbage_collect(self, older_than: datetime, *, dry_run: bool = False) -> "icechunk.GCSummary":
        """Delete unreferenced objects written before a time; takes as long as there are objects."""
        with ACTIVITY.under_way(f"the garbage collection of {self.limit.location}"):
            return self._repository.garbage_collect(older_than, dry_run=dry_run)

    def _ask(self, request: Callable[[], Awaitable[Answer]], subject: str, **named: int) -> Answer:
        return self.limit.wait(request, subject, **named)

    def _settle(self, change: Callable[[], Awaitable[None]], subject: str, is_done: Callable[[], bool]) -> None:
        """Make a change once; if that fails, or nobody answers, raise unless it turns out to be made."""
        import icechunk

        try:
            self._ask(change, subject)
        except (icechunk.IcechunkError, ServerSilent):
            with suppress(icechunk.IcechunkError, ServerSilent):
                if is_done():
                    return
            raise

    def _contains(self, branch: str, snapshot_id: str) -> bool:
        """Return whether a branch points to a snapshot, or to one made from it."""
        if self.lookup_branch(branch) == snapshot_id:
            return True
        return any(commit.id == snapshot_id for commit in islice(self.ancestry(branch=branch), _LONGEST_BURST))


def _config(limit: TimeLimit) -> "icechunk.RepositoryConfig | None":
    """Return the time limits that Icechunk itself observes from version 2 on; it repeats requests sooner, too."""
    import icechunk

    timeouts: Callable[..., Any] | None = getattr(icechunk, "StorageTimeoutSettings", None)
    if timeouts is None or limit.seconds is None:
        return None
    settings: Mapping[str, Any] = {"timeouts": timeouts(read_timeout_ms=int(1000 * limit.seconds))}
    config = icechunk.RepositoryConfig.default()
    config.storage = icechunk.StorageSettings(**settings)
    return config
