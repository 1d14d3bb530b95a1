"""After a kill −9 at any moment, the same command gives the model of an undisturbed run, with every row once."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from benchmarks.crash_matrix import run_matrix
from support.jobs.crashes import MODES, CrashBench, Kill, crash_bench, kill_all, spread
from support.jobs.jobs import clean_environment
from support.stores.object_store import ObjectStore, object_store
from support.stores.storage_calls import CallTrap, FolderTrap, open_trap


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, server: ObjectStore) -> Iterator[CrashBench]:
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patched, crash_bench(folder, server, quick=True) as bench:
        for name, value in server.environment.items():
            patched.setenv(name, value)
        yield bench


@pytest.mark.thorough
@pytest.mark.parametrize(("series", "kills", "landed"), [(1, 1, 2), pytest.param(2, 5, 11, marks=pytest.mark.thorough)])
def test_kills_at_changes_of_the_store_are_recovered(bench: CrashBench, series: int, kills: int, landed: int) -> None:
    early = [spread("alone", "call", kills, seed, until=0.5) for seed in range(series)]
    late = [[kill] for kill in spread("alone", "call", 4 * series, 2)[2 * series :]]
    results = kill_all(bench, early + late, at_once=2)
    assert sum(result.landed for result in results) >= landed
    assert {result.code for result in results if result.landed} == {-9}


@pytest.mark.thorough
def test_kills_at_any_time_are_recovered(bench: CrashBench) -> None:
    results = kill_all(bench, [spread("alone", "time", 3, 3 + seed, until=0.8) for seed in range(2)], at_once=2)
    assert sum(result.landed for result in results) >= 3


@pytest.mark.thorough
@pytest.mark.parametrize(("kills", "late", "landed"), [(1, 1, 1), pytest.param(7, 3, 8, marks=pytest.mark.thorough)])
def test_kills_at_requests_to_an_object_store_are_recovered(
    bench: CrashBench, kills: int, late: int, landed: int
) -> None:
    """Some of the requests still reach the server, others do not."""
    early = spread("alone", "request", kills, 4, until=0.6)
    series = [early, *([kill] for kill in spread("alone", "request", 2 * late, 5)[late:])]
    assert sum(result.landed for result in kill_all(bench, series, at_once=2)) >= landed


@pytest.mark.thorough
def test_kills_of_the_whole_cluster_and_then_of_one_worker_are_recovered(bench: CrashBench) -> None:
    """The last worker is killed while it writes; the run continues without it or reports that it cannot."""
    results = kill_all(
        bench, [[Kill("cluster", "call", 0.1), Kill("cluster", "call", 0.2), Kill("worker", "call", 0.1)]]
    )
    assert [result.landed for result in results] == [True] * 3
    assert [result.code for result in results[:2]] == [-9, -9]


@pytest.mark.thorough
def test_a_kill_of_the_scheduler_is_recovered(bench: CrashBench) -> None:
    results = kill_all(bench, [[Kill("scheduler", "call", 0.2)]])
    assert [result.landed for result in results] == [True]


WRITES = """
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
for number in range(1000):
    new = folder / f"new-{number}"
    new.write_text("text")
    new.rename(folder / f"old-{number}")
"""


@pytest.mark.samples
@pytest.mark.parametrize("trap", [CallTrap, FolderTrap, open_trap])
def test_a_trap_kills_a_writer_at_the_chosen_change(tmp_path: Path, trap: type[CallTrap] | type[FolderTrap]) -> None:
    """Where calls cannot be filtered, the folder is polled, which is less exact but also kills."""
    folder = tmp_path / "written"
    folder.mkdir()
    killed: list[int] = []

    def kill(process: int, caller: int) -> None:
        del caller
        killed.append(process)
        os.kill(process, signal.SIGKILL)

    running = trap([sys.executable, "-c", WRITES, str(folder)], folder, kill, 5, tmp_path / "log", clean_environment())
    assert running.wait(60) == -signal.SIGKILL
    assert killed == [running.process.pid]
    names = {path.name for path in folder.iterdir()}
    assert 0 < len(names) < 1000
    if not isinstance(running, FolderTrap):
        assert [call.partition(" ")[0] for call in running.calls] == ["openat", "write", "rename", "openat", "write"]
        assert names == {"old-0", "new-1"}
        assert (folder / "new-1").read_text() == ""


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_fifty_kills_in_each_mode_are_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ObjectStore
) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)  # undone after the test
    counts: Mapping[str, Mapping[str, int]] = run_matrix(tmp_path, kills=50)
    assert {mode: count["kills"] >= 50 for mode, count in counts.items()} == dict.fromkeys(MODES, True)
