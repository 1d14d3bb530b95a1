"""Stores behind a server that loses answers, cuts them, stays silent, ignores conditions, or has lost objects."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from support.points import points
from support.stores.faulty_proxy import NOTHING, FaultyProxy, Rule, faulty_proxy
from support.stores.object_store import BUCKET, ObjectStore, object_store

from ridgestream.stores.catalog.checkpoints import Checkpoints
from ridgestream.stores.catalog.expiry import clean
from ridgestream.stores.errors.exceptions import ServerSilent, StoreError
from ridgestream.stores.errors.translation import read_errors
from ridgestream.stores.files.object_storage import StorageSettings
from ridgestream.stores.repository.conditional_writes import PROBES
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.requests.time_limit import TRIES

LIMIT = 0.5
"""Seconds that a request may take in these tests."""

VALUES = np.random.default_rng(0).random(3000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def proxy(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    with faulty_proxy(server.port) as proxy:
        for name, value in proxy.environment.items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def location(proxy: FaultyProxy, server: ObjectStore, tmp_path: Path) -> StoreLocation:
    """The location of a store that the test makes."""
    return StoreLocation(server.location(f"{tmp_path.name}/store"), StorageSettings(proxy.endpoint))


def impatient(location: StoreLocation) -> StoreLocation:
    """The same location, with little patience for requests."""
    return StoreLocation(location.text, StorageSettings(location.settings.endpoint_url, request_seconds=LIMIT))


def commit(store: Store, number: int, tag: str | None = None) -> None:
    with store.write(f"commit {number}", tag) as writing:
        writing.root.attrs["number"] = number
        writing.root.create_array(f"values-{number}", data=VALUES)


def reopened(store: Store) -> Store:
    return Store.open(store.location)


def read(location: StoreLocation) -> npt.NDArray[np.float64]:
    """Return the values of the last commit of `change_everything`."""
    with read_errors(f"the store {location.text}"):
        return np.asarray(cast("Any", Store.open(location).root()["values-1"])[...])


def change_everything(location: StoreLocation) -> Store:
    """Make every kind of conditional write: of branches, tags, leases and checkpoints."""
    store = Store.open_or_create(location)
    with store.lock():
        checkpoints = Checkpoints(store, "m")
        for number in range(2):
            commit(store, number, tag=f"night.m.{number:04d}")
            checkpoints.save("a", {"n": number}, {"x": VALUES})
        checkpoints.delete()
        store.repository.delete_tag("night.m.0000")
    return store


@pytest.mark.thorough
def test_every_conditional_write_may_lose_its_answer(proxy: FaultyProxy, location: StoreLocation) -> None:
    """Each is carried out and not answered, and Icechunk repeats it against itself."""
    proxy.arm(Rule("lose", "PUT", conditional=True, once=True))
    store = change_everything(location)
    lost = {re.sub(r".*/refs/|[.-][0-9a-f]{12}|/ref.json.*", "", path) for path in proxy.spoiled if "/refs/" in path}
    assert lost >= {
        "branch.main",
        "branch.writer",
        "branch.writer.nobody",
        "branch.checkpoints.a.m",
        "tag.night.m.0001",
    }
    proxy.arm()
    store = Store.open(location)
    assert [commit.message for commit in store.repository.ancestry(branch="main")][:2] == ["commit 1", "commit 0"]
    assert store.tags() == {"night.m.0001"}
    assert store.snapshot_of_tag("night.m.0001") == store.snapshot()
    with store.lock():
        commit(store, 2)


@pytest.mark.thorough
def test_a_commit_below_that_of_another_writer_is_recognized(proxy: FaultyProxy, location: StoreLocation) -> None:
    """Both the answer is lost and another writer is faster than the look at the branch."""
    store, other = Store.create(location), Store.open(location)

    def overtake() -> None:
        proxy.arm()
        commit(other, 7)

    with store.write("first") as writing:
        writing.root.attrs["first"] = 1
        proxy.arm(Rule("lose", "PUT .*/branch.main/", at=1, then=overtake))
    root = Store.open(location).root()
    assert (root.attrs["first"], root.attrs["number"]) == (1, 7)


def test_a_commit_of_another_writer_is_still_a_conflict(proxy: FaultyProxy, location: StoreLocation) -> None:
    store, other = Store.create(location), Store.open(location)

    def overtake() -> None:
        proxy.arm()
        commit(other, 7)

    def commit_late() -> None:
        with store.write("first") as writing:
            writing.root.attrs["first"] = 1
            proxy.arm(Rule("drop", "PUT .*/branch.main/", at=1, then=overtake))

    with pytest.raises(StoreError, match="another writer has committed"):
        commit_late()
    assert "first" not in Store.open(location).root().attrs


@pytest.mark.thorough
def test_half_an_answer_is_asked_for_again(proxy: FaultyProxy, location: StoreLocation) -> None:
    change_everything(location)
    proxy.arm(Rule("cut", "GET .*/(refs|snapshots|manifests|chunks)/", once=True))
    np.testing.assert_array_equal(read(location), VALUES)
    assert {path.split("/store/")[1].split("/")[0] for path in proxy.spoiled} == {
        "refs",
        "snapshots",
        "manifests",
        "chunks",
    }


SILENT: dict[str, tuple[str, Callable[[Store], object]]] = {
    "branch": ("GET .*/branch.main/", lambda store: store.snapshot()),
    "snapshot": ("GET .*/snapshots/", lambda store: read(store.location)),
    "manifest": ("GET .*/manifests/", lambda store: read(store.location)),
    "chunk": ("GET .*/chunks/", lambda store: read(store.location)),
    "new chunk": ("PUT .*/chunks/", lambda store: commit(store, 5)),
    "new manifest": ("PUT .*/manifests/", lambda store: commit(store, 5)),
    "new snapshot": ("PUT .*/snapshots/", lambda store: commit(store, 5)),
    "transaction log": ("PUT .*/transactions/", lambda store: commit(store, 5)),
    "moved branch": ("PUT .*/branch.main/", lambda store: commit(store, 5)),
    "tag": ("PUT .*/tag.five/", lambda store: commit(store, 5, tag="five")),
    "list": (r"GET .*list-type=2", lambda store: store.tags()),
    "history": ("GET .*/snapshots/", lambda store: list(reopened(store).repository.ancestry(branch="main"))),
}
"""Requests that are not answered, and what sends them."""


@pytest.mark.at_most(4)
@pytest.mark.parametrize("name", points(SILENT, ["chunk"]))
def test_a_request_that_is_never_answered_is_sent_again(proxy: FaultyProxy, location: StoreLocation, name: str) -> None:
    only, action = SILENT[name]
    change_everything(location)
    store = Store.open(impatient(location))
    proxy.arm(Rule("silence", only, at=1))
    action(store)
    assert len(proxy.spoiled) == 1
    proxy.arm()
    assert Store.open(location).root().attrs["number"] in (1, 5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "subject"),
    points([("branch", "the branch main"), ("chunk", "values-1/c/0")], [("branch", "the branch main")]),
)
def test_a_server_that_never_answers_is_reported_by_what_was_asked_for(
    proxy: FaultyProxy, location: StoreLocation, name: str, subject: str
) -> None:
    only, action = SILENT[name]
    change_everything(location)
    store, began = Store.open(impatient(location)), monotonic()
    proxy.arm(Rule("silence", only))
    message = f"{re.escape(subject)} of the store {location.text}: no answer within {LIMIT} s .* asked {TRIES} times"
    with pytest.raises(ServerSilent, match=message):
        action(store)
    assert monotonic() - began >= TRIES * LIMIT


CONDITIONS = [("if-none-match",), ("if-match",), ("if-none-match", "if-match")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "headers", [*CONDITIONS[:2], pytest.param(CONDITIONS[2], marks=pytest.mark.thorough)], ids=" ".join
)
def test_a_server_that_ignores_conditions_is_refused_and_nothing_is_left(
    server: ObjectStore, proxy: FaultyProxy, location: StoreLocation, tmp_path: Path, headers: tuple[str, ...]
) -> None:
    names = {"if-none-match": "If-None-Match", "if-match": "If-Match"}
    message = f"{proxy.endpoint} ignores {' and '.join(names[name] for name in headers)}, by which .* let the proxy"
    proxy.arm(Rule("strip", headers=headers))
    with pytest.raises(StoreError, match=message):
        Store.create(location)
    assert objects(server, tmp_path) == []
    direct = StoreLocation(location.text, StorageSettings(server.endpoint))
    commit(Store.create(direct), 1)
    before = objects(server, tmp_path)
    with pytest.raises(StoreError, match=message), Store.open(location).lock():
        pass
    assert objects(server, tmp_path) == before
    proxy.arm()
    with Store.open(location).lock():
        commit(Store.open(location), 2)


@pytest.mark.thorough
def test_an_endpoint_is_probed_once(server: ObjectStore, proxy: FaultyProxy, location: StoreLocation) -> None:
    store = Store.create(location)
    assert any(PROBES in request for request in proxy.seen)
    proxy.arm()
    with store.lock():
        commit(store, 1)
    assert not any(PROBES in request for request in proxy.seen)
    with Store.open(StoreLocation(location.text, StorageSettings(server.endpoint))).lock():
        pass
    assert not any(PROBES in key for key in server.keys(location.text.removeprefix(f"s3://{BUCKET}/")))


def objects(server: ObjectStore, folder: Path) -> list[str]:
    return [key for key in server.keys(folder.name) if key and not key.endswith("/")]


LOST = {
    "chunks": r"NoSuchKey.*/chunks/\w{20}",
    "manifests": r"NoSuchKey.*/manifests/\w{20}",
    "snapshots": "NoSuchKey",
    "refs/branch.main": r"has lost refs/branch\.main/ref\.json",
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", points(LOST, ["chunks", "refs/branch.main"]))
def test_a_lost_object_is_said_to_be_lost(
    server: ObjectStore, location: StoreLocation, tmp_path: Path, kind: str
) -> None:
    change_everything(location)
    for key in objects(server, tmp_path):
        if key.startswith(f"store/{kind}/") and "1CECH" not in key:
            server.delete(f"{tmp_path.name}/{key}")
    with pytest.raises(StoreError, match=f"{LOST[kind]}.*restore it from a copy") as caught:
        read(location)
    assert "credentials" not in str(caught.value)


@pytest.mark.thorough
def test_refused_access_is_not_said_to_be_a_loss_alone(proxy: FaultyProxy, location: StoreLocation) -> None:
    """Where a key may not list the bucket, S3 refuses access to an object that is not there."""
    change_everything(location)
    proxy.arm(Rule("refuse", "GET .*/snapshots/"))
    with pytest.raises(StoreError, match=r"credentials .* Where they may not list it, a lost object") as caught:
        Store.open(location).root()
    assert "restore it from a copy" in str(caught.value)


@pytest.mark.thorough
def test_a_cleaning_finds_nothing_of_lost_answers(proxy: FaultyProxy, location: StoreLocation) -> None:
    proxy.arm(Rule("lose", "PUT", once=True))
    store = change_everything(location)
    proxy.arm(NOTHING)
    with store.lock():
        assert clean(store, timedelta(0)).expired_snapshots >= 0
    np.testing.assert_array_equal(read(location), VALUES)
