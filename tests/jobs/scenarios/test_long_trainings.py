"""A training that is killed again and again, with checkpoints: the same model and history as one that was not.

The clock is set so that every refresh is kept, and each run is killed at a moment that the test chooses.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs.jobs import (
    PATIENCE,
    Outcome,
    Workplace,
    assert_same_model,
    forest_job,
    open_store,
    put_forest,
    run_command,
    run_until,
    start_command,
    wait_until,
)

from ridgestream.jobs.cli import exit_codes
from ridgestream.pipeline.training.online import checkpoints as online_checkpoints
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.repository.garbage_collection import measure_bytes

ROWS, PARTITIONS = 20_000, 10
JOB = forest_job(ROWS, PARTITIONS, max_basis=48)

EVERY = "import ridgestream.pipeline.training.online.checkpoints as o; o.KEEP_SECONDS = o.COST = 0.0\n"
CLIENT = "ridgestream.stores.repository.client.RepositoryClient"
SAVE = "ridgestream.stores.catalog.checkpoints.Checkpoints.save"


def killed_at(place: str, calls: int, what: str = "die") -> str:
    """Statements by which the process does `what` when `place` has been called so often."""
    modules = "ridgestream.stores.catalog.checkpoints, ridgestream.stores.repository.client"
    return f"{EVERY}import {modules}\n{place} = after({calls}, {place}, {what})"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("undisturbed"))
    put_forest(work, ROWS, PARTITIONS)
    work.run_here(JOB)
    return work


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    put_forest(work, ROWS, PARTITIONS)
    return work


def history_without_times(record: ModelRecord) -> list[Any]:
    """The history without times and durations."""
    return [replace(night, finished_at="", seconds=0.0) for night in record.history]


def assert_same(one: Workplace, other: Workplace) -> None:
    assert_same_model(one.model(), other.model())
    assert history_without_times(one.model()) == history_without_times(other.model())


def rows_resumed_from(done: Outcome) -> int:
    """The number of rows after which the run resumed; zero if it started from the first row."""
    lines = [line for line in done.err.splitlines() if "train.started_from_checkpoint" in line]
    return int(lines[0].rpartition("rows=")[2]) if lines else 0


def branches(work: Workplace) -> list[str]:
    return sorted(open_store(work.store).repository.list_branches())


def test_killed_after_each_checkpoint_it_goes_on_from_the_last(work: Workplace, undisturbed: Workplace) -> None:
    """The second checkpoint of each run is the last that is kept whole."""
    begun = [rows_resumed_from(run_until(killed_at(SAVE, 2), work, JOB)) for _ in range(3)]
    step = 2 * ROWS // PARTITIONS
    assert begun == [0, step, 2 * step]
    done = run_command("run", work.job(JOB), "--json")
    assert done.code == 0, done
    assert rows_resumed_from(done) == 3 * step
    assert_same(work, undisturbed)
    assert branches(work) == ["main"]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_at_random_around_checkpoints(work: Workplace, undisturbed: Workplace, seed: int) -> None:
    """Each kill comes some milliseconds after a checkpoint was begun: while it is written, moved, or flushed."""
    rng = np.random.default_rng(seed)
    begun = [0]
    while begun[-1] < ROWS // 2:
        kill = f"lambda: threading.Timer({rng.uniform(0, 0.03)}, die).start()"
        begun.append(rows_resumed_from(run_until(killed_at(SAVE, int(rng.integers(0, 3)), kill), work, JOB)))
    assert begun == sorted(begun)
    work.run_here(JOB)
    assert_same(work, undisturbed)
    assert branches(work) == ["main"]


@pytest.mark.parametrize(
    "place",
    [
        "ridgestream.stores.catalog.checkpoints.Checkpoints._write",
        pytest.param(f"{CLIENT}.reset_branch", marks=pytest.mark.thorough),
        pytest.param(f"{CLIENT}.delete_branch", marks=pytest.mark.thorough),
    ],
)
def test_killed_between_the_steps_of_a_checkpoint(work: Workplace, undisturbed: Workplace, place: str) -> None:
    begun = [rows_resumed_from(run_until(killed_at(place, calls), work, JOB)) for calls in (3, 2, 1)]
    assert begun == sorted(begun)
    assert begun[-1] > begun[1] > 0
    work.run_here(JOB)
    assert_same(work, undisturbed)


@pytest.mark.thorough
def test_killed_while_superseded_checkpoints_are_deleted(work: Workplace, undisturbed: Workplace) -> None:
    """Collected after each checkpoint that superseded one: the new one is in its place by then."""
    collect = "import ridgestream.stores.catalog.checkpoints as c; c.COLLECT_BYTES = 0\n"
    for calls in (1, 2):
        run_until(
            collect + killed_at(f"{CLIENT}.garbage_collect", calls),
            work,
            JOB,
        )
    done = run_command("run", work.job(JOB), "--json")
    assert rows_resumed_from(done) == 6 * ROWS // PARTITIONS
    assert_same(work, undisturbed)


@pytest.mark.thorough
def test_checkpoints_left_by_a_kill_after_the_commit_do_no_harm(work: Workplace, undisturbed: Workplace) -> None:
    run_until(killed_at("ridgestream.stores.catalog.checkpoints.Checkpoints.delete", 0), work, JOB)
    assert len(branches(work)) == 2
    assert_same(work, undisturbed)
    done = run_command("run", work.job(JOB), "--json")
    assert (done.result["new_rows"], rows_resumed_from(done)) == (0, 0)
    summary = run_command("clean", work.store, "--older-than", "0", "--json").result
    assert summary["dropped_checkpoints"] == 1
    assert branches(work) == ["main"]
    assert_same(work, undisturbed)


@pytest.mark.thorough
def test_partitions_that_come_between_two_kills_are_learned_after_the_others(tmp_path: Path) -> None:
    work, straight = Workplace(tmp_path / "work"), Workplace(tmp_path / "straight")
    for each in (work, straight):
        each.folder.mkdir()
        put_forest(each, ROWS, PARTITIONS)
    later = sorted((work.folder / "rows").iterdir())[7:]
    moved = [path.rename(work.folder / path.name) for path in later]
    begun = []
    for arrived in range(2):
        done = run_until(killed_at(SAVE, 1), work, JOB)
        begun.append(rows_resumed_from(done))
        moved[arrived].rename(later[arrived])
    assert begun == [0, 2_000]
    moved[2].rename(later[2])
    done = run_command("run", work.job(JOB), "--json")
    assert rows_resumed_from(done) == 4_000
    straight.run_here(JOB)
    assert_same(work, straight)


@pytest.mark.thorough
def test_killed_in_the_middle_of_a_partition(tmp_path: Path) -> None:
    """One of 50,000 rows: the learner refreshes once on its way."""
    rows = 50_000
    job = forest_job(rows, 1, max_basis=32)
    work, straight = Workplace(tmp_path / "work"), Workplace(tmp_path / "straight")
    for each in (work, straight):
        each.folder.mkdir()
        put_forest(each, rows, 1)
    straight.run_here(job)
    run_until(killed_at(SAVE, 1), work, job)
    done = run_command("run", work.job(job), "--json")
    assert rows_resumed_from(done) == 32_768
    assert_same(work, straight)


@pytest.mark.thorough
def test_a_new_model_does_not_resume_the_training_of_an_older_one(work: Workplace, undisturbed: Workplace) -> None:
    work.run_here(JOB)
    changed = JOB | {"model.max_basis": 47}
    run_until(killed_at(SAVE, 3), work, changed, "--new-model")
    assert_same(work, undisturbed)
    done = run_until(killed_at(SAVE, 3), work, JOB, "--new-model")
    assert rows_resumed_from(done) == 0
    done = run_command("run", work.job(JOB), "--new-model", "--json")
    assert rows_resumed_from(done) == 3 * ROWS // PARTITIONS
    assert_same_model(work.model(), undisturbed.model())
    assert branches(work) == ["main"]


@pytest.mark.thorough
def test_a_later_night_and_its_refit_go_on_too(work: Workplace, tmp_path: Path) -> None:
    straight = Workplace(tmp_path / "straight")
    straight.folder.mkdir()
    put_forest(straight, ROWS, PARTITIONS)
    job = JOB | {"model.refit": True}
    late = sorted((work.folder / "rows").iterdir())[6:]
    for each in (work, straight):
        held = [(each.folder / "rows" / path.name).rename(each.folder / path.name) for path in late]
        each.run_here(job)
        for path in held:
            path.rename(each.folder / "rows" / path.name)
    straight.run_here(job)
    run_until(killed_at(SAVE, 2), work, job)
    place = "ridgestream.jobs.console.progress.LineReporter.begin"
    done = run_until(killed_at(place, 2), work, job)  # of the refit, after those of ingest and training
    assert rows_resumed_from(done) == 2 * ROWS // PARTITIONS
    done = run_command("run", work.job(job), "--json")
    assert rows_resumed_from(done) == 4 * ROWS // PARTITIONS
    assert_same(work, straight)


def size_of(work: Workplace) -> int:
    size = measure_bytes(open_store(work.store))
    assert size is not None
    return size


@pytest.mark.thorough
def test_a_store_is_as_large_after_many_checkpoints_as_after_none(
    work: Workplace, undisturbed: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for calls in (3, 2):
        run_until(killed_at(SAVE, calls), work, JOB)
    monkeypatch.setattr(online_checkpoints, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(online_checkpoints, "COST", 0.0)
    work.run_here(JOB)
    for each in (work, undisturbed):
        run_command("clean", each.store, "--older-than", "0", "--json")
    assert size_of(work) == pytest.approx(size_of(undisturbed), rel=0.02)
    assert_same(work, undisturbed)


def test_cleaning_by_the_command(work: Workplace) -> None:
    work.run_here(JOB)
    files: Callable[[], dict[Path, bytes]] = lambda: {  # noqa: E731
        path: path.read_bytes() for path in work.store.rglob("*") if path.is_file() and path.name != "writer.json"
    }
    before = files()
    summary = run_command("clean", work.job(JOB), "--json").result
    assert (summary["expired_snapshots"], summary["readers"]) == (0, 0)
    assert summary["store"] == str(work.store)
    assert files() == before
    would = run_command("clean", work.store, "--older-than", "0", "--dry-run", "--json").result
    assert files() == before
    done = run_command("clean", work.store, "--older-than", "0", "--json").result
    assert done["expired_snapshots"] == would["expired_snapshots"] > 0
    assert done["bytes_after"] == size_of(work)
    assert done["bytes_before"] - done["bytes_after"] == pytest.approx(done["freed_bytes"], abs=2000)
    before = files()
    again = run_command("clean", work.store, "--older-than", "0")
    assert again.code == 0
    assert "freed_bytes  0\n" in again.out
    assert files() == before
    assert run_command("clean", work.folder / "nowhere").code == exit_codes.STORE
    assert work.run_here(JOB)["new_rows"] == 0


@pytest.mark.thorough
def test_cleaning_waits_for_the_writer(work: Workplace, undisturbed: Workplace) -> None:
    first = start_command("run", work.job(JOB), log=work.folder / "log")
    wait_until(lambda: "event='ingest'" in (work.folder / "log").read_text(), first)
    done = run_command("clean", work.store)
    waited = run_command("clean", work.store, "--wait", str(PATIENCE), "--older-than", "0", "--json")
    assert first.wait(PATIENCE) == 0
    assert done.code in (exit_codes.LOCKED, 0)
    assert waited.code == 0, waited
    assert_same(work, undisturbed)
