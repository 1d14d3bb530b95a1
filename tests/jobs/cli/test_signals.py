"""SIGTERM and SIGINT: whatever a run is doing, it stops soon, with its exit code, and keeps what it learned.

Where a test must know what the run is at, the run sends itself the signal, or says that it is there.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.jobs.clusters import real_cluster
from support.jobs.jobs import (
    AFTER,
    PATIENCE,
    Outcome,
    Workplace,
    assert_same_model,
    clean_environment,
    forest_job,
    killed_at_last,
    open_store,
    put_forest,
    run_command,
    run_prepared,
    wait_until,
)

from ridgestream.jobs.cli import exit_codes

ROWS, PARTITIONS = 12_000, 6
JOB = forest_job(ROWS, PARTITIONS, max_basis=32)
STEP = ROWS // PARTITIONS

SETUP = f"""{AFTER}
import os, signal, sys, time
import ridgestream.jobs.cli.app, ridgestream.jobs.cli.signals
import ridgestream.jobs.console.progress, ridgestream.pipeline.ingest.ingest
def ask(number=signal.SIGTERM):
    os.kill(os.getpid(), number)
    time.sleep(0.2)  # until it has been received
def hang(*arguments, **named):
    "Half an hour in native code that no signal breaks."
    import hashlib
    print("hangs", file=sys.stderr, flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""
SOON = "ridgestream.jobs.cli.signals.SOFT_SECONDS = 0.1\n"
ADVANCE = "ridgestream.jobs.console.progress.LineReporter.advance"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return make_work(tmp_path_factory.mktemp("undisturbed"), ran=True)


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    return make_work(tmp_path)


def make_work(folder: Path, *, ran: bool = False) -> Workplace:
    work = Workplace(folder)
    put_forest(work, ROWS, PARTITIONS)
    if ran:
        work.run_here(JOB)
    return work


def program(setup: str) -> list[str]:
    return [sys.executable, "-c", f"{SETUP}\n{setup}\nridgestream.jobs.cli.app.main()"]


def run_signalled(setup: str, command: str, *arguments: str | Path) -> Outcome:
    """Run a command in a process that sends itself signals, as the statements `setup` say."""
    return run_prepared(f"{SETUP}\n{setup}", command, *arguments)


@contextmanager
def started(log: Path, setup: str, *arguments: str | Path, **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A running command, the first of a process group, in a process that the statements `setup` prepare."""
    command, env = [*program(setup), *map(str, arguments)], clean_environment(**environment)
    with log.open("wb") as err:
        process = subprocess.Popen(
            command, stdout=err, stderr=err, env=env, stdin=subprocess.DEVNULL, start_new_session=True
        )
    with killed_at_last(process):
        yield process


def rows_at_checkpoint(done: Outcome) -> int:
    lines = [line for line in done.err.splitlines() if "train.started_from_checkpoint" in line]
    return int(lines[0].rpartition("rows=")[2]) if lines else 0


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        ("SIGTERM", exit_codes.TERMINATED, "terminated"),
        pytest.param("SIGINT", exit_codes.INTERRUPTED, "interrupted", marks=pytest.mark.thorough),
    ],
)
def test_a_training_keeps_its_last_refresh_and_goes_on_from_there(
    work: Workplace, undisturbed: Workplace, number: str, code: int, word: str
) -> None:
    """The half minute after which a checkpoint is due has not passed."""
    setup = f"{ADVANCE} = after({PARTITIONS + 3}, {ADVANCE}, lambda: ask(signal.{number}))"
    done = run_signalled(setup, "run", work.job(JOB), "--json")
    assert (done.code, done.out) == (code, "")
    *_, checkpoint, last = done.err.splitlines()
    assert "stopped: a checkpoint is saved, and the same command continues from there" in checkpoint
    assert last == f"ridgestream: {word}; the last commit stands, and the same command continues from there"
    done = run_command("run", work.job(JOB), "--json")
    assert rows_at_checkpoint(done) == 3 * STEP
    assert done.result["rows_seen"] == ROWS
    assert_same_model(work.model(), undisturbed.model())
    assert sorted(open_store(work.store).repository.list_branches()) == ["main"]


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["refit", pytest.param("evaluate", marks=pytest.mark.thorough)])
def test_learned_rows_are_kept_when_a_refit_or_an_evaluation_is_stopped(
    work: Workplace, tmp_path: Path, step: str
) -> None:
    pq.write_table(pq.read_table(work.folder / "rows" / "part-00.parquet"), work.folder / "held.parquet")
    job = {**JOB, "model.refit": step == "refit", "evaluate.path": "held.parquet"}
    setup = f"""
begin = ridgestream.jobs.console.progress.LineReporter.begin
def begin_or_ask(self, step, total_rows, **facts):
    if step.code == {step!r}:
        ask()
    return begin(self, step, total_rows, **facts)
ridgestream.jobs.console.progress.LineReporter.begin = begin_or_ask
"""
    assert run_signalled(setup, "run", work.job(job)).code == exit_codes.TERMINATED
    done = run_command("run", work.job(job), "--json")
    assert rows_at_checkpoint(done) == ROWS
    straight = make_work(tmp_path / "straight")
    pq.write_table(pq.read_table(work.folder / "rows" / "part-00.parquet"), straight.folder / "held.parquet")
    straight.run_here(job)
    assert_same_model(work.model(), straight.model())
    assert work.model().history[-1].test_error == straight.model().history[-1].test_error


@pytest.mark.thorough
def test_a_batch_method_keeps_what_a_pass_has_summed(work: Workplace, tmp_path: Path) -> None:
    job = {**JOB, "model.max_basis": None, "model.method": "subset-of-regressors"}
    job["model.subset_of_regressors.start_basis"] = 20
    setup = f"""
import ridgestream.pipeline.base.pass_checkpoint
ridgestream.pipeline.base.pass_checkpoint.WORTH_SECONDS = 0.0
{ADVANCE} = after({PARTITIONS + 3}, {ADVANCE}, ask)
"""
    done = run_signalled(setup, "run", work.job(job))
    assert done.code == exit_codes.TERMINATED
    assert "stopped: a checkpoint is saved" in done.err
    told = "rows = []\nreal = ridgestream.jobs.console.progress.LineReporter.advance\n"
    told += "def tell(self, n, **facts):\n    print('rows', n, file=sys.stderr)\n    real(self, n, **facts)\n"
    done = run_signalled(f"{told}{ADVANCE} = tell", "run", work.job(job), "--json")
    assert done.code == 0, done
    assert f"rows {3 * STEP}" in done.err.splitlines()  # those of the tasks before, at once
    straight = make_work(tmp_path / "straight")
    straight.run_here(job)
    assert_same_model(work.model(), straight.model())


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


HANGING_WORKERS = """
import sys
if "--multiprocessing-fork" in sys.argv:
    import pathlib, time
    import ridgestream.pipeline.ingest.partition_profile
    def hang(*arguments, **named):
        pathlib.Path(__file__).with_name("hangs").touch()
        time.sleep(10**6)
    ridgestream.pipeline.ingest.partition_profile.profile_partition = hang
"""


@pytest.mark.thorough
def test_local_workers_do_not_outlive_the_run(work: Workplace, undisturbed: Workplace) -> None:
    """The signal is sent to the run alone, during its ingest, whose tasks never end."""
    hanging, log = work.folder / "hanging", work.folder / "log"
    hanging.mkdir()
    (hanging / "sitecustomize.py").write_text(HANGING_WORKERS)
    arguments = ("run", work.job(JOB), "--cluster", "local:2")
    with started(log, SOON, *arguments, PYTHONPATH=str(hanging)) as process:
        wait_until((hanging / "hangs").exists, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == exit_codes.TERMINATED, log.read_text()
        assert log.read_text().splitlines()[-1].startswith("ridgestream: terminated")
        wait_until(lambda: not group_lives(process.pid))
    work.run_here(JOB)
    assert_same_model(work.model(), undisturbed.model())


WAITS_ALOUD = (
    SOON
    + """
import filelock
real = filelock.FileLock.acquire
def acquire(*arguments, **named):
    print("waits", file=sys.stderr, flush=True)
    return real(*arguments, **named)
filelock.FileLock.acquire = acquire
"""
)


@pytest.mark.thorough
def test_a_run_that_waits_for_another_writer_stops(work: Workplace) -> None:
    work.run_here(JOB)
    before, log = work.snapshot(), work.folder / "log"
    with open_store(work.store).lock(), started(log, WAITS_ALOUD, "run", work.job(JOB), "--wait", "9999") as process:
        wait_until(lambda: "waits" in log.read_text(), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == exit_codes.TERMINATED
    assert log.read_text().splitlines()[-1].startswith("ridgestream: terminated")
    assert work.snapshot() == before


@pytest.mark.thorough
def test_a_run_that_waits_for_workers_stops(work: Workplace) -> None:
    log = work.folder / "log"
    wait = ("--set", "cluster_seconds=9999")
    with (
        real_cluster(work.folder, 0) as cluster,
        started(log, SOON, "run", work.job(JOB), "--cluster", cluster.address, *wait) as process,
    ):
        wait_until(lambda: (work.folder / "cluster.log").read_text().count("Receive client") >= 2, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == exit_codes.TERMINATED
    assert log.read_text().splitlines()[-1].startswith("ridgestream: terminated")
    assert not work.store.exists()


def test_workers_that_a_signal_prevents_from_starting_are_no_cluster_failure(work: Workplace) -> None:
    setup = """
import ridgestream.jobs.cluster.dask_executor
def start(*_):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)
    raise ridgestream.jobs.cluster.cluster_error.ClusterError("the 2 workers of this machine did not start")
ridgestream.jobs.cluster.dask_executor.start_workers = start
"""
    done = run_signalled(setup, "run", work.job(JOB), "--cluster", "local:2")
    assert done.code == exit_codes.TERMINATED, done
    assert "did not start" not in done.err


def test_a_stopped_prediction_leaves_complete_files_and_the_same_command_finishes_it(work: Workplace) -> None:
    work.run_here(JOB)
    setup = f"{ADVANCE} = after(2, {ADVANCE}, ask)"
    arguments: tuple[Any, ...] = ("predict", work.job(JOB), work.folder / "rows", work.folder / "out")
    done = run_signalled(setup, *arguments)
    assert done.code == exit_codes.TERMINATED
    names = sorted(path.name for path in (work.folder / "out").iterdir())
    assert names == [f"part-0{i}.parquet" for i in range(3)]
    assert run_command(*arguments, "--json").result["rows"] == ROWS
    assert pq.read_table(work.folder / "out").num_rows == ROWS


HANGS = "ridgestream.pipeline.ingest.partition_task.profile_partition = hang\n"


@pytest.mark.thorough
def test_a_run_that_hangs_in_native_code_is_ended(work: Workplace, undisturbed: Workplace) -> None:
    log = work.folder / "log"
    with started(log, f"{SOON}{HANGS}ridgestream.jobs.cli.signals.HARD_SECONDS = 1.0", "run", work.job(JOB)) as process:
        wait_until(lambda: "hangs" in log.read_text(), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == exit_codes.TERMINATED
    assert log.read_text().splitlines()[-1].startswith("ridgestream: terminated; ended after 1 s, not stopped")
    work.run_here(JOB)
    assert_same_model(work.model(), undisturbed.model())


@pytest.mark.thorough
def test_a_second_signal_ends_at_once_and_a_repeated_one_does_not(work: Workplace) -> None:
    """`timeout` sends a signal twice."""
    log = work.folder / "log"
    never = "ridgestream.jobs.cli.signals.HARD_SECONDS = ridgestream.jobs.cli.signals.SOFT_SECONDS = 1e6\n"
    noted = """
next_signal = ridgestream.jobs.cli.signals._next_signal
def next_and_tell(ours, seconds):
    number = next_signal(ours, seconds)
    print("came", number, file=sys.stderr, flush=True)
    return number
ridgestream.jobs.cli.signals._next_signal = next_and_tell
"""
    with started(log, HANGS + never + noted, "run", work.job(JOB)) as process:
        wait_until(lambda: "hangs" in log.read_text(), process)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: "came" in log.read_text(), process)
        subprocess.run(["sleep", "0.6"], check=True)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == exit_codes.INTERRUPTED
    assert log.read_text().splitlines()[-1].startswith("ridgestream: interrupted; ended at once")
