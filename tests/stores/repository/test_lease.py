"""Leases on object stores: one writer at a time, none left after a writer dies, and no lost commit without one."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic

import icechunk
import pytest
import zarr
from support.jobs.jobs import PATIENCE, wait_until
from support.stores.object_store import ObjectStore, object_store

from ridgestream.stores.errors.exceptions import StoreError, StoreLocked
from ridgestream.stores.repository import creation, lease
from ridgestream.stores.repository.client import FIRST_SNAPSHOT, RepositoryClient
from ridgestream.stores.repository.lease import HOLDER_BRANCH, writer_lease
from ridgestream.stores.repository.lock_owner import Owner
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation

SHORT = 1.0
"""Lease duration in seconds in the tests that wait for its expiry."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def location(server: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreLocation:
    """A separate store location for every test."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return StoreLocation(server.location(tmp_path.name))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lease, creation):
        monkeypatch.setattr(module, "LEASE_SECONDS", SHORT)
        monkeypatch.setattr(module, "POLL_SECONDS", 0.05)


def touch(store: Store, value: int = 1) -> str:
    """Make a commit on the main branch."""
    with store.write("touch") as writing:
        writing.root.attrs["touched"] = value
    assert writing.snapshot
    return writing.snapshot


def touched(location: StoreLocation) -> object:
    return Store.open(location).root().attrs.get("touched")


def holder_of(store: Store) -> Owner | None:
    """Return the owner that the branch names."""
    tip = store.repository.lookup_snapshot(store.repository.lookup_branch(HOLDER_BRANCH))
    return Owner.from_dict(tip.metadata["writer"]) if "writer" in tip.metadata else None


@contextmanager
def held_by(store: Store, owner: Owner) -> Iterator[None]:
    """Make another process, which does not renew, the holder named by the branch."""
    branch = lease._LeaseBranch(store.repository, store.location.text)
    assert branch.replace(branch.snapshot(), owner)
    yield


def elsewhere() -> Owner:
    """A process on another machine."""
    return replace(Owner.of_this_process(), host="far.away", process=77, process_table="another")


def test_the_lease_names_its_holder_until_it_is_released(location: StoreLocation) -> None:
    store = Store.create(location)
    assert holder_of(store) is None
    with store.lock():
        owner = holder_of(store)
        assert owner
        assert (owner.process, owner.is_gone()) == (os.getpid(), False)
        touch(store)
    assert holder_of(store) is None
    with store.lock():
        touch(store, 2)
    assert touched(location) == 2


def test_the_lease_branch_has_no_growing_history(location: StoreLocation) -> None:
    """However often the lease is renewed, the branch has the first snapshot and one more."""
    store = Store.create(location)
    for _ in range(2):
        with writer_lease(store.repository, location.text, 0.0) as active_lease:
            for _ in range(5):
                active_lease.renew()
            history = [commit.id for commit in store.repository.ancestry(branch=HOLDER_BRANCH)]
            assert len(history) == 2
            assert history[-1] == FIRST_SNAPSHOT
    assert [commit.id for commit in store.repository.ancestry(branch=HOLDER_BRANCH)] == [FIRST_SNAPSHOT]
    assert [commit.message for commit in store.repository.ancestry(branch="main")][:1] == ["Create the store"]


def test_a_second_writer_is_refused_with_the_name_of_the_first(location: StoreLocation) -> None:
    store, other = Store.create(location), Store.open(location)
    with store.lock():
        with (
            pytest.raises(StoreLocked, match=rf"process {os.getpid()} on \S+ since .* use --wait SECONDS"),
            other.lock(),
        ):
            pass
        touch(store)
    with other.lock():
        touch(other, 2)


@pytest.mark.usefixtures("short")
def test_a_waiting_writer_gets_the_lease_when_it_is_released(location: StoreLocation) -> None:
    store, entered = Store.create(location), threading.Event()

    def second() -> None:
        other = Store.open(location)
        with other.lock(PATIENCE):
            entered.set()
            touch(other, 2)

    thread = threading.Thread(target=second)
    with store.lock():
        thread.start()
        assert not entered.wait(2 * SHORT)  # the first keeps renewing
        touch(store, 1)
    thread.join(PATIENCE)
    assert touched(location) == 2


@pytest.mark.usefixtures("short")
def test_waiting_times_out(location: StoreLocation) -> None:
    store, began = Store.create(location), monotonic()
    with (
        store.lock(),
        pytest.raises(StoreLocked, match="is being written by process"),
        Store.open(location).lock(1.5 * SHORT),
    ):
        pass
    assert monotonic() - began >= 1.5 * SHORT


@pytest.mark.samples
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("wait", [0.0, 0.3, PATIENCE])
def test_a_holder_on_another_machine_that_does_not_renew_is_considered_dead(
    location: StoreLocation, wait: float
) -> None:
    """A writer that does not wait may also take over a lease that is long expired by the clocks."""
    store = Store.create(location)
    with held_by(store, elsewhere()):
        if wait != PATIENCE:
            with pytest.raises(StoreLocked, match=r"process 77 on far\.away"), store.lock(wait):
                pass
            threading.Event().wait(SHORT)
        began = monotonic()
        with store.lock(wait):
            assert monotonic() - began >= SHORT
            touch(store)
    assert touched(location) == 1


@pytest.mark.parametrize(
    "changes", [{"started_seconds": -1000.0}, {"process": 2**22 + 1}], ids=["process number reused", "no such process"]
)
def test_the_lease_of_a_dead_process_of_this_machine_is_taken_over_at_once(
    location: StoreLocation, changes: dict[str, int]
) -> None:
    store = Store.create(location)
    with held_by(store, replace(Owner.of_this_process(), **changes)), store.lock():  # type: ignore[arg-type]
        touch(store)
    assert touched(location) == 1


def test_a_process_number_of_another_container_is_not_considered_dead(location: StoreLocation) -> None:
    store = Store.create(location)
    owner = replace(Owner.of_this_process(), process=2**22 + 1, process_table="the same host, another container")
    with held_by(store, owner), pytest.raises(StoreLocked, match="is being written by"), store.lock():
        pass


def test_the_lease_of_a_killed_holder_is_taken_over_at_once(location: StoreLocation) -> None:
    Store.create(location)
    code = f"""
import os, signal
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.repository.repository import Store
with Store.open(StoreLocation({location.text!r})).lock():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    store = Store.open(location)
    assert holder_of(store)
    with store.lock():
        touch(store)


STOPPED = """
import json, os, signal, sys
from ridgestream.stores.repository import lease
lease.LEASE_SECONDS = float(sys.argv[2])
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.repository.repository import Store
store = Store.open(StoreLocation(sys.argv[1]))
try:
    with store.lock(), store.write("late") as writing:
        writing.root.attrs["late"] = 1
        print("holds", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
except StoreError as error:
    print(json.dumps([type(error).__name__, str(error)]), flush=True)
"""


@pytest.mark.thorough
@pytest.mark.usefixtures("short")
def test_a_stopped_holder_whose_lease_was_taken_over_cannot_commit(location: StoreLocation) -> None:
    store = Store.create(location)
    command = [sys.executable, "-c", STOPPED, location.text, str(SHORT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as stopped:
        assert stopped.stdout
        assert stopped.stdout.readline() == b"holds\n"
        with store.lock(PATIENCE):
            stopped.send_signal(signal.SIGCONT)
            kind, message = json.loads(stopped.stdout.readline())
            before = store.snapshot()
            assert kind == "StoreLocked"
            assert f"has been taken over by process {os.getpid()} on" in message
            assert f"did not answer for {SHORT:g} s" in message
            assert store.snapshot() == before
            touch(store)
    assert touched(location) == 1
    assert "late" not in Store.open(location).root().attrs
    assert holder_of(store) is None


def test_without_the_lease_a_commit_on_an_old_base_is_refused_and_not_rebased(location: StoreLocation) -> None:
    """Even if the two commits change different things."""
    store, other = Store.create(location), Store.open(location)
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(StoreError, match="another writer has committed to the store"))
        stack.enter_context(store.write("late")).root.create_group("mine")
        touch(other)
    assert touched(location) == 1
    assert "mine" not in Store.open(location).root()


def test_of_concurrent_requests_for_the_lease_one_succeeds(location: StoreLocation) -> None:
    Store.create(location)
    branches = [lease._LeaseBranch(Store.open(location).repository, location.text) for _ in range(8)]
    free, barrier = branches[0].snapshot(), threading.Barrier(8)
    snapshots: list[str | None] = []

    def request_lease(branch: lease._LeaseBranch) -> None:
        barrier.wait(PATIENCE)
        snapshots.append(branch.replace(free, Owner.of_this_process()))

    threads = [threading.Thread(target=request_lease, args=(branch,)) for branch in branches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    winners = [snapshot for snapshot in snapshots if snapshot]
    assert (len(snapshots), winners) == (8, [branches[0].snapshot()])


def test_an_operation_that_the_server_refuses_raises(location: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.create(location)

    async def refuse(*_arguments: object, **_named: object) -> None:
        raise icechunk.IcechunkError("no")

    with monkeypatch.context() as patched:
        patched.setattr(icechunk.Repository, "reset_branch_async", refuse)
        with pytest.raises(StoreError, match=r"the store s3://.* cannot be read or written: no"), store.lock():
            pass
    with store.lock():
        touch(store)


def test_a_lease_taken_and_released_in_the_meantime_is_requested_again(
    location: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch names nobody when the request is refused, as when it was sent."""
    store, real, calls = Store.create(location), icechunk.Repository.reset_branch_async, [0]

    async def overtaken(repository: icechunk.Repository, branch: str, snapshot: str, *, from_snapshot_id: str) -> None:
        calls[0] += 1
        await real(
            repository, branch, snapshot, from_snapshot_id="2CECHNKREP0F1RSTCMT0" if calls[0] == 1 else from_snapshot_id
        )

    monkeypatch.setattr(icechunk.Repository, "reset_branch_async", overtaken)
    with store.lock():
        touch(store)
    assert calls == [5]  # refused, acquired, renewed, committed, released


def test_a_request_sent_twice_counts_once(location: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first response is lost, and the second says that the branch has moved."""
    store = Store.create(location)
    real = icechunk.Repository.reset_branch_async

    async def twice(repository: icechunk.Repository, branch: str, snapshot: str, *, from_snapshot_id: str) -> None:
        for _ in range(2):
            await real(repository, branch, snapshot, from_snapshot_id=from_snapshot_id)

    monkeypatch.setattr(icechunk.Repository, "reset_branch_async", twice)
    with store.lock():
        touch(store)
    assert holder_of(store) is None


def test_a_store_without_the_lease_branch_gets_one(location: StoreLocation) -> None:
    """Stores of release 0.1.0 have none."""
    repository = RepositoryClient.create(location.storage(), location.limit)
    session = repository.writable_session("main")
    zarr.create_group(session.store, attributes={"ridgestream": {"format_version": 1}}).create_group("segments")
    session.commit("Create the store")
    store = Store.open(location)
    with store.lock():
        assert holder_of(store)
        touch(store)


def leave_incomplete_creation(location: StoreLocation) -> None:
    """Leave a repository in the state before its branch is created."""
    RepositoryClient.create(location.storage(), location.limit)
    location.prefix.files.delete_file(f"{location.prefix.path}/refs/branch.main/ref.json")


@pytest.mark.usefixtures("short")
def test_an_interrupted_creation_is_repeated(location: StoreLocation) -> None:
    leave_incomplete_creation(location)
    assert not Store.exists(location)
    touch(Store.create(location))
    assert touched(location) == 1


@pytest.mark.usefixtures("short")
def test_a_creation_that_is_still_running_is_left_alone(location: StoreLocation) -> None:
    leave_incomplete_creation(location)
    events = []

    def finish() -> None:
        with location.prefix.files.open_output_stream(f"{location.prefix.path}/refs/branch.main/ref.json") as stream:
            stream.write(json.dumps({"snapshot": FIRST_SNAPSHOT}).encode())
        events.append("finished")

    timer = threading.Timer(SHORT / 3, finish)
    timer.start()
    store = Store.create(location)
    timer.join(PATIENCE)
    assert events
    touch(store)


@pytest.mark.usefixtures("short")
def test_a_prefix_with_other_objects_is_refused(location: StoreLocation) -> None:
    for path in ("snapshots/mine", f"snapshots/{FIRST_SNAPSHOT}"):
        with location.prefix.files.open_output_stream(f"{location.prefix.path}/{path}") as stream:
            stream.write(b"not of Icechunk")
    with pytest.raises(StoreError, match="holds other objects and is not a Ridgestream store"):
        Store.create(location)
    assert creation._list_names(location) == {"snapshots/mine", f"snapshots/{FIRST_SNAPSHOT}"}


@pytest.mark.usefixtures("short")
def test_concurrent_creations_create_one_store(location: StoreLocation) -> None:
    stores: list[Store] = []
    barrier = threading.Barrier(6)

    def make() -> None:
        barrier.wait(PATIENCE)
        stores.append(Store.open_or_create(location, PATIENCE))

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len({store.snapshot() for store in stores}) == 1
    assert len(stores) == 6
    assert len(list(stores[0].repository.ancestry(branch="main"))) == 2


def test_the_lease_thread_ends_with_the_lease(location: StoreLocation) -> None:
    store = Store.create(location)
    with store.lock():
        assert any(thread.name == "ridgestream-lease" for thread in threading.enumerate())
    wait_until(lambda: all(thread.name != "ridgestream-lease" for thread in threading.enumerate()))
