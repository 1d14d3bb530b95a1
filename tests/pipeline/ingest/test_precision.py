"""How numbers are stored: one rule for all partitions of a store, which the first rows or the job decide for good."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.stores.partitions import REQUEST, write_partition
from support.stores.stores import ingest_folder, ledger_of, new_store, stored_rows

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.parquet.partitions import BATCH_ROWS
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.schema import SchemaRequest
from ridgestream.stores.segments.segments import Segment

Floats = npt.NDArray[np.float64]

NOISE = np.random.default_rng(0).standard_normal(1000)
OUTLIER = np.where(np.arange(1000) == 7, 1e9, NOISE)
WHOLE = np.arange(1000.0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "store")


def put(tmp_path: Path, columns: Sequence[Floats], start: int = 0) -> Path:
    for number, x in enumerate(columns, start):
        write_partition(tmp_path / "in" / f"part-{number}.parquet", {"x": x, "y": NOISE[: len(x)]})
    return tmp_path / "in"


def stored(store: Store) -> Floats:
    return np.asarray(stored_rows(store).numeric[:, 0], dtype=np.float64)


def exact() -> SchemaRequest:
    return replace(REQUEST, precision="float64")


def precision_of(store: Store) -> str | None:
    schema = ledger_of(store).schema
    return schema.precision if schema else None


@given(columns=st.lists(st.sampled_from([NOISE, OUTLIER, WHOLE, NOISE + 1e4, NOISE * 1e-200]), min_size=1, max_size=4))
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_with_float64_no_value_of_any_partition_is_changed(
    tmp_path_factory: pytest.TempPathFactory, columns: list[Floats]
) -> None:
    path = tmp_path_factory.mktemp("exact")
    store = new_store(path / "store")
    ingest_folder(store, put(path, columns), exact())
    assert stored(store).tobytes() == np.concatenate(columns).tobytes()


def test_a_store_whose_first_rows_need_float64_never_rounds(tmp_path: Path, store: Store) -> None:
    ingest_folder(store, put(tmp_path, [OUTLIER, NOISE]), REQUEST)
    ingest_folder(store, put(tmp_path, [NOISE], start=2), REQUEST)
    assert precision_of(store) == "float64"
    np.testing.assert_array_equal(stored(store), np.concatenate([OUTLIER, NOISE, NOISE]))


def test_a_store_of_float32_keeps_exactly_what_float32_cannot_hold(tmp_path: Path, store: Store) -> None:
    ingest_folder(store, put(tmp_path, [NOISE]), REQUEST)
    ingest_folder(store, put(tmp_path, [OUTLIER, NOISE], start=1), REQUEST)
    rounded = NOISE.astype(np.float32).astype(np.float64)
    assert precision_of(store) == "float32"
    np.testing.assert_array_equal(stored(store), np.concatenate([rounded, OUTLIER, rounded]))


def test_whole_numbers_take_four_bytes_in_a_store_of_float64(tmp_path: Path, store: Store) -> None:
    ingest_folder(store, put(tmp_path, [WHOLE, NOISE]), exact())
    widths = [Segment.open(store.root(), n).read(0, 1).numeric.dtype for n in (0, 1)]
    assert widths == [np.float32, np.float64]


def test_only_the_first_rows_decide(tmp_path: Path, store: Store) -> None:
    late = np.tile(NOISE, BATCH_ROWS // 1000 + 2)
    late[BATCH_ROWS + 10] = 1e9
    write_partition(tmp_path / "in" / "part-0.parquet", {"x": late, "y": late})
    ingest_folder(store, tmp_path / "in", REQUEST)
    assert precision_of(store) == "float32"
    np.testing.assert_array_equal(stored(store), late)


def test_float64_cannot_be_asked_for_later(tmp_path: Path, store: Store) -> None:
    ingest_folder(store, put(tmp_path, [NOISE]), REQUEST)
    with pytest.raises(
        StoreError, match=r"was made with precision float32, the job asks for source\.precision = 'floa"
    ):
        ingest_folder(store, tmp_path / "in", exact())


def test_a_store_of_float64_may_be_fed_by_a_job_that_does_not_say_so(tmp_path: Path, store: Store) -> None:
    ingest_folder(store, put(tmp_path, [NOISE]), exact())
    ingest_folder(store, put(tmp_path, [NOISE], start=1), REQUEST)
    np.testing.assert_array_equal(stored(store), np.concatenate([NOISE, NOISE]))
