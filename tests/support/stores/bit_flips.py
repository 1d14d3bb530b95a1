"""Flips of single bits in the files of a store, and what its readers then see."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import Arrays, list_models, require_model
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.segments.segments import Segment

Reader = Callable[[Path], object]


@contextmanager
def flipped(file: Path, bit: int) -> Iterator[None]:
    """Flip a bit of a file, counted from its beginning, and put the file back at the end."""
    content = file.read_bytes()
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    file.write_bytes(damaged)
    try:
        yield
    finally:
        file.write_bytes(content)


def newest(folder: Path) -> Path:
    """Return the file of a folder that was written last."""
    return max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)


def list_keys(folder: Path) -> list[str]:
    """Return the keys of all metadata and chunks in the last commit of a store."""

    async def list_all() -> list[str]:
        return sorted([key async for key in _zarr_store(folder).list()])

    return sync(list_all())


def read_raw(folder: Path, keys: Iterable[str]) -> list[bytes | None]:
    """Return what Icechunk gives for each key: all that can be read from the last commit of a store."""
    store = _zarr_store(folder)

    async def read_all() -> list[bytes | None]:
        buffers = [await store.get(key, default_buffer_prototype()) for key in keys]
        return [None if buffer is None else buffer.to_bytes() for buffer in buffers]

    return sync(read_all())


def _zarr_store(folder: Path) -> icechunk.IcechunkStore:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder))).readonly_session("main").store


def read_everything(folder: Path) -> object:
    """Return ledger, models, and the rows and facts of each segment, comparable by ==, as readers of a store do."""
    root = Store.open(StoreLocation(str(folder))).root()
    ledger = read_ledger(root)
    records = [require_model(root, name) for name in list_models(root)]
    models = [(replace(record, arrays={}), _as_bytes(record.arrays)) for record in records]
    return ledger, models, [_segment(root, entry.segment) for entry in ledger.entries]


def _segment(root: zarr.Group, number: int) -> object:
    segment = Segment.open(root, number)
    rows, facts = segment.read(0, segment.rows), segment.facts()
    arrays: dict[str, Any] = {"numeric": rows.numeric, "codes": rows.codes, "targets": rows.targets}
    arrays |= {"moments": facts.moments} | ({} if rows.weights is None else {"weights": rows.weights})
    tables = (facts.categories, facts.category_counts, facts.classes, facts.class_counts, facts.missing)
    return segment.rows, _as_bytes(arrays), tables


def _as_bytes(arrays: Arrays) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (str(array.dtype), array.shape, np.asarray(array).tobytes()) for name, array in arrays.items()}


def silent_flips(folder: Path, file: Path, bits: Iterable[int]) -> list[int]:
    """Return the bits of a file whose flip changes what is read from the store without a StoreError.

    A flip that leaves every byte that Icechunk returns as it was cannot change anything, which is quick to see.
    """
    keys, expected, silent = list_keys(folder), read_everything(folder), []
    raw = read_raw(folder, keys)
    for bit in bits:
        with flipped(file, bit):
            if not _leaves_raw(folder, keys, raw) and not _is_refused_or_equal(folder, expected):
                silent.append(bit)
    return silent


def _leaves_raw(folder: Path, keys: list[str], raw: list[bytes | None]) -> bool:
    try:
        return read_raw(folder, keys) == raw
    except Exception:  # noqa: BLE001 (the readers of a store are asked next)
        return False
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return False


def _is_refused_or_equal(folder: Path, expected: object) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):  # Zarr passes over what it does not recognize
            return read_everything(folder) == expected
    except StoreError:
        return True
