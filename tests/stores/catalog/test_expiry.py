"""Cleaning deletes unreferenced data; named, tagged and currently read data stays intact."""

import hashlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import zarr
from support.jobs.jobs import PATIENCE, clean_environment, run_program
from support.stores.stores import new_store

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.stores.catalog import expiry as cleaning
from ridgestream.stores.catalog.checkpoints import Checkpoints
from ridgestream.stores.catalog.expiry import clean
from ridgestream.stores.catalog.models import ModelRecord, Night, night_tag, require_model, write_model
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.garbage_collection import collect, measure_bytes
from ridgestream.stores.repository.reader_registry import registered
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.segments.checked_array import create_array, read_array

NOW = timedelta(0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "store")


def values(seed: int) -> Floats:
    return np.random.default_rng(seed).random((100, 100))


def commit(store: Store, seed: int, tag: str | None = None) -> str:
    """Replace the values and commit."""
    with store.write(f"Commit {seed}", tag) as writing:
        group = writing.root.create_group("values", overwrite=True)
        create_array(group, "x", (100, 100), "float64", 10)[...] = values(seed)
    assert writing.snapshot is not None
    return writing.snapshot


def read(root: zarr.Group) -> Floats:
    array = root["values/x"]
    assert isinstance(array, zarr.Array)
    return read_array(array)


def reads(store: Store, snapshot: str, seed: int) -> bool:
    """Return whether the snapshot exists; check that it is intact if so."""
    try:
        root = store.root(snapshot)
    except StoreError:
        return False
    assert read(root).tobytes() == values(seed).tobytes()
    return True


def size_of(store: Store) -> int:
    size = measure_bytes(store)
    assert size is not None
    return size


def reopened(store: Store) -> Store:
    return Store.open(store.location)


def test_untagged_commits_expire_and_the_last_one_and_nights_stay(store: Store) -> None:
    names = [commit(store, seed, tag="night.m.0001" if seed == 1 else None) for seed in range(4)]
    before = size_of(store)
    result = clean(store, NOW)
    assert (result.expired_snapshots, result.dropped_checkpoints, result.readers) == (
        3,
        (),
        0,
    )  # two, and the empty store
    store = reopened(store)
    assert [reads(store, name, seed) for seed, name in enumerate(names)] == [False, True, False, True]
    assert before - size_of(store) > 0.9 * result.freed_bytes > 1.5 * values(0).nbytes
    assert store.snapshot_of_tag("night.m.0001") == names[1]


def test_cleaning_again_changes_nothing(store: Store, tmp_path: Path) -> None:
    for seed in range(4):
        commit(store, seed, tag="night.m.0001" if seed == 1 else None)
    clean(store, NOW)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    result = clean(reopened(store), NOW)
    assert (result.expired_snapshots, result.freed_bytes) == (0, 0)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_a_dry_run_reports_what_would_be_deleted_and_deletes_nothing(store: Store, tmp_path: Path) -> None:
    names = [commit(store, seed) for seed in range(3)]
    Checkpoints(store, "m").save("a", {}, {"x": values(9)})
    Checkpoints(store, "m").save("a", {}, {"x": values(8)})
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    preview = clean(store, NOW, dry_run=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    assert preview.freed_bytes > 0.9 * values(9).nbytes
    assert [reads(store, name, seed) for seed, name in enumerate(names)] == [True] * 3
    assert clean(store, NOW).expired_snapshots == preview.expired_snapshots == 3


def test_younger_commits_and_the_last_older_one_stay(store: Store) -> None:
    old = [commit(store, seed) for seed in range(2)]
    time.sleep(0.3)
    young = [commit(store, seed) for seed in range(2, 4)]
    commit_times = {c.id: c.written_at for c in store.repository.ancestry(branch="main")}
    age = datetime.now(UTC) - commit_times[young[0]] + timedelta(seconds=0.1)
    assert clean(store, age).expired_snapshots == 2
    store = reopened(store)
    assert [reads(store, name, seed) for seed, name in enumerate([*old, *young])] == [False, True, True, True]


def test_a_night_that_a_kill_left_untagged_is_tagged_first(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(type(store.repository), "create_tag", die)
        with pytest.raises(Killed):
            commit(store, 1, tag="night.m.0001")
    night = reopened(store).snapshot()
    commit(reopened(store), 2)
    clean(reopened(store), NOW)
    assert reads(reopened(store), night, 1)


READ = """
import hashlib, sys
from ridgestream.stores.segments.checked_array import read_array
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.repository.repository import Store
array = Store.open(StoreLocation(sys.argv[1])).root()["values/x"]
print("reads", flush=True)
for line in sys.stdin:
    start = int(line)
    print(hashlib.sha256(read_array(array, start, start + 10).tobytes()).hexdigest(), flush=True)
"""


@pytest.fixture
def reader(store: Store) -> "Iterator[subprocess.Popen[bytes]]":
    """Start another process that has opened the first commit but read nothing yet."""
    commit(store, 0)
    process = subprocess.Popen(
        [sys.executable, "-c", READ, store.location.text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=clean_environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"reads\n"
    yield process
    process.kill()
    process.communicate(timeout=PATIENCE)


def test_an_open_reader_can_read_every_chunk_after_cleanings(store: Store, reader: "subprocess.Popen[bytes]") -> None:
    first = store.snapshot()
    assert reader.stdin is not None
    assert reader.stdout is not None
    for seed in range(1, 11):
        commit(reopened(store), seed)
        result = clean(reopened(store), NOW)
        assert result.readers == 1
        assert result.expired_snapshots == (1 if seed == 1 else 0)  # the empty store
        start = 10 * (seed - 1)
        reader.stdin.write(b"%d\n" % start)
        reader.stdin.flush()
        expected = hashlib.sha256(np.ascontiguousarray(values(0)[start : start + 10]).tobytes()).hexdigest()
        assert reader.stdout.readline().decode().strip() == expected
    reader.kill()
    reader.communicate(timeout=PATIENCE)
    result = clean(reopened(store), NOW)
    assert (result.readers, result.expired_snapshots) == (0, 10)
    assert not reads(reopened(store), first, 0)


def test_a_reader_of_a_tagged_or_the_last_commit_does_not_delay_cleaning(store: Store) -> None:
    night = commit(store, 0, tag="night.m.0001")
    commit(store, 1)
    last = commit(store, 2)
    roots = [store.root(night), store.root(last)]
    assert clean(store, NOW).expired_snapshots == 2
    assert [read(root).tobytes() for root in roots] == [values(0).tobytes(), values(2).tobytes()]


def test_a_reader_that_is_opening_protects_the_previously_last_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [commit(store, seed) for seed in range(3)]
    with registered(store.location.folder):
        assert clean(store, NOW).expired_snapshots == 0
        monkeypatch.setattr(cleaning, "_OPENING", timedelta(0))
        assert clean(store, NOW).expired_snapshots == 3
    assert reads(reopened(store), names[-1], 2)


def record_of(finished_at: datetime, learned: tuple[int, ...] = ()) -> ModelRecord:
    night = Night(finished_at.isoformat(timespec="seconds"), (), 1, 1, 1, 0.1, None, None, 0.1, number=1)
    return ModelRecord("m", {"method": "online"}, {}, learned, history=(night,), arrays={"x": np.ones(2)})


def keep_model(store: Store, record: ModelRecord) -> None:
    with store.write("Train", night_tag("m", 1) if not store.tags() else None) as writing:
        write_model(writing.root, record)


def test_a_checkpoint_is_deleted_after_a_later_night(store: Store) -> None:
    hour = timedelta(hours=1)
    keep_model(store, record_of(datetime.now(UTC) - hour))
    Checkpoints(store, "m").save("a", {}, {"x": values(1)})
    assert clean(store, hour).dropped_checkpoints == ()
    assert Checkpoints(store, "m").load("a") is not None
    keep_model(store, record_of(datetime.now(UTC) + hour))
    assert clean(store, hour).dropped_checkpoints == ("m",)
    assert Checkpoints(reopened(store), "m").load("a") is None


def test_an_old_checkpoint_is_deleted_if_every_partition_is_learned(store: Store) -> None:
    keep_model(store, record_of(datetime.now(UTC) - timedelta(hours=1)))
    Checkpoints(store, "m").save("a", {}, {"x": values(1)})
    assert clean(store, timedelta(hours=1)).dropped_checkpoints == ()
    assert clean(store, NOW).dropped_checkpoints == ("m",)


def test_the_checkpoint_of_a_first_night_stays_until_it_is_old(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    Checkpoints(store, "m").save("a", {}, {"x": values(1)})
    assert clean(store, NOW).dropped_checkpoints == ()
    monkeypatch.setattr(cleaning, "ABANDONED", timedelta(0))
    assert clean(store, NOW).dropped_checkpoints == ("m",)


def test_a_damaged_checkpoint_is_deleted(store: Store, tmp_path: Path) -> None:
    Checkpoints(store, "m").save("a", {}, {"x": values(1)})
    (tmp_path / "store" / "refs" / "branch.checkpoints.a.m" / "ref.json").write_text("{")
    assert clean(reopened(store), NOW).dropped_checkpoints == ("m",)
    assert set(reopened(store).repository.list_branches()) == {"main"}


def test_unfinished_files_are_deleted(store: Store, tmp_path: Path) -> None:
    commit(store, 1)
    for folder in ("chunks", "manifests"):
        (tmp_path / "store" / folder / "ABCDEF0123456789#1").write_bytes(b"half")
    before = size_of(store)
    assert clean(store, timedelta(hours=1)).freed_bytes == 8
    assert size_of(store) == before - 8


def test_on_an_object_store_only_age_protects(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recent data may belong to a writer on another machine even if nothing refers to it; the default is a day."""
    names = [commit(store, seed) for seed in range(3)]
    checkpoints = Checkpoints(store, "m")
    monkeypatch.setattr(type(store.location), "folder", None)
    for seed in range(3):
        checkpoints.save("a", {"seed": seed}, {"x": values(seed)})
    assert collect(store) == 0
    root = store.root(names[0])
    assert clean(store, timedelta(hours=1)).freed_bytes == 0
    assert read(root).tobytes() == values(0).tobytes()
    result = clean(store, NOW)
    assert (result.expired_snapshots, result.readers) == (3, 0)
    assert result.freed_bytes > 4 * 0.9 * values(0).nbytes
    assert checkpoints.load("a") is not None
    assert measure_bytes(store) is None


KILLED = """
import os, signal, sys
from datetime import timedelta
from ridgestream.stores.catalog.expiry import clean
from ridgestream.stores.repository.client import RepositoryClient
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.repository.repository import Store
store = Store.open(StoreLocation(sys.argv[1]))
remaining = [int(sys.argv[2])]
def counted(real):
    def call(*arguments, **named):
        remaining[0] -= 1
        if remaining[0] == -1:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    return call
for name in ("create_tag", "delete_branch", "expire_snapshots", "garbage_collect", "ancestry", "lookup_tag"):
    setattr(RepositoryClient, name, counted(getattr(RepositoryClient, name)))
os.unlink = counted(os.unlink)
clean(store, timedelta(0))
print("whole")
"""


@pytest.mark.thorough
def test_a_cleaning_killed_between_any_two_steps_is_finished_by_the_next(tmp_path: Path) -> None:
    calls, killed = 0, True
    while killed:
        store = new_store(tmp_path / f"store-{calls}")
        names = [commit(store, seed, tag=night_tag("m", seed) if seed == 2 else None) for seed in range(4)]
        keep_model(store, record_of(datetime.now(UTC) + timedelta(hours=1)))
        Checkpoints(store, "m").save("a", {}, {"x": values(1)})
        outcome = run_program([sys.executable, "-c", KILLED, store.location.text, str(calls)])
        killed = outcome.code == -signal.SIGKILL
        assert killed or (outcome.code, outcome.out) == (0, "whole\n"), outcome
        clean(reopened(store), NOW)
        assert set(reopened(store).repository.list_branches()) == {"main"}
        assert [reads(reopened(store), name, seed) for seed, name in enumerate(names)] == [False, False, True, False]
        assert require_model(reopened(store).root(), "m").arrays["x"].tobytes() == np.ones(2).tobytes()
        assert clean(reopened(store), NOW).freed_bytes == 0
        calls += 1
    assert calls > 5


@pytest.mark.thorough
@pytest.mark.parametrize("trials", [3, pytest.param(8, marks=pytest.mark.thorough)])
def test_a_cleaning_killed_at_any_time_leaves_a_readable_store(tmp_path: Path, trials: int) -> None:
    """The kill comes at a random time after the start of the cleaning, not between steps."""
    code = "import os, signal, sys, threading\nfrom time import sleep\n" + KILLED.replace(
        "clean(store, timedelta(0))",
        "threading.Thread(target=lambda: (sleep(float(sys.argv[3])), os.kill(os.getpid(), 9)), daemon=True).start()\n"
        "clean(store, timedelta(0))",
    )
    killed = 0
    for trial, seconds in enumerate(np.random.default_rng(0).uniform(0, 0.012, trials)):
        store = new_store(tmp_path / f"store-{trial}")
        names = [commit(store, seed, tag=night_tag("m", seed) if seed == 12 else None) for seed in range(25)]
        outcome = run_program([sys.executable, "-c", code, store.location.text, "1000", str(seconds)])
        killed += outcome.code == -signal.SIGKILL
        clean(reopened(store), NOW)
        readable = [reads(reopened(store), name, seed) for seed, name in enumerate(names)]
        assert readable == [seed in (12, 24) for seed in range(25)]
        assert size_of(reopened(store)) < 4 * values(0).nbytes
    assert killed
