"""Limits checked before metadata is parsed or memory is allocated, since a store may be untrusted.

Metadata is JSON of bounded size. Arrays hold numbers, compressed by the codecs that this release writes, and the part
that is read fits in memory. Nothing in a store is code; no type or codec that would unpickle something is read.
"""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.segments.available_memory import available_bytes

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

MAX_METADATA_BYTES = 64 * 2**20
"""Size limit of the JSON of a group or array: enough for a model of some hundred thousand partitions."""

MAX_ROWS = 2**40
"""Largest number of rows of an array."""

MAX_CHUNK_BYTES = 2**31
"""Largest size of a chunk in memory."""

_DTYPES = {"float32", "float64", "int32", "int64", "uint8"}
_CODECS = {"BytesCodec", "ZstdCodec"}
_SMALL_BYTES = 32 * 2**20


def check_metadata(store: "Store", path: str, *, members: bool | Sequence[str] = False) -> None:
    """Raise StoreError if the JSON of a node, or that of one of its members, is too large to parse.

    `members` is True for all of them, which are listed at the cost of all nodes of a snapshot, or gives their names.
    """
    from zarr.core.sync import sync

    for name, size in sync(_sizes(store, path, members)).items():
        if size > MAX_METADATA_BYTES:
            raise StoreError(
                f"{name or 'the root'} of the store has {size:,} bytes of metadata; at most {MAX_METADATA_BYTES:,} "
                "are read: it is damaged, or was not made by ridgestream"
            )


def check_array(array: "zarr.Array[Any]", rows: int | None = None) -> None:
    """Raise StoreError unless an array holds numbers in known codecs and `rows` rows (None: all) fit in memory."""
    location = f"{array.path} of the store"
    codecs = {type(codec).__name__ for codec in cast("Any", array.metadata).codecs}
    if str(array.dtype) not in _DTYPES or not codecs <= _CODECS:
        raise StoreError(
            f"{location} holds {array.dtype} in the codecs {', '.join(sorted(codecs))}; only numbers "
            f"({', '.join(sorted(_DTYPES))}) by {', '.join(sorted(_CODECS))} are read: it was not made by ridgestream"
        )
    item_bytes = int(np.dtype(array.dtype).itemsize)
    row_bytes = item_bytes * prod(map(int, array.shape[1:]))
    read_bytes = row_bytes * (prod(map(int, array.shape[:1])) if rows is None else rows)
    if max(array.shape, default=0) > MAX_ROWS or item_bytes * prod(map(int, array.chunks)) > MAX_CHUNK_BYTES:
        raise StoreError(f"{location} claims the shape {array.shape} in chunks of {array.chunks}: it is damaged")
    if read_bytes > _SMALL_BYTES and read_bytes > (free := available_bytes()):
        raise StoreError(
            f"{location} claims the shape {array.shape}, of which {read_bytes:,} bytes are to be read; {free:,} are "
            "free: it is damaged, or this machine is too small for it"
        )


async def _sizes(store: "Store", path: str, members: bool | Sequence[str]) -> dict[str, int]:
    names = [path]
    if members is True:
        names += [f"{path}/{name}" async for name in store.list_dir(path) if name != "zarr.json"]
    elif members:
        names += [f"{path}/{name}" for name in members]
    return {name: await _size(store, f"{name}/zarr.json".lstrip("/")) for name in names}


async def _size(store: "Store", key: str) -> int:
    import icechunk

    try:
        return await store.getsize(key)
    except (FileNotFoundError, KeyError, icechunk.IcechunkError):  # opening the node reports it
        return 0
