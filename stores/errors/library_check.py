"""Whether the libraries of this installation can read at all: before they are believed about a store's damage."""

from ridgestream.stores.errors.zarr_settings import ZARR_FORMAT

_VALUES = [1.0, 2.0]


def failing_library() -> str:
    """Return how the libraries fail at a sound group with one array, written in memory; empty if they do not."""
    try:
        return "" if _round_trip() == (_VALUES, {"sound": True}) else "other values are read than were written"
    except Exception as error:  # noqa: BLE001 - whatever a library raises
        return f"{type(error).__name__}: {error}"


def _round_trip() -> tuple[object, dict[str, object]]:
    import numpy as np
    import zarr
    from zarr.codecs import ZstdCodec
    from zarr.storage import MemoryStore

    store = MemoryStore()
    group = zarr.create_group(store, zarr_format=ZARR_FORMAT, attributes={"sound": True})
    codec = ZstdCodec(level=1, checksum=True)
    group.create_array("array", shape=(2,), dtype="float64", chunks=(1,), compressors=[codec])[:] = np.array(_VALUES)
    group = zarr.open_group(store, mode="r", zarr_format=ZARR_FORMAT)
    array = group["array"]
    values = np.asarray(array[...]) if isinstance(array, zarr.Array) else np.empty(0)
    return values.tolist(), dict(group.attrs.asdict())
