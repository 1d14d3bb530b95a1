"""The arrays of a store: chunked by whole rows, with a checksum and a fill value that no intact array contains.

Zarr reads a chunk that is not listed as the fill value. All stored values are finite, so NaN, or for integers the
smallest number of the dtype, means that a chunk was never written or is lost. Arrays of bytes hold text without zeros.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import read_errors
from ridgestream.stores.schema.record_hash import hash_plain
from ridgestream.stores.segments.size_limits import check_array

if TYPE_CHECKING:
    import zarr

_HASH = "sha256"

_COMPARED_BYTES = 32 * 2**20
"""Bytes of rows that are read at once to be compared with new ones."""

Values = TypeVar("Values", bound=npt.NDArray[Any])


def create_array(
    group: "zarr.Group",
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    chunk_rows: int,
    *,
    growing: bool = False,
    dimensions: Sequence[str] | None = None,
) -> "zarr.Array[Any]":
    """Create an array chunked by whole rows, compressed by zstd with a checksum that detects damage.

    One that is `growing` will be resized: its chunks have `chunk_rows` rows even if it is shorter now. Its dimensions
    have the names by which xarray opens it; without any, they are its own.
    """
    from zarr.codecs import ZstdCodec

    most = chunk_rows if growing else min(max(shape[:1], default=1), chunk_rows)
    chunks = tuple(max(1, most if axis == 0 else n) for axis, n in enumerate(shape))
    codec = ZstdCodec(level=1, checksum=True)
    fill = _fill_value(np.dtype(dtype))
    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        filters=None,
        compressors=[codec],
        fill_value=fill,
        dimension_names=dimensions or [f"{name}_{axis}" for axis in range(len(shape))],
        config={"order": "C", "write_empty_chunks": False},
    )


def read_array(array: "zarr.Array[Any]", start: int | None = None, stop: int | None = None) -> npt.NDArray[Any]:
    """Return the rows from `start` up to `stop`, or all; raises StoreError if a chunk of them is missing or damaged."""
    subject = f"{array.path} of the store"
    with read_errors(subject):
        check_array(array, _count_rows(array, start, stop))
        values = np.asarray(array[start:stop] if array.ndim else array[...], order="C")  # Zarr's setting may say F
        return check_present(values, subject)


def write_changed_rows(group: "zarr.Group", name: str, values: npt.NDArray[Any]) -> None:
    """Write those rows of an array of the group, a chunk each, whose bits differ; all of them if it cannot be read."""
    array = cast("zarr.Array[Any]", group[name])
    step = max(1, _COMPARED_BYTES // max(1, values[:1].nbytes))
    for start in range(0, len(values), step):
        for row in _changed_rows(array, start, values[start : start + step]):
            array[start + row] = values[start + row]


def _changed_rows(array: "zarr.Array[Any]", start: int, values: npt.NDArray[Any]) -> list[int]:
    try:
        changed = _as_bits(read_array(array, start, start + len(values))) != _as_bits(values)
    except StoreError:
        return [*range(len(values))]
    return np.flatnonzero(changed.any(axis=1)).tolist()


def _as_bits(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(values).view(np.int64)


def seal_group(group: "zarr.Group", names: Iterable[str]) -> None:
    """Keep a hash of what a group says of itself, once it is written: attributes, and those of its arrays by name."""
    group.attrs[_HASH] = hash_plain(_description(group, names))


def check_sealed(group: "zarr.Group", names: Iterable[str]) -> None:
    """Raise ValueError unless a group has the arrays and attributes that it was sealed with, and the same path.

    Groups of earlier formats were not sealed. Chunks have checksums of their own.
    """
    digest = group.attrs.get(_HASH)
    if digest is not None and digest != hash_plain(_description(group, names)):
        raise ValueError(f"{group.path} is not what was written: its hash differs")


def _description(group: "zarr.Group", names: Iterable[str]) -> dict[str, Any]:
    arrays = {name: cast("zarr.Array[Any]", group[name]) for name in names if name in group}
    return {
        "path": group.path,
        "attributes": {name: value for name, value in group.attrs.asdict().items() if name != _HASH},
        "arrays": {name: [str(array.dtype), array.shape, array.chunks] for name, array in arrays.items()},
    }


def _count_rows(array: "zarr.Array[Any]", start: int | None, stop: int | None) -> int | None:
    """Return the number of rows from `start` up to `stop`; None for an array without rows."""
    return len(range(*slice(start, stop).indices(int(array.shape[0])))) if array.ndim else None


def check_present(values: Values, subject: str) -> Values:
    """Return the values; raises StoreError if one of them is the fill value."""
    fill = _fill_value(values.dtype)
    absent = np.isnan(values) if isinstance(fill, float) else np.equal(values, fill)
    if absent.any():
        raise StoreError(f"{subject} holds damaged data: a chunk is missing; restore it from a copy")
    return values


def _fill_value(dtype: "np.dtype[Any]") -> int | float:
    return float("nan") if dtype.kind == "f" else int(np.iinfo(cast("Any", dtype)).min)
