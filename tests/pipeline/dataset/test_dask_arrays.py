"""The dataset as dask arrays: the ingested rows in ledger order, with categories of the whole store."""

import asyncio
import pickle
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.stores.partitions import REQUEST, mixed_columns, write_mixed, write_partition
from support.stores.stores import ingest_folder, new_store, stored_rows

from ridgestream.pipeline.dataset.dask_arrays import DaskDataset, open_dask_arrays
from ridgestream.stores.catalog.expiry import clean
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.schema import SchemaRequest
from ridgestream.stores.segments import segment_format
from ridgestream.stores.segments.pack_merging import drop_segments


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "store")


def compute(*lazy: Any) -> Any:
    return [array.compute(scheduler="synchronous") for array in lazy]


def labels_of(dataset: DaskDataset, column: int) -> list[str]:
    (codes,) = compute(dataset.codes)
    return [dataset.categories[column][code] for code in codes[:, column]]


@pytest.mark.parametrize("sizes", [[300, 0, 50], [0, 7], [7, 0], [0], [0, 0]], ids=str)
def test_the_arrays_hold_the_ingested_rows(tmp_path: Path, store: Store, sizes: list[int]) -> None:
    ingest_folder(store, write_mixed(tmp_path / "source", sizes), REQUEST)
    dataset, rows = open_dask_arrays(store), stored_rows(store)
    numeric, targets = compute(dataset.numeric, dataset.targets)
    np.testing.assert_array_equal(numeric, rows.numeric)
    np.testing.assert_array_equal(targets, rows.targets)
    assert dataset.weights is None
    assert dataset.numeric_names == ("length", "count", "flag", "seen")
    assert dataset.categorical_names == ("colour",)
    assert dataset.codes.shape == (sum(sizes), 1)
    (codes,) = compute(dataset.codes)
    assert codes.shape == dataset.codes.shape
    assert codes.dtype == dataset.codes.dtype


def test_arrays_can_be_read_completely_after_a_clean(tmp_path: Path, store: Store) -> None:
    """Every chunk is read after the commit of the arrays was superseded and would have been deleted."""
    ingest_folder(store, write_mixed(tmp_path / "source", [300, 50]), REQUEST)
    dataset, before = open_dask_arrays(store), stored_rows(store)
    with store.write("Delete all segments") as writing:
        drop_segments(writing.root, [0, 1])
    assert clean(Store.open(store.location), timedelta(0)).readers >= 1
    numeric, targets = compute(dataset.numeric, dataset.targets)
    np.testing.assert_array_equal(numeric, before.numeric)
    np.testing.assert_array_equal(targets, before.targets)
    del dataset
    assert clean(Store.open(store.location), timedelta(0)).freed_bytes > before.numeric.nbytes // 2


def test_categories_are_those_of_the_store_not_of_the_segment(tmp_path: Path, store: Store) -> None:
    source = tmp_path / "source"
    colours = (["b", "a"], ["c", "b"], ["a", "d"])
    for i, values in enumerate(colours):
        columns = mixed_columns(30, seed=i, colours=values)
        columns["shape"] = pa.array([values[::-1][j % 2] for j in range(30)])
        write_partition(source / f"{i}.parquet", columns)
    ingest_folder(store, source, REQUEST)
    dataset = open_dask_arrays(store)
    table = pa.concat_tables([pq.read_table(source / f"{i}.parquet") for i in range(3)])
    assert labels_of(dataset, 0) == table["colour"].to_pylist()
    assert labels_of(dataset, 1) == table["shape"].to_pylist()


def test_weights_and_mixed_single_and_double_precision(tmp_path: Path, store: Store) -> None:
    noise = np.random.default_rng(0).standard_normal(40)
    for i, x in enumerate((noise, noise + 1e4)):
        write_partition(tmp_path / "source" / f"{i}.parquet", {"x": x, "y": noise, "w": np.arange(40) % 3})
    ingest_folder(store, tmp_path / "source", replace(REQUEST, weight="w"))
    dataset = open_dask_arrays(store)
    numeric, weights, codes = compute(dataset.numeric, dataset.weights, dataset.codes)
    assert numeric.dtype == dataset.numeric.dtype == np.float64
    np.testing.assert_array_equal(numeric, np.concatenate([noise.astype(np.float32), noise + 1e4])[:, np.newaxis])
    np.testing.assert_array_equal(weights, np.tile(np.arange(40) % 3, 2))
    assert codes.shape == (80, 0)


def test_chunks_are_those_of_the_store_and_are_computed_one_by_one(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_format, "CHUNK_BYTES", 1)
    ingest_folder(store, write_mixed(tmp_path / "source", [600, 300]), REQUEST)
    dataset, rows = open_dask_arrays(store), stored_rows(store)
    assert dataset.numeric.chunks[0] == dataset.codes.chunks[0] == dataset.targets.chunks[0] == (256, 256, 88, 256, 44)
    mean, tail = compute(dataset.numeric.mean(axis=0), dataset.numeric[550:620])
    np.testing.assert_allclose(mean, rows.numeric.mean(axis=0))
    np.testing.assert_array_equal(tail, rows.numeric[550:620])


def test_a_graph_holds_locations_not_rows(tmp_path: Path, store: Store) -> None:
    ingest_folder(store, write_mixed(tmp_path / "source", [20_000]), REQUEST)
    dataset = open_dask_arrays(store)
    graph = pickle.dumps(dict(da.concatenate([dataset.numeric, dataset.targets], axis=1).dask))
    assert len(graph) < 20_000


def test_an_older_snapshot_has_the_older_rows_and_categories(tmp_path: Path, store: Store) -> None:
    source = tmp_path / "source"
    write_partition(source / "0.parquet", mixed_columns(10, colours=["a"]))
    ingest_folder(store, source, REQUEST)
    before = store.snapshot()
    write_partition(source / "1.parquet", mixed_columns(10, colours=["b"]))
    ingest_folder(store, source, REQUEST)
    assert open_dask_arrays(store).numeric.shape[0] == 20
    old = open_dask_arrays(store, before)
    assert (old.numeric.shape[0], old.categories) == (10, (("a",),))


def test_classes_are_plus_and_minus_one(tmp_path: Path, store: Store) -> None:
    write_partition(tmp_path / "source" / "0.parquet", {"x": [1.0, 2.0, 3.0], "y": [5, 2, 5]})
    ingest_folder(store, tmp_path / "source", SchemaRequest("y", positive=2))
    (targets,) = compute(open_dask_arrays(store).targets)
    np.testing.assert_array_equal(targets, [[-1.0], [1.0], [-1.0]])


def test_an_empty_store_has_no_arrays(store: Store) -> None:
    with pytest.raises(StoreError, match=r"the store .*/store holds no partition yet"):
        open_dask_arrays(store)


@pytest.mark.parametrize("name", ["numeric", "codes", "targets"])
def test_a_missing_chunk_raises_instead_of_reading_a_fill_value(tmp_path: Path, store: Store, name: str) -> None:
    ingest_folder(store, write_mixed(tmp_path / "source", [100]), REQUEST)
    with store.write("lose a chunk") as writing:
        asyncio.run(writing.session.store.delete(f"segments/000000-000000/{name}/c/0/0"))
    dataset = open_dask_arrays(store)
    with pytest.raises(
        StoreError, match=f"segments/000000-000000/{name} of the store holds damaged data: a chunk is missing"
    ):
        compute(getattr(dataset, name))
