"""Stopped at any moment, the store is as its last commit left it, and the same command continues to the same bits."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.jobs.jobs import (
    COMMAND,
    PATIENCE,
    Workplace,
    assert_same_model,
    clean_environment,
    forest_job,
    open_store,
    put_forest,
    run_command,
    run_until,
    start_command,
    wait_until,
)
from support.points import points

from ridgestream.jobs.cli import exit_codes
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import list_models
from ridgestream.stores.segments.segments import Segments

PARTITIONS, ROWS = 20, 30_000
JOB = forest_job(ROWS, PARTITIONS, max_basis=64)
"""About a second of training, after two commits of partitions."""

NIGHTS = 20
"""Partitions of the small job: two commits."""


KILLED_AT_FILES = [
    pytest.param(files, marks=() if number == 3 else pytest.mark.thorough)
    for number, files in enumerate(sorted(np.random.default_rng(0).integers(0, 60, 5).tolist()))
]

PROGRESS = "ridgestream.jobs.console.progress.LineReporter.advance"
FLUSH = "ridgestream.stores.repository.repository.flush_folder"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("undisturbed"))
    put_forest(work, ROWS, PARTITIONS)
    work.run_here(JOB)
    return work


@pytest.fixture(scope="module")
def small_undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("small"))
    work.put_all(range(NIGHTS))
    work.run_here()
    return work


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    put_forest(work, ROWS, PARTITIONS)
    return work


class Run:
    """A running command, and its output so far."""

    def __init__(self, work: Workplace, *arguments: str) -> None:
        self.work, self.log = work, work.folder / "log"
        self.process = start_command("run", work.job(JOB), "--json", *arguments, log=self.log)

    def wait_for_ingest(self) -> None:
        wait_until(lambda: any(self.work.store.glob("chunks/*")), self.process)

    def wait_for_train(self) -> None:
        wait_until(lambda: "event='ingest'" in self.log.read_text(), self.process)

    def end(self) -> int:
        return self.process.wait(PATIENCE)


def assert_readable(work: Workplace) -> tuple[int, int]:
    """The store's last commit can be read; return its partitions and models."""
    root = open_store(work.store).root()
    entries = read_ledger(root).entries
    segments = Segments(root)
    numbers = [entry.segment for entry in entries]
    assert numbers == list(range(len(entries))) == [number for number in range(2 * PARTITIONS) if number in segments]
    return len(entries), len(list_models(root))


@pytest.mark.samples
@pytest.mark.parametrize("step", ["ingest", "train"])
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        pytest.param(
            *(signal.SIGINT, exit_codes.INTERRUPTED, "ridgestream: interrupted; the last commit stands"),
            marks=pytest.mark.thorough,
        ),
        (signal.SIGTERM, exit_codes.TERMINATED, "ridgestream: terminated; the last commit stands"),
    ],
)
def test_a_signal_in_mid_run(
    work: Workplace, undisturbed: Workplace, step: str, number: signal.Signals, code: int, said: str
) -> None:
    run = Run(work)
    run.wait_for_ingest() if step == "ingest" else run.wait_for_train()
    run.process.send_signal(number)
    assert run.end() == code, run.log.read_text()
    *steps, last = run.log.read_text().splitlines()
    assert last.startswith(said)
    assert sum(" seconds=" in line for line in steps) == (1 if step == "train" else 0)
    assert run.log.with_name("log.out").read_text() == ""
    partitions, models = assert_readable(work)
    assert models == 0
    assert partitions == PARTITIONS if step == "train" else partitions < PARTITIONS
    work.run_here(JOB)
    assert_same_model(work.model(), undisturbed.model())


@pytest.mark.thorough
def test_ctrl_c_reaches_local_workers_too(work: Workplace, undisturbed: Workplace) -> None:
    """A terminal sends it to every process of the group."""
    log = work.folder / "log"
    with log.open("wb") as err:
        command = [COMMAND, "run", str(work.job(JOB)), "--cluster", "local:2"]
        process = subprocess.Popen(command, stderr=err, env=clean_environment(), start_new_session=True)
    wait_until(lambda: "event='ingest'" in log.read_text(), process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE) == exit_codes.INTERRUPTED
    assert "ridgestream: interrupted" in log.read_text()
    assert "Traceback" not in log.read_text()
    wait_until(lambda: not group_lives(process.pid))
    assert assert_readable(work) == (PARTITIONS, 0)
    work.run_here(JOB)
    assert_same_model(work.model(), undisturbed.model())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "code"),
    points(
        [(signal.SIGINT, exit_codes.INTERRUPTED), (signal.SIGTERM, exit_codes.TERMINATED)],
        ordinary=[(signal.SIGINT, exit_codes.INTERRUPTED)],
    ),
)
def test_a_signal_to_the_whole_group_while_local_workers_start(
    work: Workplace, number: signal.Signals, code: int
) -> None:
    """Workers that receive it too do not start; this is not reported as a failure of theirs."""
    log = work.folder / "log"
    with log.open("wb") as err:
        command = [COMMAND, "run", str(work.job(JOB)), "--cluster", "local:2"]
        process = subprocess.Popen(command, stderr=err, env=clean_environment(), start_new_session=True)
    wait_until(lambda: len(psutil.Process(process.pid).children()) >= 2, process)  # one tracks resources
    os.killpg(process.pid, number)
    assert process.wait(PATIENCE) == code
    assert "Traceback" not in log.read_text()
    wait_until(lambda: not group_lives(process.pid))
    assert not work.store.exists()


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("files", KILLED_AT_FILES)
def test_killed_in_mid_ingest(tmp_path: Path, small_undisturbed: Workplace, files: int) -> None:
    """Killed when the store's folder holds this many files; the first commit of partitions makes at least 48 chunks."""
    work = Workplace(tmp_path)
    work.put_all(range(NIGHTS))
    process = start_command("run", work.job(), log=work.folder / "log")
    wait_until(lambda: sum(len(names) for _, _, names in os.walk(work.store)) >= files, process)
    process.kill()
    assert process.wait(PATIENCE) == -signal.SIGKILL
    if (work.store / "refs").exists():
        assert assert_readable(work)[0] in (0, 16, 20)
    assert work.run_here()["partitions_consumed"] == NIGHTS
    assert_same_model(work.model(), small_undisturbed.model())


@pytest.mark.thorough
@pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.thorough)])
def test_killed_in_mid_train_again_and_again(work: Workplace, undisturbed: Workplace, kills: int) -> None:
    """Each kill comes some milliseconds after a partition has been learned; both are drawn with a seed."""
    rng = np.random.default_rng(1)
    for partition, seconds in zip(rng.integers(0, PARTITIONS - 3, kills), rng.uniform(0, 0.02, kills), strict=True):
        kill = f"lambda: threading.Timer({seconds}, die).start()"
        calls = partition if work.store.exists() else PARTITIONS + partition
        run_until(f"{PROGRESS} = after({calls}, {PROGRESS}, {kill})", work, JOB)
        assert assert_readable(work) == (PARTITIONS, 0)
    work.run_here(JOB)
    assert_same_model(work.model(), undisturbed.model())


@pytest.fixture(scope="module")
def refitted(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("refitted"))
    put_forest(work, ROWS, PARTITIONS)
    work.run_here({**JOB, "model.refit": True})
    return work


@pytest.mark.thorough
@pytest.mark.parametrize(
    "partition", [PARTITIONS - 1, *(pytest.param(early, marks=pytest.mark.thorough) for early in (0, 1))]
)
def test_killed_in_mid_refit_of_a_first_run(work: Workplace, refitted: Workplace, partition: int) -> None:
    setup = f"{PROGRESS} = after({2 * PARTITIONS + partition}, {PROGRESS}, die)"
    run_until(setup, work, {**JOB, "model.refit": True})
    assert assert_readable(work) == (PARTITIONS, 0)
    work.run_here({**JOB, "model.refit": True})
    assert_same_model(work.model(), refitted.model())


@pytest.mark.samples
@pytest.mark.parametrize(
    ("place", "calls", "done"),
    [
        pytest.param(PROGRESS, 0, False, marks=pytest.mark.thorough),
        pytest.param(PROGRESS, PARTITIONS - 1, False, marks=pytest.mark.thorough),
        pytest.param("ridgestream.jobs.commands.train.write_model", 0, False, marks=pytest.mark.thorough),
        (FLUSH, 0, False),  # of what the branch will point to
        (FLUSH, 1, True),  # of the branch
    ],
)
def test_killed_in_mid_refit_the_old_model_stands_or_the_new_one(
    work: Workplace, undisturbed: Workplace, refitted: Workplace, place: str, calls: int, done: bool
) -> None:
    work.run_here(JOB)
    run_until(
        f"import ridgestream.jobs.commands.train\n{place} = after({calls}, {place}, die)",
        work,
        {**JOB, "model.refit": True},
    )
    assert_same_model(work.model(), (refitted if done else undisturbed).model())
    result = work.run_here({**JOB, "model.refit": True})
    assert (result["train_seconds"] == 0.0) is done
    assert_same_model(work.model(), refitted.model())
    assert [night.refitted for night in work.model().history] == [False, True]


@pytest.mark.samples
@pytest.mark.parametrize("place", [FLUSH, "pathlib.Path.rename"])
@pytest.mark.parametrize("calls", points([0, 2], [2]))
def test_killed_while_the_store_is_made(tmp_path: Path, small_undisturbed: Workplace, place: str, calls: int) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(NIGHTS))
    run_until(f"{place} = after({calls}, {place}, die)", work)
    work.run_here()
    assert_same_model(work.model(), small_undisturbed.model())
    assert not (work.store / ".unfinished").exists()


@pytest.mark.thorough
def test_a_second_run_exits_or_waits_while_readers_read(work: Workplace, undisturbed: Workplace) -> None:
    first = Run(work)
    first.wait_for_train()
    first.process.send_signal(signal.SIGSTOP)
    second = run_command("run", work.job(JOB), "--json")
    assert (second.code, second.out) == (exit_codes.LOCKED, "")
    assert re.search(rf"is being written by process {first.process.pid} on .* --wait SECONDS", second.err)
    third = start_command("run", work.job(JOB), "--json", "--wait", str(PATIENCE), log=work.folder / "third")
    result = run_command("inspect", work.store, "--json").result
    assert (len(result["partitions"]), result["models"]) == (PARTITIONS, [])
    first.process.send_signal(signal.SIGCONT)
    assert first.end() == 0
    assert third.wait(PATIENCE) == 0, (work.folder / "third").read_text()
    assert "nothing new to learn" in (work.folder / "third").read_text()
    assert first.log.with_name("log.out").read_text().startswith('{"model"')
    assert_same_model(work.model(), undisturbed.model())
    assert len(work.model().history) == 1


WAIT_ALOUD = """
import sys, filelock, ridgestream.jobs.cli.app
real = filelock.FileLock.acquire
def acquire(*arguments, **named):
    print("tries the lock", file=sys.stderr, flush=True)
    return real(*arguments, **named)
filelock.FileLock.acquire = acquire
ridgestream.jobs.cli.app.main()
"""


@pytest.mark.thorough
def test_a_waiting_run_goes_on_when_the_writer_is_killed(work: Workplace, undisturbed: Workplace) -> None:
    first = Run(work)
    first.wait_for_train()
    first.process.send_signal(signal.SIGSTOP)
    log = work.folder / "second"
    command = [sys.executable, "-c", WAIT_ALOUD, "run", str(work.job(JOB)), "--wait", str(PATIENCE)]
    with log.open("wb") as err:
        second = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, env=clean_environment())
    wait_until(lambda: "tries the lock" in log.read_text(), second)
    first.process.kill()
    assert first.end() == -signal.SIGKILL
    assert second.wait(PATIENCE) == 0, log.read_text()
    assert_same_model(work.model(), undisturbed.model())


@pytest.mark.thorough
def test_two_first_runs_at_once_make_one_store(tmp_path: Path, small_undisturbed: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(NIGHTS))
    job = work.job()
    runs = [start_command("run", job, "--wait", str(PATIENCE), log=tmp_path / f"log-{n}") for n in range(3)]
    assert [run.wait(PATIENCE) for run in runs] == [0, 0, 0]
    logs = [(tmp_path / f"log-{n}").read_text() for n in range(3)]
    assert sum("nothing new to learn" in log for log in logs) == 2
    assert_same_model(work.model(), small_undisturbed.model())
