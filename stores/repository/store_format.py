"""The format of a store: its branch, and the record at its root, which lists the hash of every other record.

A store is read from files that disks, memory and networks may change. Chunks of arrays have checksums of their own;
what Icechunk keeps about them has none: one bit may give a model another scale, a partition another hash, or a group
another name, so that it seems absent. So the root lists the ledger and each model with a hash of all that it holds, and
the list has a hash itself: a record that is read is the one that was written, or it is refused.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import read_errors
from ridgestream.stores.errors.zarr_settings import ZARR_FORMAT
from ridgestream.stores.schema.record_hash import hash_arrays, hash_plain
from ridgestream.stores.segments.checked_array import read_array
from ridgestream.stores.segments.segment_format import SEGMENTS
from ridgestream.stores.segments.size_limits import check_metadata

if TYPE_CHECKING:
    import zarr

    from ridgestream.stores.repository.client import RepositoryClient

FORMAT_VERSION = 4
"""The version of the store format. Newer stores are refused; older ones are read, and upgraded by the first change.

Version 2 adds several targets and multi-class targets; version 3 records the segment of each partition, and the
partitions that were rejected or left out; version 4 records how numbers are stored and which columns are keys of
folders, packs small segments together, keeps the ledger in chunks, and lists the hash of each record. The segments of
older versions stay as they are.
"""

BRANCH = "main"
"""The branch with the commits of a store."""

ATTRIBUTE = "ridgestream"
"""The attribute of the root group that marks a repository as a store; it holds the root record."""

LEDGER = "ledger"
"""The group of the ledger."""

MODELS = "models"
"""The group that contains all models."""

_FIRST_HASHED = 4
_HASH = "sha256"


@dataclass(frozen=True)
class RootRecord:
    """What the root of a store says about it."""

    format_version: int
    """The version of its format."""
    hashes: Mapping[str, str] | None
    """The hash of each record, by its path; None in stores of format versions without hashes."""

    def check(self, path: str, digest: str | None) -> None:
        """Raise ValueError unless a record has the hash that is listed; `digest` is None for one that is absent."""
        if self.hashes is None:
            return
        listed = self.hashes.get(path)
        if listed == digest:
            return
        if digest is None:
            raise ValueError(f"{path} is listed, but absent")
        raise ValueError(
            f"{path} is not listed" if listed is None else f"{path} is not what was written: its hash differs"
        )


def mark_as_store(repository: "RepositoryClient") -> None:
    """Make the first commit of a store in an empty repository."""
    import zarr

    session = repository.writable_session(BRANCH)
    root = zarr.create_group(repository.store_of(session), zarr_format=ZARR_FORMAT)
    write_root_record(root, {})
    root.create_group(SEGMENTS)  # here, since only one of several forked sessions could create it later
    base = session.snapshot_id
    repository.publish(BRANCH, repository.flush(session, "Create the store"), base)


def read_root_record(root: "zarr.Group") -> RootRecord | None:
    """Return the root record, None if the group is not the root of a store; raises ValueError if it is damaged."""
    plain = root.attrs.asdict().get(ATTRIBUTE)
    if plain is None:
        return None
    version = plain.get("format_version") if isinstance(plain, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"its format version is {version!r:.100}")
    content = dict(cast("dict[str, Any]", plain))
    digest, hashes = content.pop(_HASH, None), content.get("hashes")
    if _FIRST_HASHED <= version <= FORMAT_VERSION and not (isinstance(hashes, dict) and digest == hash_plain(content)):
        raise ValueError("its list of records is not what was written")
    return RootRecord(version, cast("dict[str, str] | None", hashes))


def write_root_record(root: "zarr.Group", hashes: Mapping[str, str]) -> None:
    """Mark a group as the root of a store of this release's format, with these hashes of its records."""
    content = {"format_version": FORMAT_VERSION, "hashes": dict(hashes)}
    root.attrs[ATTRIBUTE] = cast("Any", {**content, _HASH: hash_plain(content)})


def check_listed(root: "zarr.Group", path: str, digest: str | None) -> None:
    """Raise ValueError unless a record of a store has the hash that its root lists; None for one that is absent."""
    record = read_root_record(root)
    if record is not None:
        record.check(path, digest)


def recall(root: "zarr.Group", path: str) -> object:
    """Return a record as it was last read or written through the same repository; None unless its hash is listed still.

    A record does not change, so one that the root of another snapshot lists with the same hash need not be read again.
    """
    digest, known = getattr(root.store, "known", {}).get(path, (None, None))
    record = read_root_record(root) if digest is not None else None
    return known if record is not None and record.hashes is not None and record.hashes.get(path) == digest else None


def remember(root: "zarr.Group", path: str, digest: str, record: object) -> None:
    """Keep a record with its hash for `recall`, in place of an earlier one of this path."""
    from ridgestream.stores.requests.limited_store import LimitedStore

    if isinstance(root.store, LimitedStore):
        root.store.known[path] = digest, record


def arrays_path(path: str) -> str:
    """Return the path under which the hash of a model's arrays is listed; that of its record is under its own path."""
    return f"{path}/arrays"


def list_hashes(root: "zarr.Group", hashes: Mapping[str, str]) -> None:
    """List these hashes at the root of a store, within a session, before the records are written.

    In a store of an earlier format, all other records are read, and listed with their hashes. Does nothing for a group
    that is not the root of a store.
    """
    import zarr

    # `root` may not know what others have listed in the session
    current = zarr.open_group(root.store, mode="r+", zarr_format=ZARR_FORMAT)
    record = read_root_record(current)
    if record is not None and (hashes or record.format_version < FORMAT_VERSION):
        listed = _hash_existing(current) if record.hashes is None else record.hashes
        write_root_record(current, {**listed, **hashes})


def check_models_listed(root: "zarr.Group", names: Collection[str]) -> None:
    """Raise ValueError unless the models of these names are those that are listed."""
    record = read_root_record(root)
    listed = record.hashes if record and record.hashes is not None else None
    if listed is not None:
        expected = {path.split("/")[1] for path in listed if path.startswith(f"{MODELS}/")}
        for name in sorted(expected ^ {*names}):
            raise ValueError(f"the model {name!r} is {'listed, but absent' if name in expected else 'not listed'}")


def _hash_existing(root: "zarr.Group") -> dict[str, str]:
    """Return the hashes of the records of an earlier format; one that is damaged has none, and is refused later."""
    hashes: dict[str, str] = {}
    for path in _paths(root):
        with suppress(StoreError), read_errors(path):
            check_metadata(root.store, path, members=True)
            group = cast("zarr.Group", root[path])
            arrays: dict[str, Any] = {name: read_array(array) for name, array in group.arrays()}
            hashes[path] = hash_plain(group.attrs.asdict())
            if path != LEDGER:
                hashes[arrays_path(path)] = hash_arrays(arrays)
    return hashes


def _paths(root: "zarr.Group") -> Iterator[str]:
    if LEDGER in root:
        yield LEDGER
    if MODELS in root:
        yield from (f"{MODELS}/{name}" for name in cast("zarr.Group", root[MODELS]).group_keys())
