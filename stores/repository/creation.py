"""The beginning of a repository, which several may try at once, and which a kill may cut off.

Icechunk begins by a snapshot of nothing, under a name that is the same in every repository, and then by the branch that
points to it. In an object store the one may be there without the other: another is at it just now, or was killed.
Icechunk itself takes no prefix that holds anything.
"""

from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.files.paths import find_objects
from ridgestream.stores.repository.lease import FIRST_SNAPSHOT, LEASE_SECONDS, LOOK_SECONDS
from ridgestream.stores.repository.store_location import StoreLocation

if TYPE_CHECKING:
    import icechunk

_CUT_OFF = {f"snapshots/{FIRST_SNAPSHOT}", f"transactions/{FIRST_SNAPSHOT}"}
"""All that there is in a prefix where a beginning was cut off."""


def begin_repository(location: StoreLocation) -> "icechunk.Repository":
    """Return the repository at the location; make an empty one if there is none. Of several at once, one makes it.

    What a kill has left is cleared away once it has stood still for LEASE_SECONDS. Raises StoreError where the place is
    taken by something else, IcechunkError where it cannot be written.
    """
    import icechunk

    storage = location.storage()
    give_up, cleared = monotonic() + LEASE_SECONDS, False
    while not icechunk.Repository.exists(storage):
        try:
            return _create(storage)
        except icechunk.IcechunkError:
            names = _objects(location)
            if icechunk.Repository.exists(storage):
                break
            if cleared or not names:
                raise
            if not names <= _CUT_OFF:
                raise StoreError(
                    f"{location.text} holds other objects and is not a Ridgestream store; choose another prefix, or "
                    "restore refs/branch.main/ref.json if it was one"
                ) from None
            if monotonic() >= give_up:
                _clear_away(location)
                cleared = True
            else:
                sleep(LOOK_SECONDS)
    return icechunk.Repository.open(storage)


def _create(storage: "icechunk.Storage") -> "icechunk.Repository":
    import icechunk

    version: dict[str, Any] = {} if icechunk.__version__.startswith("1.") else {"spec_version": 1}
    return icechunk.Repository.create(storage, **version)


def _clear_away(location: StoreLocation) -> None:
    """Delete what a beginning has left, unless there is more by now."""
    if _objects(location) <= _CUT_OFF:
        location.prefix.files.delete_dir(location.prefix.path)


def _objects(location: StoreLocation) -> set[str]:
    """Return the names of all objects of a place in S3, from its root; of other places, nothing."""
    if location.folder is not None or not location.prefix.parsed.is_s3:
        return set()
    return {name for name, _, _ in find_objects(location.prefix)}
