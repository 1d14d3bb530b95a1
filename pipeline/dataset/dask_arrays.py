"""The dataset as dask arrays, for a user's own analyses: all rows of the store in ledger order, read lazily."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.segments.checked_array import check_present
from ridgestream.stores.segments.segments import Segment, unmark_missing

if TYPE_CHECKING:
    import dask.array as da
    import zarr


@dataclass(frozen=True)
class DaskDataset:
    """The rows of a snapshot, as lazy arrays with the chunks of the store."""

    numeric: "da.Array"
    """Raw numeric features, shape (rows, n_numeric); NaN for a missing value."""
    codes: "da.Array"
    """Categorical features as indices into `categories`, shape (rows, n_categorical); −1 for a missing value."""
    targets: "da.Array"
    """Shape (rows, n_targets); ±1 for one class against the rest, indices into `classes` for multi-class targets."""
    weights: "da.Array | None"
    """Shape (rows,); None if the store has no weight column."""
    numeric_names: tuple[str, ...]
    """The names of the numeric features."""
    categorical_names: tuple[str, ...]
    """The names of the categorical features."""
    categories: tuple[tuple[str, ...], ...]
    """For each categorical feature, its values."""
    classes: tuple[Label, ...] = ()
    """In multi-class stores, the classes with a row of positive weight; rows of other classes have the target −1."""


def open_dask_arrays(store: Store, snapshot: str | None = None) -> DaskDataset:
    """Return the dataset of the last commit or of a snapshot; raises StoreError if nothing has been ingested yet."""
    import dask.array as da

    root = store.root(snapshot)
    ledger = read_ledger(root)
    if ledger.schema is None or not ledger.entries:
        raise StoreError(f"the store {store.location.text} holds no partition yet")
    segments = [Segment.open(root, entry.segment) for entry in ledger.entries if entry.rows] or [
        Segment.open(root, ledger.entries[0].segment)
    ]
    schema = ledger.schema

    def joined(name: str) -> Any:  # noqa: ANN401 (dask's functions have no types)
        return da.concatenate([_whole(segment, name) for segment in segments])

    codes = [_codes(segment, ledger.categories) for segment in segments]
    return DaskDataset(
        numeric=da.concatenate([_numeric(segment) for segment in segments]),
        codes=da.concatenate(codes),
        targets=da.concatenate([_targets(segment, ledger.classes) for segment in segments]),
        weights=joined("weights") if schema.weight else None,
        numeric_names=tuple(f.name for f in schema.numeric),
        categorical_names=tuple(f.name for f in schema.categorical),
        categories=ledger.categories,
        classes=ledger.classes,
    )


def _numeric(segment: Segment) -> Any:  # noqa: ANN401
    """Return the segment's numeric features, NaN for missing values."""
    import dask.array as da

    whole, missing = _whole(segment, "numeric"), segment.missing()
    return da.map_blocks(unmark_missing, whole, missing, dtype=whole.dtype) if missing else whole


def _targets(segment: Segment, classes: tuple[Label, ...]) -> Any:  # noqa: ANN401
    """Return the segment's targets, classes as indices into the store's."""
    import dask.array as da

    whole = _whole(segment, "targets")
    if not classes:
        return whole
    positions = {label: float(position) for position, label in enumerate(classes)}
    table = np.array([positions.get(label, -1.0) for label in segment.facts().classes])
    return da.map_blocks(_translate_classes, whole, table, dtype=np.float64)


def _codes(segment: Segment, categories: tuple[tuple[str, ...], ...]) -> Any:  # noqa: ANN401
    """Return the segment's codes as indices into the store's tables."""
    import dask.array as da

    if not categories:
        return da.zeros((segment.rows, 0), dtype=np.int64, chunks=(segment.chunk_rows, -1))
    maps = []
    for values, table in zip(categories, segment.facts().categories, strict=True):
        positions = {value: position for position, value in enumerate(values)}
        maps.append(np.array([*(positions[value] for value in table), -1], dtype=np.int64))
    return da.map_blocks(_translate, _whole(segment, "codes"), maps, dtype=np.int64)


def _whole(segment: Segment, name: str) -> Any:  # noqa: ANN401
    """Return an array of the segment whose chunks are checked when they are read."""
    import dask.array as da

    subject = f"{segment.group.path}/{name} of the store"
    array = cast("zarr.Array[Any]", segment.group[name])
    lazy = da.from_array(array, chunks=array.chunks, name=False)
    return da.map_blocks(
        check_present, lazy, subject=subject, dtype=lazy.dtype, meta=np.empty((0,) * lazy.ndim, lazy.dtype)
    )


def _translate_classes(codes: npt.NDArray[np.float64], table: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(table[codes.astype(np.int64)]) if len(table) else codes


def _translate(codes: npt.NDArray[np.int32], maps: list[npt.NDArray[np.int64]]) -> npt.NDArray[Any]:
    return np.column_stack([table[codes[:, i]] for i, table in enumerate(maps)])
