"""The command status: one line and an exit code for each thing that may be wrong with a job."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.jobs.jobs import ROWS, Settings, Workplace, draw_rows, open_store, run_command, set_column

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.commands.history import run_rollback
from ridgestream.jobs.commands.status import parse_age, run_status
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError

JOB: Settings = {"report": "out", "model.guard": 0.05, "model.max_basis": 60}
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("healthy"))
    work.put_all(range(3))
    work.run_here(JOB)
    return work


@pytest.fixture
def work(healthy: Workplace, tmp_path: Path) -> Workplace:
    shutil.copytree(healthy.folder, tmp_path, dirs_exist_ok=True)
    return Workplace(tmp_path)


def status_of(work: Workplace, max_age: timedelta | None = None, now: datetime | None = None) -> dict[str, Any]:
    return run_status(read_job(work.job(JOB), {}), max_age, now)


def contents(work: Workplace) -> dict[Path, int]:
    """The files of the store with their time stamps, but for the marks of readers."""
    files = (path for path in work.store.rglob("*") if path.is_file() and path.parent.name != "readers")
    return {path: path.stat().st_mtime_ns for path in files}


def lose_store(work: Workplace) -> None:
    shutil.rmtree(work.store)


def spoil_store(work: Workplace) -> None:
    for path in work.store.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")


def fail_a_night(work: Workplace) -> None:
    run_command("run", work.job({**JOB, "source.path": "nowhere"}, "bad.toml"))


def lose_the_cluster(work: Workplace) -> None:
    run_command("run", work.job({**JOB, "cluster_seconds": 0.2}, "bad.toml"), "--cluster", "127.0.0.1:9")


def use_the_store(work: Workplace) -> None:
    with open_store(work.store).lock():
        assert run_command("run", work.job(JOB)).code == exit_codes.LOCKED


def name_another_model(work: Workplace) -> None:
    work.job({**JOB, "model.name": "other"})


def hold_back(work: Workplace) -> None:
    for number in (3, 4, 5):
        rows = draw_rows(number)
        work.put(number, set_column(rows, "label", [2 if each != 2 else 1 for each in rows["label"].to_pylist()]))
    assert run_command("run", work.job(JOB)).code == exit_codes.HELD


def drift(work: Workplace) -> None:
    rows = draw_rows(3)
    work.put(3, set_column(rows, "x1", [value * 3.28 for value in rows["x1"].to_pylist()]))
    assert run_command("run", work.job({**JOB, "model.guard": 1.0})).code == 0


def nothing(work: Workplace) -> None:
    pass


UNHEALTHY: dict[str, tuple[Callable[[Workplace], None], str, int, str]] = {
    "healthy": (nothing, "ok", 0, "night 1 finished"),
    "no store": (lose_store, "store", exit_codes.STORE, "there is no store at"),
    "damaged store": (spoil_store, "store", exit_codes.STORE, "store"),
    "no model": (name_another_model, "model", exit_codes.MODEL, "no model of this name"),
    "no source": (fail_a_night, "failed", exit_codes.NIGHT_FAILED, "nowhere"),
    "no scheduler": (lose_the_cluster, "failed", exit_codes.NIGHT_FAILED, "no scheduler answers"),
    "a store in use": (use_the_store, "failed", exit_codes.NIGHT_FAILED, "failed: "),
    "held back": (hold_back, "guard", exit_codes.HELD, "that of night 1 is served"),
    "drift": (drift, "drift", exit_codes.DRIFTED, "part-03.parquet unlike"),
}
"""What may be wrong: how it comes, the status, the exit code, and what the line says."""


@pytest.mark.samples
@pytest.mark.parametrize("name", UNHEALTHY)
def test_what_is_wrong_has_a_line_and_an_exit_code(work: Workplace, name: str) -> None:
    happen, status, code, expected = UNHEALTHY[name]
    job = work.job(JOB)
    happen(work)
    before = contents(work)
    shown = run_command("status", job)
    assert (shown.code, shown.err) == (code, "")
    (line,) = shown.out.splitlines()
    assert line.startswith(f"{status}: ")
    assert expected in line
    result = run_command("status", job, "--json")
    facts = json.loads(result.out)
    assert (result.code, facts["status"], expected in facts["message"]) == (code, status, True)
    assert [problem["kind"] for problem in facts["problems"]][:1] == ([] if status == "ok" else [status])
    assert contents(work) == before


def test_a_feed_that_has_stopped_is_told_by_the_age_of_the_last_new_partition(work: Workplace) -> None:
    fed_at = datetime.fromisoformat(work.model().history[-1].finished_at)
    assert status_of(work, DAY, fed_at + DAY)["status"] == "ok"
    stopped = status_of(work, DAY, fed_at + 2 * DAY)
    assert (stopped["status"], stopped["fed_hours_ago"]) == ("feed", 48.0)
    assert "no new partition for 48 h (--max-age 24 h)" in stopped["message"]
    assert status_of(work, None, fed_at + 999 * DAY)["status"] == "ok"
    assert run_command("status", work.job(JOB), "--max-age", "0m").code == exit_codes.FEED_STOPPED


def test_a_night_without_new_partitions_does_not_feed_the_model(work: Workplace) -> None:
    fed_at = status_of(work)["fed_at"]
    work.run_here({**JOB, "model.regularization": 1e-3, "model.guard": 1.0})
    assert (status_of(work)["night"], status_of(work)["fed_at"]) == (2, fed_at)


@pytest.mark.thorough
def test_several_problems_are_named_and_the_worst_decides(work: Workplace) -> None:
    hold_back(work)
    fail_a_night(work)
    facts = status_of(work, DAY, datetime.now(UTC) + 3 * DAY)
    kinds = [problem["kind"] for problem in facts["problems"]]
    assert kinds[:3] == ["failed", "feed", "guard"]
    assert facts["status"] == "failed"
    assert all(problem["message"] in facts["message"] for problem in facts["problems"])


@pytest.mark.thorough
def test_the_success_that_follows_a_failure_clears_it_and_so_does_a_good_night_for_drift(work: Workplace) -> None:
    fail_a_night(work)
    assert run_command("run", work.job(JOB)).code == 0
    assert status_of(work)["status"] == "ok"
    drift(work)
    run_rollback(read_job(work.job(JOB), {}), 1, 0.0, replay=False)
    assert status_of(work)["status"] == "ok"


def test_a_report_of_a_failure_before_the_last_commit_does_not_count(work: Workplace) -> None:
    fail_a_night(work)
    (report,) = (work.folder / "out").glob("*.failed.json")
    facts = json.loads(report.read_text())
    report.write_text(json.dumps({**facts, "finished_at": "2020-01-01T00:00:00+00:00"}))
    assert status_of(work)["status"] == "ok"
    report.write_text("{")
    assert status_of(work)["status"] == "ok"


def test_a_night_that_learned_and_was_not_evaluated_has_failed(work: Workplace) -> None:
    polynomial = {**JOB, "model.name": "cubic", "model.kernel.name": "polynomial", "model.kernel.degree": 5}
    work.put(0, set_column(draw_rows(1000), "x0", [1e99] * ROWS), where="held-out")
    assert run_command("run", work.job(polynomial)).code == exit_codes.DATA
    facts = run_status(read_job(work.job(polynomial), {}), None)
    assert facts["status"] == "failed"
    assert "has learned, but failed then" in facts["message"]


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("90m", timedelta(minutes=90)),
        ("36h", timedelta(hours=36)),
        ("1.5h", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        ("none", None),
    ],
)
def test_an_age_has_a_unit(text: str, age: timedelta | None) -> None:
    assert parse_age(text) == age


@pytest.mark.parametrize("text", ["", "36", "36 h", "-1h", "h", "1w", "1e9d", "nan", "9" * 9 + "d", "36h\n"])
def test_any_other_age_is_refused(text: str) -> None:
    with pytest.raises(JobFileError, match="--max-age is a number of minutes, hours or days"):
        parse_age(text)
