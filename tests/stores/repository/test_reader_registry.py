"""Readers: entered while they read, gone when they are, swept away when they ended without a word."""

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


def test_who_reads_is_entered_until_all_that_was_read_by_is_gone(store: Store) -> None:
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


def test_another_process_is_seen_until_it_is_killed(store: Store) -> None:
    process = start_reader(store)
    assert snapshots(store) == [store.snapshot()]
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert len(files(store)) == 1
    assert snapshots(store) == []
    assert files(store) == []


def test_a_forked_process_that_ends_leaves_its_parent_entered(store: Store) -> None:
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


def test_one_who_is_about_to_read_is_seen_without_a_snapshot(store: Store) -> None:
    with registered(store.location.folder):
        assert snapshots(store) == [None]


def test_a_reader_that_fails_to_open_is_not_left_behind(store: Store) -> None:
    with pytest.raises(StoreError, match="the store"):
        store.root("0" * 20)
    assert files(store) == []


def test_where_nobody_can_be_entered_reading_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    root = store.root()
    assert "segments" in root
    assert snapshots(store) == []


def test_an_entry_that_cannot_be_looked_at_is_of_a_reader_of_any_age(store: Store, tmp_path: Path) -> None:
    (tmp_path / "store" / "readers").mkdir(exist_ok=True)
    (tmp_path / "store" / "readers" / "loop.json").symlink_to("loop.json")
    assert list_readers(tmp_path / "store") == [Reader(datetime(1970, 1, 1, tzinfo=UTC), None)]
    assert "segments" in store.root()


def test_what_was_being_entered_is_left_alone_while_it_is_new(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "store" / "readers"
    folder.mkdir(exist_ok=True)
    new = folder / "host.1.abc.new"
    new.touch()
    assert snapshots(store) == [None]
    assert new.exists()
    os.utime(new, (0, 0))
    assert snapshots(store) == []
    assert not new.exists()


def test_a_store_with_readers_is_still_no_place_for_another(tmp_path: Path) -> None:
    """The folder is no sign of a store, nor a strange file in one."""
    (tmp_path / "empty" / "readers").mkdir(parents=True)
    store = new_store(tmp_path / "empty")
    root = store.root()
    assert Store.open(store.location).snapshot() == store.snapshot()
    del root
