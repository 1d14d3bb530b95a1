"""Concurrent runs of one job, on a folder and on an S3-protocol server: every partition once, and no run lost."""

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
from support.points import points
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


LOCATIONS = ("folder", "object store")


@pytest.fixture
def location(request: pytest.FixtureRequest, tmp_path: Path, server: ObjectStore) -> StoreLocation:
    return StoreLocation(str(tmp_path / "store") if request.param == "folder" else server.location(tmp_path.name))


def run_at_once(
    location: StoreLocation, undisturbed: Workplace, folder: Path, runs: int, *arguments: str
) -> list[tuple[int, str]]:
    """Start `runs` commands and return the exit code and log of each."""
    job = undisturbed.job(JOB)
    logs = [folder / f"log-{number}" for number in range(runs)]
    started = [start_command("run", job, "--store", location.text, *arguments, log=log) for log in logs]
    return [(run.wait(2 * PATIENCE), log.read_text()) for run, log in zip(started, logs, strict=True)]


def assert_once(location: StoreLocation, undisturbed: Workplace) -> None:
    """Check: every partition once, one night, the model of the undisturbed run, and commits of successive writers."""
    store = Store.open(location)
    root = store.root()
    entries, record = read_ledger(root).entries, require_model(root, "model")
    assert [entry.name for entry in entries] == [f"part-{n:02d}.parquet" for n in range(PARTITIONS)]
    assert bits_of(record) == bits_of(read_model_at(undisturbed.store))
    assert record.counters["rows_seen"] == PARTITIONS * ROWS
    assert [night.number for night in record.history] == [1]
    assert store.tags() == {night_tag("model", 1)}
    messages = [commit.message for commit in store.repository.ancestry(branch=BRANCH)]
    assert len(messages) == 4, messages  # the repository, the store, the partitions, a night


@pytest.mark.thorough
@pytest.mark.parametrize("location", points(LOCATIONS, ["object store"]), indirect=True)
@pytest.mark.parametrize("runs", points([2, 8], [2]))
def test_runs_that_wait_execute_one_after_the_other(
    location: StoreLocation, undisturbed: Workplace, tmp_path: Path, runs: int
) -> None:
    outcomes = run_at_once(location, undisturbed, tmp_path, runs, "--wait", str(PATIENCE))
    assert [code for code, _ in outcomes] == [0] * runs, outcomes
    assert sum("nothing new to learn" in log for _, log in outcomes) == runs - 1
    assert_once(location, undisturbed)


@pytest.mark.parametrize("location", points(LOCATIONS, ["folder"]), indirect=True)
@pytest.mark.parametrize("runs", points([2, 8], [2]))
def test_runs_that_do_not_wait_exit_with_their_own_code(
    location: StoreLocation, undisturbed: Workplace, tmp_path: Path, runs: int
) -> None:
    """A run late enough to find nothing new exits with 0; one of the runs has done all the work."""
    outcomes = run_at_once(location, undisturbed, tmp_path, runs)
    codes = [code for code, _ in outcomes]
    assert set(codes) <= {0, exit_codes.LOCKED}, outcomes
    assert codes.count(0) >= 1
    for code, log in outcomes:
        # a writer that exits at that moment has no name any more
        message = r"ridgestream: .* is being written by (process \d+ on .*|another process); .* --wait SECONDS"
        assert code == 0 or re.search(message, log), log
    assert_once(location, undisturbed)


@pytest.mark.thorough
@pytest.mark.parametrize("location", points(LOCATIONS, ["folder"]), indirect=True)
def test_waiting_runs_continue_after_a_writer_is_killed(
    location: StoreLocation, undisturbed: Workplace, tmp_path: Path
) -> None:
    job = undisturbed.job(JOB)
    log = tmp_path / "first"
    first = start_command("run", job, "--store", location.text, log=log)
    wait_until(lambda: Store.exists(location), first)
    os.kill(first.pid, 9)
    assert first.wait(PATIENCE) == -9
    outcomes = run_at_once(location, undisturbed, tmp_path, 2, "--wait", str(PATIENCE))
    assert [code for code, _ in outcomes] == [0, 0], outcomes
    assert_once(location, undisturbed)
