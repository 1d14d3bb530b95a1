"""A probe whether the server of an object store honours conditional requests, on which commits and leases depend.

A server, or a proxy in front of it, that ignores If-None-Match or If-Match lets every writer win: commits would be lost
without a word. The probe makes an empty repository, whose configuration Icechunk writes by conditional requests, too,
lets two clients that know the same version write it, and deletes all of it: some thirty requests. A branch of the store
records by which endpoint it was probed, so that later nights ask for one object only.
"""

import hashlib
from contextlib import suppress
from itertools import count
from uuid import uuid4

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.client import RepositoryClient
from ridgestream.stores.repository.store_location import StoreLocation

PROBES = ".probe-"
"""Prefix of the names of the probe's repositories."""

_RECORD = "writer.probed-"


def ensure_conditional_writes(repository: RepositoryClient, location: StoreLocation) -> None:
    """Probe the server of a store, unless it was probed by this endpoint.

    Raises StoreError, with the remedy, if the server ignores conditions.
    """
    import icechunk

    if not _is_s3(location):
        return
    try:
        repository.lookup_branch(_record(location))
    except icechunk.IcechunkError:
        check_conditional_writes(location)
        record_conditional_writes(repository, location)


def record_conditional_writes(repository: RepositoryClient, location: StoreLocation) -> None:
    """Record that the server honours conditions."""
    if _is_s3(location):
        repository.create_branch(_record(location), repository.first_snapshot())


def check_conditional_writes(location: StoreLocation, *, beside: bool = False) -> None:
    """Raise StoreError if the server of an S3 location ignores conditions; leaves nothing behind.

    The probe is made below the location, or `beside` it, where there is no store yet.
    """
    if not _is_s3(location):
        return
    name = f"{'' if beside and location.prefix.parsed.key else '/'}{PROBES}{uuid4().hex[:12]}"
    probe = StoreLocation(f"{location.text}{name}", location.settings)
    try:
        ignored = _ignored_conditions(probe)
    finally:
        with suppress(OSError):
            probe.prefix.files.delete_dir(probe.prefix.path)
    if ignored:
        server = location.settings.endpoint or "the server"
        raise StoreError(
            f"the store {location.text}: {server} ignores {' and '.join(ignored)}, by which one of several writers is "
            "refused, so that commits could be lost: let the proxy in front of it pass these headers on, or use a "
            "server that honours them, as Amazon S3, MinIO, Ceph and R2 do"
        )


def _ignored_conditions(probe: StoreLocation) -> list[str]:
    """Return the headers that the server ignores: a first write must exclude a second one, and a change another."""
    RepositoryClient.create(probe.storage(), probe.limit)
    ignored, contents = list[str](), count(1)  # an ETag is a hash of the contents, so each is another
    for header in ("If-None-Match", "If-Match"):
        first, second = (RepositoryClient.open(probe.storage(), probe.limit) for _ in range(2))
        if first.save_config(next(contents)) and second.save_config(next(contents)):
            ignored.append(header)
    return ignored


def _record(location: StoreLocation) -> str:
    """Return the branch that records a probe by the location's endpoint."""
    return _RECORD + hashlib.sha256((location.settings.endpoint or "").encode()).hexdigest()[:12]


def _is_s3(location: StoreLocation) -> bool:
    return location.folder is None and location.prefix.parsed.is_s3
