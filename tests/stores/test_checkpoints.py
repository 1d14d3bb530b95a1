"""Checkpoints: kept beside the store's history, seen by no reader, gone when they are no longer wanted."""

from pathlib import Path

import numpy as np
import pytest
from support.stores import new_store

from ridgestream.stores.checkpoints import Checkpoints
from ridgestream.stores.errors import ModelError
from ridgestream.stores.repository import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "store")


def test_what_is_kept_comes_back_and_the_last_one_counts(store: Store) -> None:
    kept = Checkpoints(store, "m")
    assert kept.load("a") is None
    arrays = {"x": np.arange(6.0).reshape(2, 3), "n": np.arange(3), "none": np.empty((0, 4))}
    kept.save("a", {"tasks": 1}, {})
    kept.save("b", {"tasks": 5, "sums": {"x": [1.5, None, "t"]}}, {})
    kept.save("a", {"tasks": 2}, arrays)
    found = Checkpoints(Store.open(store.location), "m").load("a")
    assert found is not None
    assert found[0] == {"tasks": 2}
    for name, array in arrays.items():
        assert found[1][name].tobytes() == array.tobytes()
        assert found[1][name].dtype == array.dtype
    other = kept.load("b")
    assert other is not None
    assert other[0] == {"tasks": 5, "sums": {"x": [1.5, None, "t"]}}


def test_no_reader_of_the_store_sees_them_and_each_model_has_its_own(store: Store) -> None:
    before = store.snapshot()
    kept, others = Checkpoints(store, "m"), Checkpoints(store, "m.2")
    kept.save("a", {}, {"x": np.ones(3)})
    others.save("a", {}, {"x": np.zeros(3)})
    assert store.snapshot() == before
    assert "checkpoints" not in store.root()
    kept.drop()
    assert kept.load("a") is None
    assert others.load("a") is not None
    kept.drop()
    assert set(store.repository.list_branches()) == {"main", "checkpoints.m.2"}


def test_a_damaged_one_is_as_good_as_none(store: Store, tmp_path: Path) -> None:
    kept = Checkpoints(store, "m")
    chunks = tmp_path / "store" / "chunks"
    before = set(chunks.iterdir()) if chunks.exists() else set()
    kept.save("a", {}, {"x": np.random.default_rng(0).random((500, 500))})
    (written,) = set(chunks.iterdir()) - before
    data = bytearray(written.read_bytes())
    data[len(data) // 2] ^= 1
    written.write_bytes(data)
    assert Checkpoints(Store.open(store.location), "m").load("a") is None


def test_a_name_that_no_model_can_have_is_refused(store: Store) -> None:
    with pytest.raises(ModelError, match="a model's name is made of"):
        Checkpoints(store, "../m")
