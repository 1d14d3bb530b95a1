"""Checkpoints: kept beside the store's history, seen by no reader, gone when they are no longer wanted."""

import signal
import sys
from pathlib import Path

import numpy as np
import pytest
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
    """Some 200 kB that do not compress."""
    return {"x": np.random.default_rng(seed).random((160, 160))}


def size_of(store: Store) -> int:
    size = measure_bytes(store)
    assert size is not None
    return size


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
    assert found[1].keys() == arrays.keys()
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
    kept.save("b", {}, {"x": np.ones(3)})
    others.save("a", {}, {"x": np.zeros(3)})
    assert store.snapshot() == before
    assert "checkpoints" not in store.root()
    kept.delete()
    assert kept.load("a") is None
    assert others.load("a") is not None
    kept.delete()
    branches = set(store.repository.list_branches())
    assert branches == {"main", "checkpoints.a.m.2"}
    assert {model_of_branch(branch) for branch in branches} == {None, "m.2"}


def test_what_is_superseded_is_collected_when_there_is_much_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times the bound at most: what lies about, the last one, and the one that is being written."""
    kept, empty = Checkpoints(store, "m"), size_of(store)
    one = draw(0)["x"].nbytes
    monkeypatch.setattr(checkpoints, "COLLECT_BYTES", 4 * one)
    sizes = []
    for seed in range(20):
        kept.save("a", {"seed": seed}, draw(seed))
        sizes.append(size_of(store) - empty)
    assert 4 * one < max(sizes) < 6.5 * one
    assert min(sizes[5:]) < 1.5 * one
    found = Checkpoints(store, "m").load("a")
    assert found is not None
    assert found[1]["x"].tobytes() == draw(19)["x"].tobytes()


def test_dropping_leaves_the_store_as_if_nothing_had_been_kept(store: Store) -> None:
    kept, empty = Checkpoints(store, "m"), size_of(store)
    for seed in range(5):
        kept.save("a", {"seed": seed}, draw(seed))
        kept.save("b", {"seed": seed}, draw(seed))
    assert size_of(store) > empty + 9 * draw(0)["x"].nbytes
    kept.delete()
    assert size_of(store) == empty


def test_dropping_nothing_collects_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was short enough to keep nothing does not list the whole store."""
    monkeypatch.setattr(checkpoints, "collect", lambda _: pytest.fail("collected"))
    Checkpoints(store, "m").delete()


def test_a_checkpoint_holds_nothing_of_the_store_s_own(store: Store) -> None:
    kept = Checkpoints(store, "m")
    kept.save("a", {}, {})
    with store.write("Change") as writing:
        writing.root.create_group("more")
    kept.save("a", {}, {})
    history = list(store.repository.ancestry(branch="checkpoints.a.m"))
    assert [commit.message for commit in history] == ["Keep a checkpoint", "Repository initialized"]


@pytest.mark.parametrize("whole", [False, True])
def test_a_damaged_one_is_as_good_as_none_and_is_superseded(store: Store, tmp_path: Path, whole: bool) -> None:
    kept = Checkpoints(store, "m")
    chunks = tmp_path / "store" / "chunks"
    before = set(chunks.iterdir()) if chunks.exists() else set()
    kept.save("a", {}, {"x": np.random.default_rng(0).random((500, 500))})
    (written,) = set(chunks.iterdir()) - before
    data = bytearray(written.read_bytes())
    data[len(data) // 2] ^= 1
    written.write_bytes(b"" if whole else data)
    kept = Checkpoints(Store.open(store.location), "m")
    assert kept.load("a") is None
    kept.save("a", {"n": 2}, {"x": np.ones(3)})
    found = Checkpoints(Store.open(store.location), "m").load("a")
    assert found is not None
    assert found[0] == {"n": 2}


@pytest.mark.parametrize("folder", ["snapshots", "manifests", "refs"])
def test_damage_beside_the_chunks_is_no_hindrance_either(store: Store, tmp_path: Path, folder: str) -> None:
    place = tmp_path / "store" / folder
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} if place.exists() else {}
    Checkpoints(store, "m").save("a", {"n": 1}, {"x": np.random.default_rng(0).random((500, 500))})
    for path in [path for path in place.rglob("*") if path.is_file() and path not in before]:
        path.write_bytes(b"nothing of the kind")
    kept = Checkpoints(Store.open(store.location), "m")
    assert kept.load("a") is None
    kept.save("a", {"n": 2}, {})
    found = Checkpoints(Store.open(store.location), "m").load("a")
    assert found is not None
    assert found[0] == {"n": 2}
    kept.delete()
    assert set(Store.open(store.location).repository.list_branches()) == {"main"}


def test_a_name_that_no_model_can_have_is_refused(store: Store) -> None:
    with pytest.raises(ModelError, match="a model's name consists of"):
        Checkpoints(store, "../m")


KILLED = """
import os, signal, sys
import icechunk, numpy as np
from pathlib import Path
from ridgestream.stores.catalog.checkpoints import Checkpoints
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.repository.repository import Store
store = Store.open(StoreLocation(sys.argv[1]))
kept = Checkpoints(store, "m")
left = [int(sys.argv[2])]
def counted(real):
    def call(*arguments, **named):
        left[0] -= 1
        if left[0] == -1:
            os.kill(os.getpid(), signal.SIGKILL)
        done = real(*arguments, **named)
        if left[0] == 0:
            left[0] -= 1
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return call
for kind, names in (
    (icechunk.Repository, ("create_branch", "delete_branch", "reset_branch", "garbage_collect", "writable_session")),
    (icechunk.Session, ("commit",)),
):
    for name in names:
        setattr(kind, name, counted(getattr(kind, name)))
arrays = {"x": np.random.default_rng(2).random((160, 160))}
if sys.argv[3] == "save":
    kept.save("a", {"n": 2}, arrays)
else:
    kept.delete()
print("whole")
"""


def killed_after(store: Store, calls: int, what: str) -> bool:
    """Save or drop in a process that kills itself after so many calls of the engine; tell whether it was killed."""
    done = run_program([sys.executable, "-c", KILLED, store.location.text, str(calls), what])
    assert done.code == -signal.SIGKILL or (done.code, done.out) == (0, "whole\n"), done
    return done.code != 0


def test_killed_while_it_is_saved_the_old_one_is_there_or_the_new_one(store: Store) -> None:
    Checkpoints(store, "m").save("a", {"n": 1}, draw(1))
    seen, calls = [], 1
    while killed_after(store, calls, "save"):
        found = Checkpoints(Store.open(store.location), "m").load("a")
        assert found is not None
        assert found[1]["x"].tobytes() == draw(found[0]["n"])["x"].tobytes()
        seen.append(found[0]["n"])
        Checkpoints(Store.open(store.location), "m").save("a", {"n": 1}, draw(1))
        calls += 1
    assert seen == sorted(seen)
    assert set(seen) == {1, 2}


def test_killed_while_they_are_dropped_each_is_there_whole_or_gone(store: Store) -> None:
    empty = size_of(store)
    calls, gone = 1, []
    while True:
        for n, key in enumerate("abc"):
            Checkpoints(store, "m").save(key, {"n": n}, draw(n))
        if not killed_after(store, calls, "drop"):
            break
        again = Checkpoints(Store.open(store.location), "m")
        found = [again.load(key) for key in "abc"]
        assert all(f is None or f[1]["x"].tobytes() == draw(f[0]["n"])["x"].tobytes() for f in found)
        gone.append(sum(f is None for f in found))
        calls += 1
    assert gone == [1, 2, 3, 3]
    assert size_of(Store.open(store.location)) == empty
