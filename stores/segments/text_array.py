"""Text in chunked arrays of bytes: lists that grow with a store, of which a commit rewrites only what has changed.

Attributes of a group are part of every snapshot; chunks are written once. The text is JSON in ASCII, one line an item,
so that no byte is zero, the fill value by which a missing chunk is recognized.
"""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ridgestream.stores.segments.checked_array import create_array, read_array

if TYPE_CHECKING:
    import zarr

TEXT_CHUNK_BYTES = 32 * 2**10
"""Bytes per chunk: the most that is rewritten when a line is appended."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


def write_lines(group: "zarr.Group", name: str, items: Iterable[Any]) -> None:
    """Write items of plain JSON, one a line; of an array that exists, only the chunks from the first change on."""
    values = np.frombuffer("".join(f"{_encode(item)}\n" for item in items).encode(), np.uint8)
    if name not in group:
        array, same = create_array(group, name, values.shape, "uint8", TEXT_CHUNK_BYTES, growing=True), 0
    else:
        array = cast("zarr.Array[Any]", group[name])
        same = _count_same(read_array(array), values)
        array.resize(values.shape)
    start = same // TEXT_CHUNK_BYTES * TEXT_CHUNK_BYTES
    if start < len(values):
        array[start:] = values[start:]


def read_lines(group: "zarr.Group", name: str) -> list[Any]:
    """Return the items; raises StoreError for a missing or damaged chunk, ValueError for text that is not JSON."""
    text = read_array(cast("zarr.Array[Any]", group[name])).tobytes().decode("ascii")
    return cast("list[Any]", json.loads(f"[{','.join(text.splitlines())}]"))


def _count_same(before: npt.NDArray[np.uint8], after: npt.NDArray[np.uint8]) -> int:
    """Return how many bytes at the beginning are the same."""
    n = min(len(before), len(after))
    different = before[:n] != after[:n]
    return int(np.argmax(different)) if different.any() else n
