"""Several runs of one job at once, on a folder and on an S3-protocol server: each partition once, and no run lost."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.jobs.jobs import (
    PATIENCE,
    Workplace,
    bits_of,
    draw_rows,
    read_model_at,
    start_command,
    wait_until,
)
from support.stores.object_store import ObjectStore, object_store

from ridgestream.jobs.cli import exit_codes
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import night_tag, require_model
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_format import BRANCH
from ridgestream.stores.repository.store_location import StoreLocation

PARTITIONS, ROWS = 20, 60
JOB = {"evaluate.path": None, "model.max_basis": 10, "model.scaling_rows": ROWS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("server")) as server, pytest.MonkeyPatch.context() as patched:
        for name, value in server.environment.items():
            patched.setenv(name, value)
        yield server


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("undisturbed"))
    for number in range(PARTITIONS):
        work.put(number, draw_rows(number, ROWS))
    work.run_here(JOB)
    return work


@pytest.fixture(params=["folder", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, server: ObjectStore) -> StoreLocation:
    return StoreLocation(str(tmp_path / "store") if request.param == "folder" else server.location(tmp_path.name))


def run_at_once(
    place: StoreLocation, undisturbed: Workplace, folder: Path, runs: int, *arguments: str
) -> list[tuple[int, str]]:
    """Start so many commands and return how each ended and what it said."""
    job = undisturbed.job(JOB)
    logs = [folder / f"log-{number}" for number in range(runs)]
    started = [start_command("run", job, "--store", place.text, *arguments, log=log) for log in logs]
    return [(run.wait(2 * PATIENCE), log.read_text()) for run, log in zip(started, logs, strict=True)]


def assert_once(place: StoreLocation, undisturbed: Workplace) -> None:
    """Every partition once, one night, the model of the undisturbed run, and commits of one writer after the other."""
    store = Store.open(place)
    root = store.root()
    entries, record = read_ledger(root).entries, require_model(root, "model")
    assert [entry.name for entry in entries] == [f"part-{n:02d}.parquet" for n in range(PARTITIONS)]
    assert bits_of(record) == bits_of(read_model_at(undisturbed.store))
    assert record.counters["rows_seen"] == PARTITIONS * ROWS
    assert [night.number for night in record.history] == [1]
    assert store.tags() == {night_tag("model", 1)}
    messages = [commit.message for commit in store.repository.ancestry(branch=BRANCH)]
    assert len(messages) == 5, messages  # the repository, the store, two waves of partitions, a night


@pytest.mark.parametrize("runs", [2, pytest.param(8, marks=pytest.mark.thorough)])
def test_runs_that_wait_come_one_after_the_other(
    place: StoreLocation, undisturbed: Workplace, tmp_path: Path, runs: int
) -> None:
    ended = run_at_once(place, undisturbed, tmp_path, runs, "--wait", str(PATIENCE))
    assert [code for code, _ in ended] == [0] * runs, ended
    assert sum("nothing new to learn" in said for _, said in ended) == runs - 1
    assert_once(place, undisturbed)


@pytest.mark.parametrize("runs", [2, pytest.param(8, marks=pytest.mark.thorough)])
def test_runs_that_do_not_wait_leave_with_their_own_code(
    place: StoreLocation, undisturbed: Workplace, tmp_path: Path, runs: int
) -> None:
    """Who comes late enough to find nothing new ends well; some run has done it all."""
    ended = run_at_once(place, undisturbed, tmp_path, runs)
    codes = [code for code, _ in ended]
    assert set(codes) <= {0, exit_codes.LOCKED}, ended
    assert codes.count(0) >= 1
    for code, said in ended:
        # a writer that leaves while it is asked for has no name any more
        named = r"ridgestream: .* is being written by (process \d+ on .*|another process); .* --wait SECONDS"
        assert code == 0 or re.search(named, said), said
    assert_once(place, undisturbed)


def test_who_waits_follows_a_writer_that_is_killed(
    place: StoreLocation, undisturbed: Workplace, tmp_path: Path
) -> None:
    job = undisturbed.job(JOB)
    log = tmp_path / "first"
    first = start_command("run", job, "--store", place.text, log=log)
    wait_until(lambda: Store.exists(place), first)
    os.kill(first.pid, 9)
    assert first.wait(PATIENCE) == -9
    ended = run_at_once(place, undisturbed, tmp_path, 2, "--wait", str(PATIENCE))
    assert [code for code, _ in ended] == [0, 0], ended
    assert_once(place, undisturbed)
