"""Every night that fails leaves a report, whatever it failed by, and the success that follows replaces it."""

import json
import signal
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.jobs.jobs import ROWS, Settings, Workplace, draw_rows, open_store, run_command, set_column
from support.jobs.recording import Notes
from support.points import points
from support.stores.object_store import object_store

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.report.facts import failure_facts
from ridgestream.jobs.report.failed_reports import failed_reports, last_failure, replace_failed_reports
from ridgestream.jobs.runs.recorder import Recorder
from ridgestream.pipeline.base.reporter import Stopped
from ridgestream.stores.errors.exceptions import ModelError

REPORTS: Settings = {"report": "out"}
NOWHERE = "tcp://127.0.0.1:9"
"""An address at which nothing listens."""


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    return work


@dataclass(frozen=True)
class Failure:
    """Why a night fails."""

    code: int
    error: str
    changes: Settings = field(default_factory=dict)
    is_locked: bool = False
    is_spoilt: bool = False
    flags: tuple[str, ...] = ()


FAILURES = {
    "no scheduler answers": Failure(
        exit_codes.CLUSTER, "ClusterError", {"cluster_seconds": 0.5}, flags=("--cluster", NOWHERE)
    ),
    "the scheduler's file is missing": Failure(
        exit_codes.CLUSTER, "ClusterError", {"cluster_seconds": 0.1}, flags=("--cluster", "file:nowhere.json")
    ),
    "the store is in use": Failure(exit_codes.LOCKED, "StoreLocked", is_locked=True),
    "a partition is spoilt": Failure(exit_codes.DATA, "PartitionError", is_spoilt=True),
    "there is no source": Failure(exit_codes.DATA, "PartitionError", {"source.path": "nowhere"}),
    "there is no memory": Failure(exit_codes.MEMORY, "MemoryRefused", {"memory_limit": 1}),
    "another model is asked for": Failure(exit_codes.MODEL, "ModelError", {"model.max_basis": 19}),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", points(FAILURES, ["no scheduler answers", "a partition is spoilt", "the store is in use"])
)
def test_a_night_that_fails_leaves_a_report_which_the_success_that_follows_replaces(work: Workplace, name: str) -> None:
    failure, good = FAILURES[name], work.job(REPORTS)
    assert run_command("run", good).code == 0
    work.put(1, set_column(draw_rows(1), "x1", [None] * ROWS) if failure.is_spoilt else None)
    bad = work.job({**REPORTS, **failure.changes}, "bad.toml")
    locked: AbstractContextManager[None] = open_store(work.store).lock() if failure.is_locked else nullcontext()
    with locked:
        outcome = run_command("run", bad, *failure.flags)
    assert outcome.code == failure.code, outcome
    assert "report.failure_written" in outcome.err
    facts = last_failure(read_job(bad, {}))
    assert facts is not None
    assert (facts["event"], facts["error"], facts["model"]) == ("failed", failure.error, "model")
    work.put(1)
    assert run_command("run", good).code == 0
    assert last_failure(read_job(good, {})) is None
    names = [f"model-{night}.{kind}" for night in ("0001", "0002") for kind in ("html", "json")]
    assert sorted(path.name for path in (work.folder / "out").iterdir()) == names


@pytest.mark.thorough
def test_a_night_with_nothing_new_replaces_the_report_of_a_failure_too(work: Workplace) -> None:
    good = work.job(REPORTS)
    run_command("run", good)
    failed = run_command("run", work.job({**REPORTS, "source.path": "nowhere"}, "bad.toml"))
    assert failed.code == exit_codes.DATA
    assert len(failed_reports(work.folder / "out", "model")) == 2
    assert run_command("run", good).code == 0
    assert failed_reports(work.folder / "out", "model") == []


def test_nights_that_are_refused_alike_leave_one_report(work: Workplace) -> None:
    work.run_here(REPORTS)
    for max_basis in (18, 19):
        with pytest.raises(ModelError, match=f"max_basis was 20, is {max_basis}"):
            work.run_here({**REPORTS, "model.max_basis": max_basis})
    (page, facts), folder = failed_reports(work.folder / "out", "model"), work.folder / "out"
    assert (page, facts) == (folder / "model-0002.failed.html", folder / "model-0002.failed.json")
    assert "is 19; give the model" in (folder / "model-0002.failed.json").read_text()


def test_only_the_reports_of_the_model_s_failures_are_deleted(work: Workplace) -> None:
    folder = work.folder / "out"
    folder.mkdir()
    others = ["model-0001.json", "model-2-0001.failed.json", "xmodel-0001.failed.json", "model-0001.failed.json.bak"]
    own = ["model-0000.failed.json", "model-0012.failed.html", "model-10000.failed.json"]
    for name in [*others, *own]:
        (folder / name).write_text("{}")
    assert [path.name for path in failed_reports(folder, "model")] == own
    replace_failed_reports(read_job(work.job(REPORTS), {}), Notes())
    assert sorted(path.name for path in folder.iterdir()) == sorted(others)


def test_a_report_that_cannot_be_deleted_is_a_warning(work: Workplace) -> None:
    nowhere = {"report": "s3://bucket/out", "storage.endpoint_url": "http://127.0.0.1:9"}
    notes = Notes()
    replace_failed_reports(read_job(work.job(nowhere), {}), notes)
    assert [code for code, _ in notes.events] == ["report.failure_not_deleted"]


def test_reports_of_failures_in_an_object_store_are_found_and_replaced(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_store(work.folder) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        job = read_job(work.job({"report": server.location("out")}), {})
        assert last_failure(job) is None
        for key in ("model-0001.failed.json", "model-0003.failed.json", "model-0001.json"):
            server.put(f"out/{key}", json.dumps({"finished_at": key}).encode())
        failure = last_failure(job)
        assert failure is not None
        assert failure["finished_at"] == "model-0003.failed.json"
        replace_failed_reports(job, Notes())
        assert [key for key in server.keys("out") if key] == ["model-0001.json"]  # Arrow leaves a mark of the folder
        assert last_failure(job) is None


def test_a_run_that_was_stopped_says_by_which_signal(work: Workplace) -> None:
    job = read_job(work.job(REPORTS), {})
    facts = failure_facts(job, Recorder(Notes()), Stopped(signal.SIGTERM))
    assert (facts["failure"], facts["words"]["sentences"][0]) == ("terminated by SIGTERM",) * 2
