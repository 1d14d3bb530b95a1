"""What a store may ask of who reads it, looked at before anything is parsed or allocated: it may be a stranger's.

Metadata is JSON of a bounded size. Arrays hold numbers, are compressed by the codecs that this release writes, and fit
in memory as far as they are read. Nothing in a store is code; no type or codec that would unpickle something is read.
"""

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.segments.available_memory import available_bytes

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

MOST_METADATA_BYTES = 64 * 2**20
"""What the JSON of a group or an array may take: a ledger of some hundred thousand partitions."""

MOST_ROWS = 2**40
"""Rows of an array."""

MOST_CHUNK_BYTES = 2**31
"""What a chunk may take in memory."""

_DTYPES = {"float32", "float64", "int32", "int64"}
_CODECS = {"BytesCodec", "ZstdCodec"}
_UNASKED_BYTES = 32 * 2**20


def check_metadata(store: "Store", path: str, *, members: bool = False) -> None:
    """Raise StoreError if the JSON of a node is too large to be parsed; with `members`, also that of its members."""
    from zarr.core.sync import sync

    for name, size in sync(_sizes(store, path, members=members)).items():
        if size > MOST_METADATA_BYTES:
            raise StoreError(
                f"{name or 'the root'} of the store has {size:,} bytes of metadata; at most {MOST_METADATA_BYTES:,} "
                "are read: it is damaged, or was not made by ridgestream"
            )


def check_array(array: "zarr.Array[Any]", rows: int | None = None) -> None:
    """Raise StoreError unless it holds numbers in known codecs, and so many rows of it (all if None) fit in memory."""
    place = f"{array.path} of the store"
    codecs = {type(codec).__name__ for codec in cast("Any", array.metadata).codecs}
    if str(array.dtype) not in _DTYPES or not codecs <= _CODECS:
        raise StoreError(
            f"{place} holds {array.dtype} in the codecs {', '.join(sorted(codecs))}; only numbers "
            f"({', '.join(sorted(_DTYPES))}) by {', '.join(sorted(_CODECS))} are read: it was not made by ridgestream"
        )
    row_bytes = int(np.dtype(array.dtype).itemsize) * _product(array.shape[1:])
    held = row_bytes * (_product(array.shape[:1]) if rows is None else rows)
    chunk = int(np.dtype(array.dtype).itemsize) * _product(array.chunks)
    if max(array.shape, default=0) > MOST_ROWS or chunk > MOST_CHUNK_BYTES:
        raise StoreError(f"{place} claims the shape {array.shape} in chunks of {array.chunks}: it is damaged")
    if held > _UNASKED_BYTES and held > (free := available_bytes()):
        raise StoreError(
            f"{place} claims the shape {array.shape}, of which {held:,} bytes are to be read; {free:,} are free: it is "
            "damaged, or this machine is too small for it"
        )


def _product(sizes: tuple[int, ...]) -> int:
    product = 1
    for size in sizes:
        product *= int(size)
    return product


async def _sizes(store: "Store", path: str, *, members: bool) -> dict[str, int]:
    names = [path]
    if members:
        names += [f"{path}/{name}" async for name in store.list_dir(path) if name != "zarr.json"]
    return {name: await _size(store, f"{name}/zarr.json".lstrip("/")) for name in names}


async def _size(store: "Store", key: str) -> int:
    import icechunk

    try:
        return await store.getsize(key)
    except (FileNotFoundError, KeyError, icechunk.IcechunkError):  # who opens it finds out
        return 0
