"""The repository: what is a store, who may write, and what a failure leaves behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import icechunk
import pytest
import zarr
from support.stores.stores import location_of, new_store

from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.errors.exceptions import NewerFormat, StoreError, StoreLocked
from ridgestream.stores.repository.creation import open_or_create_repository
from ridgestream.stores.repository.file_lock import writer_lock
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_format import FORMAT_VERSION, mark_as_store
from ridgestream.stores.schema.record_hash import hash_plain


def put(store: Store, value: int) -> str:
    """Commit a value and return the snapshot."""
    with store.write(f"put {value}") as writing:
        writing.root.attrs["value"] = value
    assert writing.snapshot is not None
    return writing.snapshot


def value_in(store: Store, snapshot: str | None = None) -> object:
    return store.root(snapshot).attrs.get("value")


@contextmanager
def other_process(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a script that prints one line when it is ready and exits when its input ends."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(60)


OPEN = """
import sys
from pathlib import Path
from ridgestream.stores.schema.record_hash import hash_plain
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.repository.repository import Store
store = Store.open(StoreLocation.parse(sys.argv[1], Path("/")))
"""

HOLD_LOCK = f"""{OPEN}
with store.lock():
    print("ready", flush=True)
    sys.stdin.read()
"""

WRITE_WITHOUT_COMMIT = f"""{OPEN}
with store.lock(), store.write("never committed") as writing:
    writing.root.attrs["value"] = 99
    writing.root.create_array("junk", shape=(100_000,), dtype="float64", chunks=(1000,))[:] = 1.5
    print("ready", flush=True)
    sys.stdin.read()
    raise SystemExit(0)
"""


def test_a_new_store_is_empty_and_can_be_opened(tmp_path: Path) -> None:
    location = location_of(tmp_path / "deep" / "store")
    assert not Store.exists(location)
    store = Store.create(location)
    assert Store.exists(location)
    reopened = Store.open(location)
    assert reopened.snapshot() == store.snapshot()
    assert list(reopened.root().group_keys()) == ["segments"]
    assert read_ledger(reopened.root()).entries == ()


def test_a_store_can_be_created_in_an_empty_folder(tmp_path: Path) -> None:
    assert Store.open(new_store(tmp_path).location).location.folder == tmp_path


def test_checking_for_a_store_creates_nothing(tmp_path: Path) -> None:
    assert not Store.exists(location_of(tmp_path / "store"))
    with pytest.raises(StoreError, match=r"there is no store at .*/store; `ridgestream ingest` or"):
        Store.open(location_of(tmp_path / "store"))
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        Store.open(location_of(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_not_created_twice(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    put(store, 1)
    with pytest.raises(StoreError, match=r"there is already a store at .*/store"):
        new_store(tmp_path / "store")
    assert value_in(store) == 1


@pytest.mark.parametrize("action", [Store.open, Store.create, Store.exists])
def test_a_file_is_not_a_store(tmp_path: Path, action: object) -> None:
    (tmp_path / "store").write_text("mine")
    with pytest.raises(StoreError, match=r"the store .*/store is a file; a store is a folder"):
        action(location_of(tmp_path / "store"))  # type: ignore[operator]
    assert (tmp_path / "store").read_text() == "mine"


@pytest.mark.parametrize("action", [Store.open, Store.create, Store.exists])
def test_an_inaccessible_location_is_reported(tmp_path: Path, action: object) -> None:
    with pytest.raises(StoreError, match=r"the store .*/xxx+ cannot be read: File name too long"):
        action(location_of(tmp_path / ("x" * 300)))  # type: ignore[operator]


@pytest.mark.parametrize("action", [Store.open, Store.create, Store.exists])
@pytest.mark.parametrize("name", ["thesis.tex", "chunks/0", "refs/heads", "snapshots.txt", "manifests/x"])
def test_a_folder_with_other_files_is_refused_and_unchanged(tmp_path: Path, action: object, name: str) -> None:
    file = tmp_path / "store" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(StoreError, match=r"/store holds other files and is not a Ridgestream store; choose another"):
        action(location_of(tmp_path / "store"))  # type: ignore[operator]
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == [file]


def test_a_file_as_parent_of_the_store_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    with pytest.raises(StoreError, match=r"the store .*/data/store cannot be written: (Not a directory|File exists)"):
        new_store(tmp_path / "data" / "store")


@pytest.mark.parametrize("root", ["group", "array", "nothing at the root"])
def test_a_foreign_icechunk_repository_is_refused(tmp_path: Path, root: str) -> None:
    session = make_repository(tmp_path / "store").writable_session("main")
    if root == "array":
        zarr.create_array(session.store, shape=(3,), dtype="float64")
    else:
        zarr.create_group(session.store, path="" if root == "group" else "deep/down", attributes={"of": "mine"})
    session.commit("mine")
    if root == "nothing at the root":
        session = icechunk.Repository.open(storage_of(tmp_path / "store")).writable_session("main")
        zarr.open_group(session.store).attrs["more"] = 1
        session.commit("mine")
    with pytest.raises(StoreError, match=r"/store is an Icechunk repository, but not a Ridgestream store"):
        Store.open(location_of(tmp_path / "store"))
    with pytest.raises(StoreError, match=r"there is already a store at .*/store"):
        new_store(tmp_path / "store")


def storage_of(folder: Path) -> icechunk.Storage:
    icechunk.set_logs_filter("error")
    return icechunk.local_filesystem_storage(str(folder))


def make_repository(folder: Path) -> icechunk.Repository:
    return icechunk.Repository.create(storage_of(folder))


def test_an_icechunk_repository_without_a_commit_can_become_a_store(tmp_path: Path) -> None:
    """An interrupted creation in a bucket leaves this; local stores are created under a temporary name."""
    make_repository(tmp_path / "bucket")
    mark_as_store(open_or_create_repository(location_of(tmp_path / "bucket")))
    put(Store.open(location_of(tmp_path / "bucket")), 1)
    assert Store.exists(location_of(tmp_path / "bucket"))


def test_the_format_version_is_raised_by_the_next_change(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    assert store.format_version == FORMAT_VERSION
    with store.write("back to the past") as writing:
        writing.root.attrs["ridgestream"] = {"format_version": 1}
        writing.root.attrs["touched"] = 1
    assert Store.open(location_of(tmp_path / "store")).format_version == FORMAT_VERSION


def test_a_tag_is_found_without_a_look_at_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(tmp_path / "store")
    for value in (1, 2):
        store.tag(f"v{value}", put(store, value))
    store.repository.delete_tag("v2")
    assert (store.find_tag("v2"), store.find_tag("v3")) == (None, None)
    monkeypatch.setattr(store.repository, "list_tags", lambda: pytest.fail("tags are listed"))
    tagged = store.find_tag("v1")
    assert tagged is not None
    assert value_in(store, tagged) == 1


def test_a_tag_that_cannot_be_looked_up_is_not_taken_for_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> str:
        raise icechunk.IcechunkError("the server is overloaded")

    store = new_store(tmp_path / "store")
    store.tag("v1", put(store, 1))
    monkeypatch.setattr(store.repository, "lookup_tag", fail)
    with pytest.raises(StoreError, match="the server is overloaded"):
        store.find_tag("v1")


def test_a_damaged_tag_of_a_commit_is_refused(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    session = store.repository.writable_session("main")
    zarr.open_group(session.store, mode="a").attrs["touched"] = 2
    session.commit("night", {"tag": "night.model.0003", "tag_sha256": hash_plain({"tag": "night.model.0002"})})
    with pytest.raises(StoreError, match=r"the tag 'night.model.0003' of a commit is not what was written"):
        store.restore_tags()


def test_a_commit_gets_its_tag_even_after_a_kill_before_tagging(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    put(store, 1)
    store.restore_tags()
    assert store.tags() == set()
    with store.write("night", "night.model.0001") as writing:
        writing.root.attrs["touched"] = 1
    first = store.snapshot()
    assert store.snapshot_of_tag("night.model.0001") == first
    session = store.repository.writable_session("main")
    zarr.open_group(session.store, mode="a").attrs["touched"] = 2
    second = session.commit("night", {"tag": "night.model.0002"})
    put(store, 2)
    assert store.tags() == {"night.model.0001"}
    for _ in range(2):
        store.restore_tags()
        assert {name: store.snapshot_of_tag(name) for name in store.tags()} == {
            "night.model.0001": first,
            "night.model.0002": second,
        }
    with pytest.raises(StoreError, match=r"has no tag 'night.model.0003'"):
        store.snapshot_of_tag("night.model.0003")


def test_a_newer_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    with new_store(tmp_path / "store").write("from the future") as writing:
        writing.root.attrs["ridgestream"] = {"format_version": FORMAT_VERSION + 1}
    message = rf"/store has format version {FORMAT_VERSION + 1}; this release reads up to {FORMAT_VERSION}: inst"
    with pytest.raises(NewerFormat, match=message):
        Store.open(location_of(tmp_path / "store"))


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_an_interrupted_creation_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int) -> None:
    rename = Path.rename
    renamed: list[Path] = []

    def cut_off(path: Path, target: Path) -> Path:
        if len(renamed) == renames:
            raise KeyboardInterrupt
        renamed.append(path)
        return rename(path, target)

    location = location_of(tmp_path / "store")
    monkeypatch.setattr(Path, "rename", cut_off)
    with pytest.raises(KeyboardInterrupt):
        Store.create(location)
    monkeypatch.undo()
    assert not Store.exists(location)
    with pytest.raises(StoreError, match="there is no store at"):
        Store.open(location)
    put(Store.create(location), 1)
    assert {p.name for p in (tmp_path / "store").iterdir()} >= {"refs", "snapshots"}
    assert not list((tmp_path / "store").glob(".making-*"))


def test_a_leftover_probe_file_does_not_count_as_another_file(tmp_path: Path) -> None:
    (tmp_path / ".probe-123").touch()
    assert not Store.exists(location_of(tmp_path))
    put(new_store(tmp_path), 1)


def test_two_concurrent_creations_do_not_share_a_store(tmp_path: Path) -> None:
    with writer_lock(tmp_path, 0.0), pytest.raises(StoreLocked, match=f"by process {os.getpid()} on"):
        new_store(tmp_path)
    new_store(tmp_path)


def test_a_commit_is_visible_whole_and_older_snapshots_stay(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    first, second = put(store, 1), put(store, 2)
    reopened = Store.open(store.location)
    assert (value_in(reopened), value_in(reopened, first), value_in(reopened, second)) == (2, 1, 2)
    assert reopened.snapshot() == second


def test_a_session_that_fails_leaves_the_previous_commit(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    before = put(store, 1)
    with pytest.raises(KeyboardInterrupt):
        interrupt(store)
    assert (store.snapshot(), value_in(store)) == (before, 1)
    put(store, 3)
    assert value_in(Store.open(store.location)) == 3


def interrupt(store: Store) -> None:
    with store.write("interrupted") as writing:
        writing.root.attrs["value"] = 2
        writing.root.create_array("junk", shape=(3,), dtype="float64")[:] = 1.5
        raise KeyboardInterrupt


class ClusterError(RuntimeError):
    """Raised by jobs when workers die."""


@pytest.mark.parametrize("error", [ClusterError(), ConnectionError(), KeyboardInterrupt(), ValueError()])
def test_an_error_inside_a_session_is_not_translated(tmp_path: Path, error: BaseException) -> None:
    store = new_store(tmp_path / "store")
    with pytest.raises(type(error)) as caught, store.write("fails"):
        raise error
    assert caught.value is error


FULL_DISK = f"""{OPEN}
import resource
import numpy as np
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.catalog.models import ModelRecord, write_model
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with store.write("too large") as writing:
        arrays = {{"basis_vectors": np.random.default_rng(0).standard_normal((1000, 100))}}
        write_model(writing.root, ModelRecord("m", {{}}, {{}}, arrays=arrays))
except StoreError as error:
    print(error)
"""


def test_a_full_disk_is_reported_and_the_last_commit_stands(tmp_path: Path) -> None:
    """Uses a limit on file sizes, since a full disk cannot be simulated everywhere."""
    store = new_store(tmp_path / "store")
    before = put(store, 1)
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "store")]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.stderr == ""
    assert process.stdout.startswith("the model 'm' cannot be read or written: ")
    assert "File too large" in process.stdout
    assert (Store.open(store.location).snapshot(), value_in(store)) == (before, 1)


def test_one_of_two_concurrent_sessions_fails_and_nothing_is_lost(tmp_path: Path) -> None:
    """As in a bucket, where nothing is locked."""
    store, other = new_store(tmp_path / "store"), Store.open(location_of(tmp_path / "store"))
    with pytest.raises(StoreError, match=r"another writer has committed to the store .*/store meanwhile; run"):
        write_in_turn(store, other)
    assert value_in(store) == 2


def write_in_turn(store: Store, other: Store) -> None:
    with store.write("first to begin, last to commit") as writing:
        writing.root.attrs["value"] = 1
        put(other, 2)


def test_a_missing_snapshot_raises(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    with pytest.raises(StoreError, match=r"the store .*/store cannot be read or written"):
        store.root("1CECHNKREP0F1RSTCMT1")


def test_a_deleted_snapshot_is_damage_not_an_empty_store(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    (tmp_path / "store" / "snapshots" / put(store, 1)).unlink()
    with pytest.raises(StoreError, match=r"the store .*/store cannot be read or written: .*not found"):
        Store.open(store.location)
    with pytest.raises(StoreError, match=r"the store .*/store cannot be read or written: .*not found"):
        Store.create(store.location)


@pytest.mark.parametrize("content", ["", "{", '{"snapshot":"NOPE"}'])
def test_a_damaged_branch_raises(tmp_path: Path, content: str) -> None:
    store = new_store(tmp_path / "store")
    (tmp_path / "store" / "refs" / "branch.main" / "ref.json").write_text(content)
    with pytest.raises(StoreError, match=r"the store .*/store cannot be read or written"):
        Store.open(store.location)


def test_a_deleted_branch_raises(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    put(store, 1)
    (tmp_path / "store" / "chunks").mkdir(exist_ok=True)
    shutil.rmtree(tmp_path / "store" / "refs")
    with pytest.raises(StoreError, match="holds other files and is not a Ridgestream store"):
        Store.create(store.location)


def test_a_second_writer_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    with other_process(HOLD_LOCK, tmp_path / "store") as holder:
        message = rf"the store .*/store is being written by process {holder.pid} on .* since 20.*; .*--wait SECONDS"
        with pytest.raises(StoreLocked, match=message), store.lock():
            pytest.fail("the lock was given twice")
        assert value_in(store) is None  # readers need no lock
    with store.lock():
        put(store, 1)


def test_a_second_writer_of_the_same_process_is_refused_too(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    with store.lock(), pytest.raises(StoreLocked, match=f"by process {os.getpid()} on"), store.lock():
        pytest.fail("the lock was given twice")


def test_an_unknown_owner_is_called_another_process(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    with store.lock():
        (tmp_path / "store" / "writer.json").write_text('{"process"')
        with pytest.raises(StoreLocked, match="is being written by another process"), store.lock():
            pytest.fail("the lock was given twice")


def test_a_waiting_writer_gets_the_lock_when_the_first_releases_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store(tmp_path / "store")
    refused = threading.Event()
    acquire, values = filelock.FileLock._acquire, []

    def tried(lock: filelock.FileLock) -> None:
        acquire(lock)
        if not lock.is_locked:
            refused.set()

    def wait_for_it() -> None:
        with store.lock(wait_seconds=60):
            values.append(value_in(store))

    monkeypatch.setattr(filelock.FileLock, "_acquire", tried)
    waiting = threading.Thread(target=wait_for_it)
    with store.lock():
        waiting.start()
        assert refused.wait(60)
        assert not values
        put(store, 1)
    waiting.join(60)
    assert values == [1]


def test_the_lock_of_a_killed_owner_is_free(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    with other_process(HOLD_LOCK, tmp_path / "store") as holder:
        holder.kill()
        assert holder.wait(60) == -signal.SIGKILL
        with store.lock():
            put(store, 1)


def test_a_writer_killed_before_its_commit_leaves_the_previous_state(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    before = put(store, 1)
    with other_process(WRITE_WITHOUT_COMMIT, tmp_path / "store") as writer:
        assert (Store.open(store.location).snapshot(), value_in(store)) == (before, 1)
        writer.kill()
        writer.wait(60)
    reopened = Store.open(store.location)
    assert (reopened.snapshot(), value_in(reopened), "junk" in reopened.root()) == (before, 1, False)
    with reopened.lock():
        put(reopened, 2)
    assert value_in(Store.open(store.location)) == 2


READ_ONLY = """
import os, sys
from pathlib import Path
import filelock, icechunk, zarr, zarr.codecs, numcodecs
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.repository.repository import Store
zarr.open_group(zarr.storage.MemoryStore()).attrs["imported"] = True
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
store, new = StoreLocation(sys.argv[1]), StoreLocation(sys.argv[1] + "-new/deep")
print(Store.open(store).root().attrs["value"])
def say(action):
    try:
        action()
    except StoreError as error:
        print(type(error).__name__, error)
say(lambda: Store.create(new))
say(lambda: Store.open(store).lock().__enter__())
"""


def test_a_read_only_folder_can_be_read_but_not_written() -> None:
    """Uses another user's folder and a process that gives up root; a read-only mount needs rights that CI lacks."""
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        folder = Path(parent) / "store"
        put(new_store(folder), 7)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        Path(parent).chmod(0o555)
        command = [sys.executable, "-c", READ_ONLY, str(folder)]
        process = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        Path(parent).chmod(0o755)
        folder.chmod(0o755)
        for path in folder.rglob("*"):
            path.chmod(0o755)
    assert process.stderr == ""
    value, created, locked = process.stdout.splitlines()
    assert value == "7"
    assert created == f"StoreError the store {folder}-new/deep cannot be written: Permission denied"
    assert locked == f"StoreError the store {folder} cannot be written: Permission denied"


def test_a_failed_request_for_a_snapshot_is_not_a_missing_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store(tmp_path / "store")
    assert store.has_snapshot(store.snapshot())
    assert not store.has_snapshot("0" * 20)
    assert not store.has_snapshot("no name of a snapshot")

    async def refuse(*_: object) -> None:
        raise icechunk.IcechunkError("dispatch failure")

    monkeypatch.setattr(icechunk.Repository, "lookup_snapshot_async", refuse)
    with pytest.raises(StoreError, match=r"the store .*/store cannot be read or written: dispatch failure; the server"):
        store.has_snapshot("0" * 20)
