"""On an object store one writer at a time holds a lease, which outlives no writer, and nothing is lost without it."""

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
from ridgestream.stores.repository.lease import FIRST_SNAPSHOT, HOLDER_BRANCH, writer_lease
from ridgestream.stores.repository.lock_owner import Owner
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation

SHORT = 1.0
"""Seconds of a lease in the tests that wait for its end."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def place(server: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreLocation:
    """A place of its own for every test."""
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


def touched(place: StoreLocation) -> object:
    return Store.open(place).root().attrs.get("touched")


def named(store: Store) -> Owner | None:
    """Whom the branch names."""
    tip = store.repository.lookup_snapshot(store.repository.lookup_branch(HOLDER_BRANCH))
    return Owner.from_dict(tip.metadata["writer"]) if "writer" in tip.metadata else None


@contextmanager
def held_by(store: Store, owner: Owner) -> Iterator[None]:
    """Let the branch name another process, which does not renew."""
    branch = lease._LeaseBranch(store.repository, store.location.text)
    assert branch.replace(branch.snapshot(), owner)
    yield


def elsewhere() -> Owner:
    """A process of another machine."""
    return replace(Owner.of_this_process(), host="far.away", process=77, process_table="another")


def test_the_lease_names_its_holder_and_then_nobody(place: StoreLocation) -> None:
    store = Store.create(place)
    assert named(store) is None
    with store.lock():
        owner = named(store)
        assert owner
        assert (owner.process, owner.is_gone()) == (os.getpid(), False)
        touch(store)
    assert named(store) is None
    with store.lock():
        touch(store, 2)
    assert touched(place) == 2


def test_the_lease_makes_no_history(place: StoreLocation) -> None:
    """However often it is renewed, the branch has the first snapshot and one more."""
    store = Store.create(place)
    for _ in range(2):
        with writer_lease(store.repository, place.text, 0.0) as held:
            for _ in range(5):
                held.renew()
            history = [commit.id for commit in store.repository.ancestry(branch=HOLDER_BRANCH)]
            assert len(history) == 2
            assert history[-1] == FIRST_SNAPSHOT
    assert [commit.id for commit in store.repository.ancestry(branch=HOLDER_BRANCH)] == [FIRST_SNAPSHOT]
    assert [commit.message for commit in store.repository.ancestry(branch="main")][:1] == ["Create the store"]


def test_a_second_writer_gets_the_name_of_the_first(place: StoreLocation) -> None:
    store, other = Store.create(place), Store.open(place)
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
def test_who_waits_gets_the_lease_when_it_is_released(place: StoreLocation) -> None:
    store, entered = Store.create(place), threading.Event()

    def second() -> None:
        other = Store.open(place)
        with other.lock(PATIENCE):
            entered.set()
            touch(other, 2)

    thread = threading.Thread(target=second)
    with store.lock():
        thread.start()
        assert not entered.wait(2 * SHORT)  # the first renews all the while
        touch(store, 1)
    thread.join(PATIENCE)
    assert touched(place) == 2


@pytest.mark.usefixtures("short")
def test_waiting_ends(place: StoreLocation) -> None:
    store, began = Store.create(place), monotonic()
    with (
        store.lock(),
        pytest.raises(StoreLocked, match="is being written by process"),
        Store.open(place).lock(1.5 * SHORT),
    ):
        pass
    assert monotonic() - began >= 1.5 * SHORT


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("wait", [0.0, 0.3, PATIENCE])
def test_a_holder_of_another_machine_that_does_not_renew_is_considered_dead(place: StoreLocation, wait: float) -> None:
    """Also by who does not want to wait, where the clocks say that it is long silent."""
    store = Store.create(place)
    with held_by(store, elsewhere()):
        if wait != PATIENCE:
            with pytest.raises(StoreLocked, match=r"process 77 on far\.away"), store.lock(wait):
                pass
            threading.Event().wait(SHORT)
        began = monotonic()
        with store.lock(wait):
            assert monotonic() - began >= SHORT
            touch(store)
    assert touched(place) == 1


@pytest.mark.parametrize(
    "gone", [{"started_seconds": -1000.0}, {"process": 2**22 + 1}], ids=["another began since", "no such process"]
)
def test_a_holder_of_this_machine_that_is_gone_is_followed_at_once(place: StoreLocation, gone: dict[str, int]) -> None:
    store = Store.create(place)
    with held_by(store, replace(Owner.of_this_process(), **gone)), store.lock():  # type: ignore[arg-type]
        touch(store)
    assert touched(place) == 1


def test_the_same_number_in_another_container_is_not_taken_for_gone(place: StoreLocation) -> None:
    store = Store.create(place)
    owner = replace(Owner.of_this_process(), process=2**22 + 1, process_table="the same host, another container")
    with held_by(store, owner), pytest.raises(StoreLocked, match="is being written by"), store.lock():
        pass


def test_a_holder_that_was_killed_is_followed_at_once(place: StoreLocation) -> None:
    Store.create(place)
    code = f"""
import os, signal
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.repository.repository import Store
with Store.open(StoreLocation({place.text!r})).lock():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    store = Store.open(place)
    assert named(store)
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


@pytest.mark.usefixtures("short")
def test_a_holder_that_was_only_stopped_does_not_commit_any_more(place: StoreLocation) -> None:
    store = Store.create(place)
    command = [sys.executable, "-c", STOPPED, place.text, str(SHORT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as stopped:
        assert stopped.stdout
        assert stopped.stdout.readline() == b"holds\n"
        with store.lock(PATIENCE):
            stopped.send_signal(signal.SIGCONT)
            kind, said = json.loads(stopped.stdout.readline())
            before = store.snapshot()
            assert kind == "StoreLocked"
            assert f"has been taken over by process {os.getpid()} on" in said
            assert f"did not answer for {SHORT:g} s" in said
            assert store.snapshot() == before
            touch(store)
    assert touched(place) == 1
    assert "late" not in Store.open(place).root().attrs
    assert named(store) is None


def test_without_the_lease_a_commit_whose_base_is_old_is_refused_and_not_rebased(place: StoreLocation) -> None:
    """Even where the two have nothing in common."""
    store, other = Store.create(place), Store.open(place)
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(StoreError, match="another writer has committed to the store"))
        stack.enter_context(store.write("late")).root.create_group("mine")
        touch(other)
    assert touched(place) == 1
    assert "mine" not in Store.open(place).root()


def test_of_concurrent_requests_for_the_lease_one_succeeds(place: StoreLocation) -> None:
    Store.create(place)
    branches = [lease._LeaseBranch(Store.open(place).repository, place.text) for _ in range(8)]
    free, barrier = branches[0].snapshot(), threading.Barrier(8)
    got: list[str | None] = []

    def reach(branch: lease._LeaseBranch) -> None:
        barrier.wait(PATIENCE)
        got.append(branch.replace(free, Owner.of_this_process()))

    threads = [threading.Thread(target=reach, args=(branch,)) for branch in branches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    winners = [snapshot for snapshot in got if snapshot]
    assert (len(got), winners) == (8, [branches[0].snapshot()])


def test_what_the_server_does_not_do_ends_in_an_error(place: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.create(place)

    def refuse(*_arguments: object, **_named: object) -> None:
        raise icechunk.IcechunkError("no")

    with monkeypatch.context() as patched:
        patched.setattr(icechunk.Repository, "reset_branch", refuse)
        with pytest.raises(StoreError, match=r"the store s3://.* cannot be read or written: no"), store.lock():
            pass
    with store.lock():
        touch(store)


def test_a_lease_that_was_taken_and_released_meanwhile_is_tried_for_again(
    place: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch points to nobody when the request is refused, as it did when it was sent."""
    store, real, calls = Store.create(place), icechunk.Repository.reset_branch, [0]

    def overtaken(repository: icechunk.Repository, branch: str, snapshot: str, *, from_snapshot_id: str) -> None:
        calls[0] += 1
        real(
            repository, branch, snapshot, from_snapshot_id="2CECHNKREP0F1RSTCMT0" if calls[0] == 1 else from_snapshot_id
        )

    monkeypatch.setattr(icechunk.Repository, "reset_branch", overtaken)
    with store.lock():
        touch(store)
    assert calls == [4]  # refused, taken, renewed, released


def test_a_request_that_is_sent_twice_counts_once(place: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is lost on the way, and the second says that the branch has moved."""
    store = Store.create(place)
    real = icechunk.Repository.reset_branch

    def twice(repository: icechunk.Repository, branch: str, snapshot: str, *, from_snapshot_id: str) -> None:
        for _ in range(2):
            real(repository, branch, snapshot, from_snapshot_id=from_snapshot_id)

    monkeypatch.setattr(icechunk.Repository, "reset_branch", twice)
    with store.lock():
        touch(store)
    assert named(store) is None


def test_a_store_made_without_the_branches_gets_them(place: StoreLocation) -> None:
    """As stores of release 0.1.0 are."""
    repository = creation._create(place.storage())
    session = repository.writable_session("main")
    zarr.create_group(session.store, attributes={"ridgestream": {"format_version": 1}}).create_group("segments")
    session.commit("Create the store")
    store = Store.open(place)
    with store.lock():
        assert named(store)
        touch(store)


def leave_a_beginning(place: StoreLocation) -> None:
    """What a repository is before its branch is there."""
    creation._create(place.storage())
    place.prefix.files.delete_file(f"{place.prefix.path}/refs/branch.main/ref.json")


@pytest.mark.usefixtures("short")
def test_an_interrupted_creation_is_repeated(place: StoreLocation) -> None:
    leave_a_beginning(place)
    assert not Store.exists(place)
    touch(Store.create(place))
    assert touched(place) == 1


@pytest.mark.usefixtures("short")
def test_a_beginning_that_goes_on_is_left_alone(place: StoreLocation) -> None:
    leave_a_beginning(place)
    done = []

    def go_on() -> None:
        with place.prefix.files.open_output_stream(f"{place.prefix.path}/refs/branch.main/ref.json") as stream:
            stream.write(json.dumps({"snapshot": FIRST_SNAPSHOT}).encode())
        done.append(1)

    timer = threading.Timer(SHORT / 3, go_on)
    timer.start()
    store = Store.create(place)
    timer.join(PATIENCE)
    assert done
    touch(store)


@pytest.mark.usefixtures("short")
def test_a_prefix_with_other_objects_is_not_taken(place: StoreLocation) -> None:
    for path in ("snapshots/mine", f"snapshots/{FIRST_SNAPSHOT}"):
        with place.prefix.files.open_output_stream(f"{place.prefix.path}/{path}") as stream:
            stream.write(b"not of Icechunk")
    with pytest.raises(StoreError, match="holds other objects and is not a Ridgestream store"):
        Store.create(place)
    assert creation._list_names(place) == {"snapshots/mine", f"snapshots/{FIRST_SNAPSHOT}"}


@pytest.mark.usefixtures("short")
def test_concurrent_creations_make_one_store(place: StoreLocation) -> None:
    stores: list[Store] = []
    barrier = threading.Barrier(6)

    def make() -> None:
        barrier.wait(PATIENCE)
        stores.append(Store.open_or_create(place, PATIENCE))

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len({store.snapshot() for store in stores}) == 1
    assert len(stores) == 6
    assert len(list(stores[0].repository.ancestry(branch="main"))) == 2


def test_the_threads_of_leases_end(place: StoreLocation) -> None:
    store = Store.create(place)
    with store.lock():
        assert any(thread.name == "ridgestream-lease" for thread in threading.enumerate())
    wait_until(lambda: all(thread.name != "ridgestream-lease" for thread in threading.enumerate()))
