"""The reader registry: readers are registered while they read, removed when done, and swept if they crashed."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.jobs.jobs import PATIENCE, clean_environment, wait_until
from support.stores.stores import new_store

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.reader_registry import Reader, list_readers, registered
from ridgestream.stores.repository.repository import Store

READ = """
import sys, time
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.repository.repository import Store
root = Store.open(StoreLocation(sys.argv[1])).root()
print("reads", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "store")


def snapshots(store: Store) -> list[str | None]:
    assert store.location.folder is not None
    return sorted((reader.snapshot for reader in list_readers(store.location.folder)), key=str)


def files(store: Store) -> list[str]:
    assert store.location.folder is not None
    return sorted(path.name for path in (store.location.folder / "readers").iterdir())


def test_a_reader_is_registered_until_its_last_group_is_released(store: Store) -> None:
    before = store.snapshot()
    root = store.root()
    with store.write("Change") as writing:
        writing.root.create_group("more")
    later = store.root()
    assert snapshots(store) == sorted([before, store.snapshot()])
    group = later["more"]
    del later
    assert len(snapshots(store)) == 2
    del group
    assert snapshots(store) == [before]
    del root
    assert snapshots(store) == []
    assert files(store) == []


def start_reader(store: Store) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", READ, store.location.text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=clean_environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"reads\n"
    return process


def test_a_reader_in_another_process_is_listed_until_it_is_killed(store: Store) -> None:
    process = start_reader(store)
    assert snapshots(store) == [store.snapshot()]
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert len(files(store)) == 1
    assert snapshots(store) == []
    assert files(store) == []


def test_a_forked_process_that_ends_leaves_its_parent_registered(store: Store) -> None:
    root = store.root()
    code = "import os\nif not os.fork(): raise SystemExit\nos.wait()\nprint('parent lives', flush=True)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", READ.replace('print("reads", flush=True)', code) + "\n", store.location.text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=clean_environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"parent lives\n"
    assert snapshots(store) == [store.snapshot()] * 2
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    wait_until(lambda: len(snapshots(store)) == 1)
    del root


def test_a_reader_that_is_opening_is_listed_without_a_snapshot(store: Store) -> None:
    with registered(store.location.folder):
        assert snapshots(store) == [None]


def test_a_reader_that_fails_to_open_is_removed(store: Store) -> None:
    with pytest.raises(StoreError, match="the store"):
        store.root("0" * 20)
    assert files(store) == []


def test_reading_works_if_no_reader_can_be_registered(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    root = store.root()
    assert "segments" in root
    assert snapshots(store) == []


def test_an_unreadable_entry_counts_as_a_reader_of_any_age(store: Store, tmp_path: Path) -> None:
    (tmp_path / "store" / "readers").mkdir(exist_ok=True)
    (tmp_path / "store" / "readers" / "loop.json").symlink_to("loop.json")
    assert list_readers(tmp_path / "store") == [Reader(datetime(1970, 1, 1, tzinfo=UTC), None)]
    assert "segments" in store.root()


def test_a_new_unfinished_entry_is_left_alone(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "store" / "readers"
    folder.mkdir(exist_ok=True)
    new = folder / "host.1.abc.new"
    new.touch()
    assert snapshots(store) == [None]
    assert new.exists()
    os.utime(new, (0, 0))
    assert snapshots(store) == []
    assert not new.exists()


def test_a_folder_with_readers_is_still_refused_for_a_new_store(tmp_path: Path) -> None:
    """Neither the readers folder alone nor an unknown file in it makes a store."""
    (tmp_path / "empty" / "readers").mkdir(parents=True)
    store = new_store(tmp_path / "empty")
    root = store.root()
    assert Store.open(store.location).snapshot() == store.snapshot()
    del root
