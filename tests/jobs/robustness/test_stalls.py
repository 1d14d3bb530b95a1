"""Runs in which nothing moves: they end by themselves, and say what they waited for; runs that move are left alone."""

import ctypes
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import psutil
import pytest
from benchmarks.faulty_server import REQUEST_SECONDS, lose_answers, open_bench, silence_each
from support.jobs.clusters import compute, real_cluster
from support.jobs.jobs import (
    COMMAND,
    PATIENCE,
    Outcome,
    Workplace,
    clean_environment,
    draw_rows,
    open_store,
    run_command,
    run_prepared,
    run_program,
    wait_until,
)
from support.jobs.shifted_clock import shifted_clock
from support.stores.faulty_proxy import FaultyProxy, Rule, faulty_proxy
from support.stores.object_store import ObjectStore, object_store

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.cluster.dask_executor import open_executor
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.requests.activity import ACTIVITY, Activity, in_background

ROWS = 60
JOB = {"evaluate.path": None, "model.max_basis": 10, "model.scaling_rows": ROWS, "stall_seconds": 1.5}
REPORTED = JOB | {"report": None}
STALLED = "nothing has moved for 1.5 s (stall_seconds): it waited for"


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put(0, draw_rows(0, ROWS))
    return work


def assert_stalled(outcome: Outcome, subject: str) -> None:
    *_, last = outcome.err.splitlines()
    assert outcome.code == exit_codes.STORE, outcome
    assert f"{STALLED} {subject}" in last, last
    assert last.endswith("what was committed stands, and the same command continues from there")


@contextmanager
def hung_mount(folder: Path) -> Iterator[None]:
    """Mount a file system whose server never answers, as one over a network does that has gone; needs root."""
    folder.mkdir(exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("there is no /dev/fuse here")
    options = f"fd={descriptor},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"hung", os.fsencode(folder), b"fuse", 0, options):
        os.close(descriptor)
        pytest.skip("no file system may be mounted here")
    try:
        yield
    finally:
        libc.umount2(os.fsencode(folder), 2)
        os.close(descriptor)


@pytest.mark.samples
@pytest.mark.parametrize(("key", "subject"), [("store", "the folder"), ("source.path", "the list of files in")])
def test_a_hung_mount_ends_the_run_and_is_named(work: Workplace, key: str, subject: str) -> None:
    where = work.folder / "mount"
    with hung_mount(where):
        inside = str(where / "inside")
        assert_stalled(run_command("run", work.job(JOB | {key: inside}), "--json"), f"{subject} {inside}")


@pytest.mark.thorough
def test_a_run_that_computes_without_a_word_goes_on(work: Workplace) -> None:
    """A solver or a compiled loop reports nothing until it is done."""
    compute = """
import time, ridgestream.jobs.console.progress as progress
real = progress.LineReporter.end
def end(self, **facts):
    until = time.process_time() + 3.0
    while time.process_time() < until:
        pass
    real(self, **facts)
progress.LineReporter.end = end
"""
    assert run_prepared(compute, "ingest", work.job(JOB), "--json").code == 0


def test_a_run_that_sleeps_without_a_word_is_ended(work: Workplace) -> None:
    sleep = """
import time, ridgestream.jobs.console.progress as progress
progress.LineReporter.end = lambda self, **facts: time.sleep(60)
"""
    assert_stalled(run_prepared(sleep, "ingest", work.job(JOB)), "what follows the step 'ingest'")


SLEEPS_IN_TRAINING = """
import time, ridgestream.jobs.console.progress as progress
real = progress.LineReporter.begin
def begin(self, step, *rest, **facts):
    real(self, step, *rest, **facts)
    if step.name == "train":
        time.sleep(60)
progress.LineReporter.begin = begin
"""


def test_a_night_that_is_ended_leaves_its_report_and_status_knows_of_it(work: Workplace) -> None:
    assert run_command("run", work.job(REPORTED)).code == 0
    work.put(1, draw_rows(1, ROWS))
    outcome = run_prepared(SLEEPS_IN_TRAINING, "run", work.job(REPORTED), "--log", "json")
    assert outcome.code == exit_codes.STORE, outcome
    *_, written, ended = map(json.loads, outcome.err.splitlines())
    assert (written["event"], ended["event"]) == ("report.failure_written", "exit.store")
    facts = json.loads(Path(written["page"]).with_suffix(".json").read_text())
    assert STALLED in facts["failure"]
    assert (facts["night"], facts["where"]["step"]) == (2, "train")
    known = run_command("status", work.job(REPORTED))
    assert known.code == exit_codes.NIGHT_FAILED
    assert STALLED in known.out


def test_a_night_whose_report_cannot_be_written_either_is_ended_all_the_same(work: Workplace) -> None:
    hangs = f"""
import ridgestream.jobs.cli.exit_handling as exit_handling, ridgestream.jobs.report.report_files as report_files
exit_handling.STALL_REPORT_SECONDS = 0.5
{SLEEPS_IN_TRAINING}
report_files.write_whole = lambda *_: time.sleep(60)
"""
    assert_stalled(run_prepared(hangs, "run", work.job(REPORTED)), "the step 'train'")


@pytest.mark.thorough
def test_waiting_for_another_writer_is_no_stall(work: Workplace) -> None:
    work.run_here(JOB)
    work.put(1, draw_rows(1, ROWS))
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with open_store(work.store).lock():
            entered.set()
            leave.wait(4.0)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(10)
    began = monotonic()
    outcome = run_command("run", work.job(JOB), "--wait", "60", "--json")
    thread.join()
    assert (outcome.code, monotonic() - began > 1.5) == (0, True), outcome


@pytest.mark.thorough
def test_tasks_on_a_cluster_that_has_stopped_are_named(work: Workplace, tmp_path: Path) -> None:
    with real_cluster(tmp_path, 1) as running:
        job = work.job(JOB | {"stall_seconds": 6.0, "source.path": str(tmp_path / "mount" / "inside")})
        assert running.address
        with hung_mount(tmp_path / "mount"):
            outcome = run_command("ingest", job, "--cluster", running.address)
    assert outcome.code == exit_codes.STORE, outcome
    assert "it waited for the list of files in" in outcome.err


@pytest.mark.thorough
def test_a_worker_that_computes_is_progress_until_it_is_frozen(tmp_path: Path) -> None:
    """The scheduler has the last that a worker said for minutes, or without a limit for good."""
    forever = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "None"}
    with (
        real_cluster(tmp_path, 2, scheduler_environment=forever) as running,
        open_executor(running.address, PATIENCE) as executor,
        ThreadPoolExecutor(1) as pool,
    ):
        done = pool.submit(list, executor.run(compute, [12.0, 0.0]))
        for _ in range(8):
            sleep(1.0)
            assert ACTIVITY.quiet_seconds() < 6.0
        frozen = max((psutil.Process(each.pid) for each in running.workers), key=lambda each: sum(each.cpu_times()[:2]))
        frozen.suspend()
        try:
            wait_until(lambda: ACTIVITY.quiet_seconds() > 8.0)
        finally:
            frozen.resume()
        assert done.result(PATIENCE) == [12.0, 0.0]


def test_what_runs_in_the_background_is_no_progress() -> None:
    activity = Activity()
    with activity.under_way("the oldest"), activity.under_way("another"):
        assert activity.waits_for() == "the oldest"
        with activity.paused():
            assert activity.quiet_seconds() == 0
        before = activity.quiet_seconds()
        with in_background(), activity.under_way("a renewal"):
            activity.moved("unseen")
            assert activity.waits_for() == "the oldest"
        assert activity.quiet_seconds() >= before


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def proxy(server: ObjectStore) -> Iterator[FaultyProxy]:
    with faulty_proxy(server.port) as proxy:
        yield proxy


def night(server: ObjectStore, proxy: FaultyProxy, work: Workplace, **changes: object) -> Outcome:
    """Run a night in an object store behind the proxy."""
    settings = JOB | {"store": server.location(f"{work.folder.name}/store"), "report": None, "stall_seconds": 30}
    job = work.job(settings | changes)
    return run_command("run", job, "--json", environment=clean_environment(**proxy.environment))


@pytest.mark.thorough
def test_a_night_whose_conditional_writes_all_lose_their_answers_is_a_night(
    server: ObjectStore, proxy: FaultyProxy, work: Workplace
) -> None:
    for number in range(2):
        work.put(number, draw_rows(number, ROWS))
        proxy.arm(Rule("lose", "PUT", conditional=True, once=True))
        outcome = night(server, proxy, work)
        assert outcome.code == 0, outcome
        assert len(proxy.spoiled) >= 5
        reports = [name for name in server.keys(f"{work.folder.name}/store-reports") if name.endswith(".json")]
        assert reports == [f"model-{n + 1:04d}.json" for n in range(number + 1)]


@pytest.mark.thorough
@pytest.mark.parametrize("only", ["GET .*/branch.main/", pytest.param("PUT .*/chunks/", marks=pytest.mark.thorough)])
def test_a_server_that_never_answers_one_kind_of_request_ends_the_night(
    server: ObjectStore, proxy: FaultyProxy, work: Workplace, only: str
) -> None:
    limits = {"storage.request_seconds": 0.3}
    assert night(server, proxy, work).code == 0
    work.put(1, draw_rows(1, ROWS))
    proxy.arm(Rule("silence", only))
    outcome = night(server, proxy, work, **limits)
    assert outcome.code == exit_codes.STORE, outcome
    assert "no answer within 0.3 s (storage.request_seconds), asked 3 times" in outcome.err
    proxy.arm()
    assert night(server, proxy, work).result["new_partitions"] == 1


COMMIT = """
import sys
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation
with Store.open(StoreLocation(sys.argv[1])).write("ahead") as writing:
    writing.root.attrs["ahead"] = 1
"""


@pytest.mark.thorough
def test_seconds_between_clocks_are_waited_for(
    work: Workplace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine of the last commit is ahead; the wait is logged, and what is not ordered is not committed."""
    store = Store.create(StoreLocation(str(work.store)))
    ahead = clean_environment(**shifted_clock(tmp_path, 6))
    assert run_program([sys.executable, "-c", COMMIT, str(work.store)], environment=ahead).code == 0
    with caplog.at_level(logging.WARNING), store.write("here") as writing:
        writing.root.attrs["here"] = 1
    assert "s behind the last commit; waiting until it is past it" in caplog.text
    times = [commit.written_at for commit in store.repository.ancestry(branch="main")]
    assert times == sorted(times, reverse=True)


@pytest.mark.thorough
def test_the_output_is_json_whatever_icechunk_logs(work: Workplace) -> None:
    here = clean_environment(ICECHUNK_LOG="debug")
    outcome = run_program([COMMAND, "ingest", str(work.job(JOB | {"stall_seconds": 60})), "--json"], environment=here)
    assert outcome.result["partitions"] == 1, outcome


@pytest.mark.thorough
def test_a_clock_that_is_far_behind_is_refused_with_the_difference(work: Workplace) -> None:
    ahead, calm = clean_environment(**shifted_clock(work.folder, 500)), JOB | {"stall_seconds": 60}
    assert run_program([COMMAND, "run", str(work.job(calm)), "--json"], environment=ahead).code == 0
    work.put(1, draw_rows(1, ROWS))
    outcome = run_command("run", work.job(calm), "--json")
    *_, last = outcome.err.splitlines()
    assert (outcome.code, outcome.out) == (exit_codes.STORE, "")
    assert re.search(r"this machine's clock is \d+ s behind the last commit, of \d+", last)


@pytest.mark.parametrize(
    "nights", [pytest.param(4, marks=pytest.mark.thorough), pytest.param(200, marks=pytest.mark.slow)]
)
@pytest.mark.timeout(7200)
def test_every_night_that_loses_an_answer_succeeds(tmp_path: Path, nights: int) -> None:
    with open_bench(tmp_path) as bench:
        counts = lose_answers(bench, nights)
    assert counts["exit_codes"] == {0: nights}
    assert counts["reports"] == {"nights": nights + 1, "failures": 0}
    assert counts["partitions"] == nights + 1


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_silence_at_any_of_the_first_requests_ends_within_the_limit(tmp_path: Path) -> None:
    with open_bench(tmp_path) as bench:
        for line in silence_each(bench, 60):
            assert line["code"] in (0, exit_codes.STORE), line
            assert line["after"] == 0, line
            assert line["seconds"] < 30 * REQUEST_SECONDS, line
