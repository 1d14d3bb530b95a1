"""Larger than memory without a job file: dask, Zarr and pyarrow give the bits of the same rows in memory."""

from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import zarr

from ridgestream import InputError, OnlineLSSVMClassifier, OnlineLSSVMRegressor, SparseKernelRegressor
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.estimators.kinds import KernelRegressor

PLAIN: dict[str, Any] = {"gamma": 0.5, "regularization": 1e-4, "max_basis": 20, "metric": "standardized"}


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2)) * [1.0, 20.0] + [0.0, 500.0]
    return X, np.sin(X[:, 0]) + (X[:, 1] - 500.0) / 20, rng.integers(0, 3, 1000).astype(float)


@pytest.fixture(scope="module")
def fitted(rows: tuple[Any, Any, Any]) -> SparseKernelRegressor:
    X, y, weights = rows
    return SparseKernelRegressor(**PLAIN).fit(X, y, sample_weight=weights)


def assert_same(one: SparseKernelRegressor, other: SparseKernelRegressor, X: Any) -> None:
    assert np.array_equal(one.predict(X), other.predict(X))
    assert np.array_equal(one.predict_interval(X), other.predict_interval(X))


@pytest.mark.samples(1)
@pytest.mark.parametrize("chunks", [(300, 2), (90, 1), (1000, 2)])
def test_dask_arrays_in_any_chunks(rows: tuple[Any, Any, Any], fitted: Any, chunks: tuple[int, int]) -> None:
    X, y, weights = rows
    lazy = da.from_array(X, chunks=chunks)
    other = SparseKernelRegressor(**PLAIN).fit(lazy, da.from_array(y, chunks=170), sample_weight=weights)
    assert_same(fitted, other, X)
    predicted = other.predict(lazy)
    assert isinstance(predicted, da.Array)
    assert (predicted.shape, predicted.dtype) == ((1000,), np.float64)
    assert np.allclose(predicted.compute(), fitted.predict(X), rtol=1e-12, atol=1e-12)
    bounds = other.predict_interval(lazy)
    assert bounds.shape == (1000, 2)
    assert np.allclose(bounds.compute(), fitted.predict_interval(X), rtol=1e-12, atol=1e-12)


def test_chunks_of_unknown_sizes_are_counted(rows: tuple[Any, Any, Any]) -> None:
    X, y, _ = rows
    lazy, target = da.from_array(X, chunks=(300, 2)), da.from_array(y, chunks=300)
    kept = lazy[:, 0] > 0
    other = OnlineLSSVMRegressor(**PLAIN).fit(lazy[kept], target[kept])
    here = X[:, 0] > 0
    one = OnlineLSSVMRegressor(**PLAIN).fit(X[here], y[here])
    assert np.array_equal(one.predict(X[here]), other.predict(X[here]))
    assert np.isnan(lazy[kept].shape[0])


def test_no_chunk_is_read_at_once_with_another(rows: tuple[Any, Any, Any]) -> None:
    X, y, _ = rows
    sizes = []

    def read(block: Any) -> Any:
        sizes.append(len(block))
        return block

    lazy = da.from_array(X, chunks=(100, 2)).map_blocks(read, meta=np.empty((0, 2)))
    SparseKernelRegressor(**PLAIN).fit(lazy, y)
    assert max(sizes) <= 100


def frame_of(rows: tuple[Any, Any, Any]) -> pd.DataFrame:
    X, y, _ = rows
    town = np.array(["b", "a", "c"])[(X[:, 1] > 490).astype(int) + (X[:, 1] > 510)]
    return pd.DataFrame({"a": X[:, 0], "town": town, "y": y})


@pytest.mark.filterwarnings("ignore")
def test_dask_frames_with_categories(rows: tuple[Any, Any, Any]) -> None:
    frame = frame_of(rows)
    lazy = dd.from_pandas(frame, npartitions=4, sort=False)
    one = SparseKernelRegressor(**PLAIN).fit(frame[["a", "town"]], frame["y"])
    other = SparseKernelRegressor(**PLAIN).fit(lazy[["a", "town"]], lazy["y"])
    assert_same(one, other, frame[["a", "town"]])
    predicted = other.predict(lazy[["a", "town"]]).compute()
    assert np.allclose(predicted, one.predict(frame[["a", "town"]]), rtol=1e-12, atol=1e-12)


def test_datasets_of_parquet_files_by_the_names_of_columns(rows: tuple[Any, Any, Any], tmp_path: Path) -> None:
    frame = frame_of(rows)
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "rows.parquet", row_group_size=300)
    dataset = ds.dataset(tmp_path)
    one = SparseKernelRegressor(**PLAIN).fit(frame[["a", "town"]], frame["y"])
    other = SparseKernelRegressor(**PLAIN).fit(dataset, "y")
    assert_same(one, other, frame[["a", "town"]])
    with pytest.raises(InputError, match="there is no 'z'"):
        SparseKernelRegressor(**PLAIN).fit(dataset, "z")


def test_zarr_arrays_and_classes(rows: tuple[Any, Any, Any]) -> None:
    X, y, _ = rows
    stored, labels = zarr.array(X, chunks=(300, 2)), np.where(y > 0, "up", "down")
    number = SparseKernelRegressor(**PLAIN).fit(stored, zarr.array(y, chunks=70))
    assert_same(SparseKernelRegressor(**PLAIN).fit(X, y), number, X)
    one, other = (OnlineLSSVMClassifier(**PLAIN).fit(each, labels) for each in (X, stored))
    assert np.array_equal(one.predict_proba(X), other.predict_proba(X))
    assert np.allclose(one.predict_proba(X), other.predict_proba(stored), rtol=1e-12, atol=1e-12)


def test_rows_in_pieces_are_scored(rows: tuple[Any, Any, Any], fitted: Any) -> None:
    X, y, weights = rows
    expected = fitted.score(X, y, sample_weight=weights)
    for kind in (lambda each: da.from_array(each, chunks=170), zarr.array):
        assert np.isclose(fitted.score(kind(X), kind(y), sample_weight=kind(weights)), expected, rtol=1e-12)
    labels = np.where(y > 0, "up", "down")
    classifier = OnlineLSSVMClassifier(**PLAIN).fit(zarr.array(X), labels)
    assert classifier.score(da.from_array(X, chunks=300), labels) == np.mean(classifier.predict(X) == labels)


def test_frames_of_small_files_whose_partitions_an_optimizer_joins(rows: tuple[Any, Any, Any], tmp_path: Path) -> None:
    frame = frame_of(rows)
    for number in range(4):
        frame[number * 250 : (number + 1) * 250].to_parquet(tmp_path / f"{number}.parquet")
    lazy = dd.read_parquet(tmp_path)
    one = SparseKernelRegressor(**PLAIN).fit(frame[["a", "town"]], frame["y"])
    other = SparseKernelRegressor(**PLAIN).fit(lazy.drop(columns="y"), lazy["y"])
    assert_same(one, other, frame[["a", "town"]])
    assert np.isclose(other.score(lazy.drop(columns="y"), lazy["y"]), one.score(frame[["a", "town"]], frame["y"]))
    again = SparseKernelRegressor(**PLAIN).fit(lazy.drop(columns="y"), lazy["y"].repartition(npartitions=1))
    assert_same(one, again, frame[["a", "town"]])


def test_a_dataset_is_predicted_and_scored_with_its_target_among_its_columns(
    rows: tuple[Any, Any, Any], tmp_path: Path
) -> None:
    frame = frame_of(rows)
    pq.write_table(pa.Table.from_pandas(frame[["y", "town", "a"]]), tmp_path / "rows.parquet", row_group_size=300)
    dataset = ds.dataset(tmp_path)
    one = SparseKernelRegressor(**PLAIN).fit(frame[["a", "town"]], frame["y"])
    assert np.allclose(one.predict(dataset), one.predict(frame[["a", "town"]]), rtol=1e-12, atol=1e-12)
    assert np.isclose(one.score(dataset, "y"), one.score(frame[["a", "town"]], frame["y"]))
    pq.write_table(pa.Table.from_pandas(frame[["y", "a"]]), tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match="town"):
        one.predict(ds.dataset(tmp_path))


def test_targets_by_name_are_those_of_a_dataset_alone(rows: tuple[Any, Any, Any]) -> None:
    frame = frame_of(rows)
    for X in (frame, dd.from_pandas(frame, npartitions=2)):
        with pytest.raises(InputError, match="y is the text 'y': only a pyarrow dataset has columns by name"):
            SparseKernelRegressor(**PLAIN).fit(X, "y")


@pytest.mark.parametrize(
    ("blocks", "message"),
    [([], "the iterator has no block"), ([pd.DataFrame({"a": [1.0], "b": [2.0]})], "it is DataFrame")],
)
def test_an_iterator_without_blocks_or_of_other_things_is_refused(blocks: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        OnlineLSSVMRegressor(**PLAIN).fit(iter(blocks))


def test_other_columns_are_refused_before_a_piece_is_read(rows: tuple[Any, Any, Any], fitted: Any) -> None:
    X, y, _ = rows
    with pytest.raises(ValueError, match="X has 1 features, but SparseKernelRegressor is expecting 2 features"):
        fitted.predict(da.from_array(X, chunks=300)[:, :1])
    frame = frame_of(rows)
    one = SparseKernelRegressor(**PLAIN).fit(frame[["a", "town"]], y)
    with pytest.raises(ValueError, match="unseen at fit time"):
        one.predict(dd.from_pandas(frame, npartitions=2))


def test_targets_of_another_length_are_refused(rows: tuple[Any, Any, Any]) -> None:
    with pytest.raises(InputError, match="y has 999 rows, X has 1000"):
        SparseKernelRegressor(**PLAIN).fit(da.from_array(rows[0], chunks=300), rows[1][:-1])


def test_blocks_of_an_iterator_are_learned_as_they_come(rows: tuple[Any, Any, Any]) -> None:
    X, y, _ = rows
    blocks = ((X[start : start + 250], y[start : start + 250]) for start in range(0, 1000, 250))
    one, other = OnlineLSSVMRegressor(**PLAIN).fit(blocks), OnlineLSSVMRegressor(**PLAIN)
    for start in range(0, 1000, 250):
        other.partial_fit(X[start : start + 250], y[start : start + 250])
    assert np.array_equal(one.predict(X), other.predict(X))
    with pytest.raises(ValueError, match="an iterator of blocks"):
        SparseKernelRegressor(**PLAIN).fit(iter([(X, y)]))


def test_the_targets_of_a_piece_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read, X = [], KernelRegressor._read_targets, np.random.default_rng(0).normal(size=(20_000, 1))

    def count(self: KernelRegressor, y: Any) -> Floats:
        reads.append(len(y))
        return read(self, y)

    monkeypatch.setattr(KernelRegressor, "_read_targets", count)
    OnlineLSSVMRegressor(gamma=1.0, regularization=1e-5, metric="standardized", max_basis=5).fit(X, X[:, 0])
    assert reads == [20_000]
