"""Contents of ingested segments: widths of columns, moments, sketches, and the weights of categories and classes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.stores.partitions import REQUEST, column_of, mixed_columns, write_mixed, write_partition
from support.stores.stores import (
    ingest_folder,
    new_store,
    segment_rows,
    stored_rows,
)

from ridgestream.pipeline.sums.moments import Moments
from ridgestream.pipeline.sums.quantile_sketch import SAMPLE_ROWS, Sketch, sample_indices
from ridgestream.stores.parquet import partitions
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.schema import SchemaRequest
from ridgestream.stores.segments.segments import Segment


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_mixed(tmp_path / "source", [300, 0, 500])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "store")


def width_of(tmp_path: Path, store: Store, x: Any, w: Any = None) -> np.dtype[Any]:
    """Ingest a column and return the type in which it is stored."""
    columns = column_of("x", pa.array(x)) | ({} if w is None else {"w": pa.array(w)})
    write_partition(tmp_path / "width" / "part.parquet", columns)
    ingest_folder(store, tmp_path / "width", replace(REQUEST, weight=None if w is None else "w"))
    rows = stored_rows(store)
    np.testing.assert_allclose(rows.numeric[:, 0], np.asarray(x, dtype=np.float64), rtol=2**-24, atol=0)
    return rows.numeric.dtype


NOISE = np.random.default_rng(0).standard_normal(1000)
SINGLE = {
    "noise about zero": NOISE,
    "small integers": np.arange(1000),
    "integers up to 2²⁴": np.array([2**24, 0, 1]),
    "booleans": NOISE > 0,
    "exact halves far out": 1e6 + 0.5 * np.arange(10),
    "a constant that float32 represents": np.full(10, 0.5),
    "values of float32": NOISE.astype(np.float32),
}
DOUBLE = {
    "noise about 10⁴": NOISE + 1e4,
    "noise about −10⁸": NOISE - 1e8,
    "integers beyond 2²⁴": 2**24 + np.arange(10),
    "a constant that float32 cannot represent": np.full(10, 0.1),
    "too large for float32": NOISE * 1e60,
    "too small for float32": NOISE * 1e-60,
    "so small that squares vanish": NOISE * 1e-200,
    "almost too small for float32": NOISE * 1e-42,
    "seconds since 1970 within a minute": 1_700_000_000 + 60 * np.abs(NOISE),
}


@pytest.mark.parametrize("x", SINGLE.values(), ids=SINGLE.keys())
def test_columns_that_float32_represents_well_enough(tmp_path: Path, store: Store, x: Any) -> None:
    assert width_of(tmp_path, store, x) == np.float32


@pytest.mark.parametrize("x", DOUBLE.values(), ids=DOUBLE.keys())
def test_columns_that_need_float64(tmp_path: Path, store: Store, x: Any) -> None:
    assert width_of(tmp_path, store, x) == np.float64


def test_one_column_that_needs_float64_widens_all(tmp_path: Path, store: Store) -> None:
    columns = {"a": NOISE, "b": NOISE + 1e4, "y": NOISE}
    write_partition(tmp_path / "source" / "part.parquet", columns)
    ingest_folder(store, tmp_path / "source", REQUEST)
    np.testing.assert_array_equal(stored_rows(store).numeric, np.column_stack([NOISE, NOISE + 1e4]))


def test_a_row_of_weight_zero_must_fit_into_float32_too(tmp_path: Path, store: Store) -> None:
    weights = np.ones(1000)
    weights[3] = 0.0
    assert width_of(tmp_path, store, np.where(weights == 0, 1e60, NOISE), weights) == np.float64


def test_widths_are_chosen_partition_by_partition(tmp_path: Path, store: Store) -> None:
    for i, x in enumerate((NOISE, NOISE + 1e4)):
        write_partition(tmp_path / "source" / f"{i}.parquet", {"x": x, "y": NOISE})
    ingest_folder(store, tmp_path / "source", REQUEST)
    root = store.root()
    assert [segment_rows(root, i).numeric.dtype for i in (0, 1)] == [np.float32, np.float64]


def test_a_segment_has_the_moments_of_its_rows_and_the_weights_of_its_categories(tmp_path: Path, store: Store) -> None:
    rng = np.random.default_rng(0)
    columns = mixed_columns(40_000) | {"w": rng.integers(0, 3, 40_000)}
    write_partition(tmp_path / "source" / "part.parquet", columns)
    ingest_folder(store, tmp_path / "source", replace(REQUEST, weight="w"))
    rows, facts = stored_rows(store), Segment.open(store.root(), 0).facts()
    assert rows.targets is not None
    assert rows.weights is not None
    expected = Moments.of(np.hstack([rows.numeric.astype(np.float64), rows.targets]), rows.weights)
    np.testing.assert_allclose(facts.moments, expected.as_array(), rtol=1e-6)
    counts = [rows.weights[rows.codes[:, 0] == code].sum() for code in range(len(facts.categories[0]))]
    assert facts.category_counts == (tuple(counts),)


@pytest.mark.parametrize("batch_rows", [700, partitions.BATCH_ROWS])
def test_a_segment_has_the_sketch_of_a_sample_of_its_rows_whatever_the_batches(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    monkeypatch.setattr(partitions, "BATCH_ROWS", batch_rows)
    rng, n = np.random.default_rng(0), 40_000
    x, y, w = rng.standard_normal(n), rng.standard_normal(n), rng.integers(0, 3, n)
    write_partition(tmp_path / "source" / "part.parquet", {"x": x, "y": y, "w": w})
    ingest_folder(store, tmp_path / "source", replace(REQUEST, weight="w"))
    sketch, indices = Segment.open(store.root(), 0).facts().sketch, sample_indices(n)
    assert sketch is not None
    expected = Sketch.of(np.column_stack([x, y])[indices], w[indices].astype(np.float64))
    np.testing.assert_array_equal(sketch, expected.as_array())
    assert len(indices) == SAMPLE_ROWS


def test_classes_may_appear_one_after_another(tmp_path: Path, store: Store) -> None:
    """One class is declared; all others count as the rest, whenever they first appear."""
    request = SchemaRequest("y", positive=1)
    for i, labels in enumerate(([0, 0], [0, 1], [2, 1], [1, 1])):
        write_partition(tmp_path / "source" / f"{i}.parquet", {"x": [1.0, 2.0], "y": labels})
    ingest_folder(store, tmp_path / "source", request)
    targets = stored_rows(store).targets
    assert targets is not None
    np.testing.assert_array_equal(targets[:, 0], [-1, -1, -1, 1, -1, 1, 1, 1])
