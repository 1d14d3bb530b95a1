"""The format of a store: its branch, and the attribute that marks a repository as a store of a format version."""

from typing import TYPE_CHECKING

from ridgestream.stores.segments.segment_format import SEGMENTS

if TYPE_CHECKING:
    from ridgestream.stores.repository.client import RepositoryClient

FORMAT_VERSION = 4
"""The version of the store format. Newer stores are refused; older ones are read, and upgraded by the first change.

Version 2 adds several targets and multi-class targets; version 3 records the segment of each partition, and the
partitions that were rejected or left out; version 4 records how numbers are stored and how they are named as
categories, packs small segments together, and keeps the ledger in chunks. The segments of older versions stay as they
are.
"""

BRANCH = "main"
"""The branch with the commits of a store."""

ATTRIBUTE = "ridgestream"
"""The attribute of the root group that marks a repository as a store; it holds `format_version`."""


def mark_as_store(repository: "RepositoryClient") -> None:
    """Make the first commit of a store in an empty repository."""
    import zarr

    session = repository.writable_session(BRANCH)
    root = zarr.create_group(repository.store_of(session), attributes={ATTRIBUTE: {"format_version": FORMAT_VERSION}})
    root.create_group(SEGMENTS)  # here, since only one of several forked sessions could create it later
    base = session.snapshot_id
    repository.publish(BRANCH, repository.flush(session, "Create the store"), base)
