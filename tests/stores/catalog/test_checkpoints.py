"""Checkpoints: stored outside the store's history, invisible to readers, deleted when no longer needed."""

import signal
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import zarr
from support.jobs.jobs import run_program
from support.stores.stores import new_store

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.stores.catalog import checkpoints
from ridgestream.stores.catalog.checkpoints import Checkpoints, model_of_branch
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.repository.garbage_collection import measure_bytes
from ridgestream.stores.repository.repository import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "store")


def draw(seed: int) -> dict[str, Floats]:
    """Return about 200 kB that do not compress."""
    return {"x": np.random.default_rng(seed).random((160, 160))}


def size_of(store: Store) -> int:
    size = measure_bytes(store)
    assert size is not None
    return size


def test_the_latest_saved_checkpoint_is_loaded(store: Store) -> None:
    checkpoints = Checkpoints(store, "m")
    assert checkpoints.load("a") is None
    arrays = {"x": np.arange(6.0).reshape(2, 3), "n": np.arange(3), "none": np.empty((0, 4))}
    checkpoints.save("a", {"tasks": 1}, {})
    checkpoints.save("b", {"tasks": 5, "sums": {"x": [1.5, None, "t"]}}, {})
    checkpoints.save("a", {"tasks": 2}, arrays)
    checkpoint = Checkpoints(Store.open(store.location), "m").load("a")
    assert checkpoint is not None
    assert checkpoint[0] == {"tasks": 2}
    assert checkpoint[1].keys() == arrays.keys()
    for name, array in arrays.items():
        assert checkpoint[1][name].tobytes() == array.tobytes()
        assert checkpoint[1][name].dtype == array.dtype
    other = checkpoints.load("b")
    assert other is not None
    assert other[0] == {"tasks": 5, "sums": {"x": [1.5, None, "t"]}}


def test_a_checkpoint_with_other_arrays_than_were_saved_is_not_loaded(store: Store) -> None:
    """They are as long, and their chunks are sound."""
    saved = Checkpoints(store, "m")
    saved.save("a", {"tasks": 2}, {"x": np.arange(6.0), "n": np.arange(6)})
    session = store.repository.writable_session("checkpoints.a.m")
    group = cast("zarr.Group", zarr.open_group(session.store)["checkpoints"])
    cast("Any", group["x"])[...] = np.arange(6.0)[::-1]
    session.commit("Change the checkpoint")
    assert saved.load("a") is None


def test_readers_do_not_see_checkpoints_and_each_model_has_its_own(store: Store) -> None:
    before = store.snapshot()
    checkpoints, others = Checkpoints(store, "m"), Checkpoints(store, "m.2")
    checkpoints.save("a", {}, {"x": np.ones(3)})
    checkpoints.save("b", {}, {"x": np.ones(3)})
    others.save("a", {}, {"x": np.zeros(3)})
    assert store.snapshot() == before
    assert "checkpoints" not in store.root()
    checkpoints.delete()
    assert checkpoints.load("a") is None
    assert others.load("a") is not None
    checkpoints.delete()
    branches = set(store.repository.list_branches())
    assert branches == {"main", "checkpoints.a.m.2"}
    assert {model_of_branch(branch) for branch in branches} == {None, "m.2"}


def test_superseded_checkpoints_are_collected_when_they_are_large(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most three times the bound: superseded data, the last checkpoint, and the one being written."""
    saved, empty = Checkpoints(store, "m"), size_of(store)
    one = draw(0)["x"].nbytes
    monkeypatch.setattr(checkpoints, "COLLECT_BYTES", 4 * one)
    sizes = []
    for seed in range(20):
        saved.save("a", {"seed": seed}, draw(seed))
        sizes.append(size_of(store) - empty)
    assert 4 * one < max(sizes) < 6.5 * one
    assert min(sizes[5:]) < 1.5 * one
    checkpoint = Checkpoints(store, "m").load("a")
    assert checkpoint is not None
    assert checkpoint[1]["x"].tobytes() == draw(19)["x"].tobytes()


def test_deleting_leaves_the_store_as_before_any_checkpoint(store: Store) -> None:
    checkpoints, empty = Checkpoints(store, "m"), size_of(store)
    for seed in range(5):
        checkpoints.save("a", {"seed": seed}, draw(seed))
        checkpoints.save("b", {"seed": seed}, draw(seed))
    assert size_of(store) > empty + 9 * draw(0)["x"].nbytes
    checkpoints.delete()
    assert size_of(store) == empty


def test_deleting_nothing_collects_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run too short to write a checkpoint does not list the whole store."""
    monkeypatch.setattr(checkpoints, "collect", lambda _: pytest.fail("collected"))
    Checkpoints(store, "m").delete()


def test_a_checkpoint_holds_no_data_of_the_store(store: Store) -> None:
    checkpoints = Checkpoints(store, "m")
    checkpoints.save("a", {}, {})
    with store.write("Change") as writing:
        writing.root.create_group("more")
    checkpoints.save("a", {}, {})
    history = list(store.repository.ancestry(branch="checkpoints.a.m"))
    assert [commit.message for commit in history] == ["Keep a checkpoint", "Repository initialized"]


@pytest.mark.parametrize("whole", [False, True])
def test_a_damaged_checkpoint_is_ignored_and_superseded(store: Store, tmp_path: Path, whole: bool) -> None:
    checkpoints = Checkpoints(store, "m")
    chunks = tmp_path / "store" / "chunks"
    before = set(chunks.iterdir()) if chunks.exists() else set()
    checkpoints.save("a", {}, {"x": np.random.default_rng(0).random((500, 500))})
    (chunk,) = set(chunks.iterdir()) - before
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(b"" if whole else data)
    checkpoints = Checkpoints(Store.open(store.location), "m")
    assert checkpoints.load("a") is None
    checkpoints.save("a", {"n": 2}, {"x": np.ones(3)})
    checkpoint = Checkpoints(Store.open(store.location), "m").load("a")
    assert checkpoint is not None
    assert checkpoint[0] == {"n": 2}


@pytest.mark.parametrize("folder", ["snapshots", "manifests", "refs"])
def test_a_checkpoint_with_damaged_metadata_is_ignored_too(store: Store, tmp_path: Path, folder: str) -> None:
    metadata = tmp_path / "store" / folder
    before = set(metadata.rglob("*")) if metadata.exists() else set()
    Checkpoints(store, "m").save("a", {"n": 1}, {"x": np.random.default_rng(0).random((500, 500))})
    for path in [path for path in metadata.rglob("*") if path.is_file() and path not in before]:
        path.write_bytes(b"damaged")
    checkpoints = Checkpoints(Store.open(store.location), "m")
    assert checkpoints.load("a") is None
    checkpoints.save("a", {"n": 2}, {})
    checkpoint = Checkpoints(Store.open(store.location), "m").load("a")
    assert checkpoint is not None
    assert checkpoint[0] == {"n": 2}
    checkpoints.delete()
    assert set(Store.open(store.location).repository.list_branches()) == {"main"}


def test_an_invalid_model_name_is_refused(store: Store) -> None:
    with pytest.raises(ModelError, match="a model's name consists of"):
        Checkpoints(store, "../m")


KILLED = """
import os, signal, sys
import numpy as np
from pathlib import Path
from ridgestream.stores.catalog.checkpoints import Checkpoints
from ridgestream.stores.repository.client import RepositoryClient
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.repository.repository import Store
store = Store.open(StoreLocation(sys.argv[1]))
checkpoints = Checkpoints(store, "m")
remaining = [int(sys.argv[2])]
def counted(real):
    def call(*arguments, **named):
        remaining[0] -= 1
        if remaining[0] == -1:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **named)
        if remaining[0] == 0:
            remaining[0] -= 1
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call
for name in ("create_branch", "delete_branch", "reset_branch", "garbage_collect", "writable_session", "flush"):
    setattr(RepositoryClient, name, counted(getattr(RepositoryClient, name)))
arrays = {"x": np.random.default_rng(2).random((160, 160))}
if sys.argv[3] == "save":
    checkpoints.save("a", {"n": 2}, arrays)
else:
    checkpoints.delete()
print("whole", flush=True)
os._exit(0)  # the interpreter's shutdown can abort a process whose storage threads still run
"""


def killed_after(store: Store, calls: int, action: str) -> bool:
    """Save or delete in a process that kills itself after `calls` Icechunk calls; return whether it was killed."""
    outcome = run_program([sys.executable, "-c", KILLED, store.location.text, str(calls), action])
    assert outcome.code == -signal.SIGKILL or (outcome.code, outcome.out) == (0, "whole\n"), outcome
    return outcome.code != 0


@pytest.mark.thorough
def test_a_killed_save_leaves_the_old_checkpoint_or_the_new_one(store: Store) -> None:
    Checkpoints(store, "m").save("a", {"n": 1}, draw(1))
    saved_numbers, calls = [], 1
    while killed_after(store, calls, "save"):
        checkpoint = Checkpoints(Store.open(store.location), "m").load("a")
        assert checkpoint is not None
        assert checkpoint[1]["x"].tobytes() == draw(checkpoint[0]["n"])["x"].tobytes()
        saved_numbers.append(checkpoint[0]["n"])
        Checkpoints(Store.open(store.location), "m").save("a", {"n": 1}, draw(1))
        calls += 1
    assert saved_numbers == sorted(saved_numbers)
    assert set(saved_numbers) == {1, 2}


@pytest.mark.thorough
def test_a_killed_deletion_leaves_each_checkpoint_whole_or_deleted(store: Store) -> None:
    empty = size_of(store)
    calls, missing_counts = 1, []
    while True:
        for n, key in enumerate("abc"):
            Checkpoints(store, "m").save(key, {"n": n}, draw(n))
        if not killed_after(store, calls, "drop"):
            break
        checkpoints = Checkpoints(Store.open(store.location), "m")
        loaded = [checkpoints.load(key) for key in "abc"]
        assert all(f is None or f[1]["x"].tobytes() == draw(f[0]["n"])["x"].tobytes() for f in loaded)
        missing_counts.append(sum(f is None for f in loaded))
        calls += 1
    assert missing_counts == [1, 2, 3, 3]
    assert size_of(Store.open(store.location)) == empty
