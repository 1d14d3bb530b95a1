"""Where tasks run changes no bit of the model; a cluster that fails says so, and nothing is lost."""

import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack
from pathlib import Path
from time import sleep

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Future
from distributed.comm.core import CommClosedError
from support.jobs.clusters import Cluster, real_cluster
from support.jobs.jobs import (
    FOREST,
    PATIENCE,
    Workplace,
    assert_same_model,
    count_blas_threads,
    forest_job,
    open_store,
    put_forest,
    run_command,
    start_command,
    wait_until,
)
from support.points import points
from threadpoolctl import threadpool_limits

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.cluster.cluster_error import ClusterError
from ridgestream.jobs.cluster.dask_executor import open_executor
from ridgestream.jobs.commands.evaluate import run_evaluate
from ridgestream.jobs.commands.predict import run_predict
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.cluster_options import ClusterOptions
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.dataset import stored_rows
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.errors.exceptions import PartitionError

PARTITIONS, ROWS = 24, 36_000
JOB = {**forest_job(ROWS, PARTITIONS, max_basis=20), "evaluate.path": "held-out"}
EVENTS = [
    "cluster.workers_connected",
    "ingest",
    "check_held_out",
    "features.columns_constant",
    "features.scale_from_few_rows",
    "features.scale_fixed_later",
    "train",
    "evaluate",
]


def make_workplace(folder: Path) -> Workplace:
    work = Workplace(folder)
    put_forest(work, ROWS, PARTITIONS)
    table = pq.read_table(FOREST / "test" / "part-00.parquet")
    for number in range(3):
        work.put(number, table.slice(number * 1000, 1000), where="held-out")
    return work


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    return make_workplace(tmp_path)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """What a run without a cluster makes."""
    work = make_workplace(tmp_path_factory.mktemp("alone"))
    work.run_here(JOB)
    return work


def assert_same_as(alone: Workplace, work: Workplace) -> None:
    assert_same_model(work.model(), alone.model())
    assert read_ledger(open_store(work.store).root()).categories == ()
    mine, theirs = (read_ledger(open_store(w.store).root()).entries for w in (work, alone))
    assert [(e.name, e.rows, e.content_sha256) for e in mine] == [(e.name, e.rows, e.content_sha256) for e in theirs]
    assert work.model().history[-1].test_error == alone.model().history[-1].test_error


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with real_cluster(tmp_path_factory.mktemp("two-workers"), workers=2) as cluster:
        yield cluster


def test_local_workers_make_the_same_model(work: Workplace, alone: Workplace) -> None:
    done = run_command("run", work.job(JOB), "--cluster", "local:2", "--json")
    assert done.result["partitions_consumed"] == PARTITIONS
    assert_same_as(alone, work)
    assert done.events == EVENTS, done.err
    assert "\x1b" not in done.err


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_workers_of_a_scheduler_make_the_same_model(
    work: Workplace, alone: Workplace, workers: int, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        if workers == 2:
            cluster: Cluster = request.getfixturevalue("two_workers")
        else:
            cluster = stack.enter_context(real_cluster(work.folder, workers))
        done = run_command("run", work.job(JOB), "--cluster", cluster.address, "--json")
    assert done.result["partitions_consumed"] == PARTITIONS
    assert_same_as(alone, work)
    assert done.events == EVENTS, done.err


@pytest.mark.thorough
def test_a_night_on_a_cluster_goes_on_from_a_night_without(
    work: Workplace, alone: Workplace, two_workers: Cluster
) -> None:
    later = work.folder / "later"
    later.mkdir()
    for number in range(9, PARTITIONS):
        (work.folder / "rows" / f"part-{number:02d}.parquet").rename(later / f"part-{number:02d}.parquet")
    work.run_here(JOB)
    for path in later.iterdir():
        path.rename(work.folder / "rows" / path.name)
    result = run_command("run", work.job({**JOB, "cluster": two_workers.address}), "--json").result
    assert result["new_partitions"] == PARTITIONS - 9
    assert_same_as(alone, work)


def test_predictions_do_not_depend_on_the_cluster(alone: Workplace, two_workers: Cluster) -> None:
    job = read_job(alone.job(JOB), {})
    for cluster, output in (("none", "here"), (two_workers.address, "there")):
        with open_executor(cluster, PATIENCE) as executor:
            result = run_predict(job, alone.folder / "held-out", alone.folder / output, executor, Silent())
        assert result["rows"] == 3000
    here, there = (pq.read_table(alone.folder / output) for output in ("here", "there"))
    assert here.equals(there)


@pytest.mark.thorough
def test_local_workers_refit_to_the_same_bits(tmp_path: Path, work: Workplace) -> None:
    (tmp_path / "here").mkdir()
    here = make_workplace(tmp_path / "here")
    here.run_here({**JOB, "model.refit": True})
    done = run_command("run", work.job(JOB), "--refit", "--cluster", "local:2", "--json")
    assert done.result["refitted"] is True
    assert done.events == [*EVENTS[:-1], "refit", "evaluate"], done.err
    assert_same_as(here, work)


@pytest.mark.parametrize("task_rows", [256, pytest.param(512, marks=pytest.mark.thorough)])
def test_a_refit_of_segments_in_several_tasks_does_not_depend_on_the_cluster(
    tmp_path: Path, two_workers: Cluster, monkeypatch: pytest.MonkeyPatch, task_rows: int
) -> None:
    monkeypatch.setattr(stored_rows, "TASK_ROWS", task_rows)
    models = []
    for number, name in enumerate(("none", two_workers.address)):
        work = Workplace(tmp_path / str(number))
        work.folder.mkdir()
        put_forest(work, 6000, 3)
        job = read_job(work.job({**JOB, "evaluate.path": None, "model.refit": True}), {})
        with open_executor(name, PATIENCE) as executor:
            run_job(job, executor, Silent(), 0.0, new_model=False)
        models.append(work.model())
    assert_same_model(*models)


@pytest.mark.thorough
def test_a_bad_partition_gives_the_same_error_as_without_a_cluster(work: Workplace, two_workers: Cluster) -> None:
    path = work.put(5, pq.read_table(work.folder / "rows" / "part-05.parquet").drop_columns(["Slope"]))
    with pytest.raises(PartitionError, match=f"{path} has no column 'Slope'") as caught:
        work.run_here(JOB)
    done = run_command("run", work.job(JOB), "--cluster", two_workers.address)
    assert (done.code, done.err.splitlines()[1:]) == (exit_codes.DATA, [f"ridgestream: {caught.value}"])


def test_a_task_has_one_blas_thread() -> None:
    with open_executor("local:1", PATIENCE) as executor:
        (threads,) = executor.run(count_blas_threads, [0])
    assert len(threads) >= 1
    assert set(threads) == {1}


@pytest.mark.thorough
def test_workers_that_are_released_end_while_the_job_goes_on() -> None:
    with open_executor("local:1", PATIENCE) as executor:
        assert list(executor.run(abs, [-1])) == [1]
        workers = [each for each in psutil.Process().children() if "multiprocessing.spawn" in " ".join(each.cmdline())]
        assert workers
        executor.release()
        assert psutil.wait_procs(workers, timeout=PATIENCE)[1] == []


@pytest.mark.thorough
def test_two_local_clusters_do_not_meet_at_a_port() -> None:
    """A warning of a port that is taken would be an error here."""
    with open_executor("local:1", PATIENCE) as one, open_executor("local:1", PATIENCE) as other:
        assert list(one.run(abs, [-1])) + list(other.run(abs, [-2])) == [1, 2]


def test_no_bit_depends_on_the_number_of_blas_threads(tmp_path: Path) -> None:
    """A single column to sum over many rows is where BLAS adds up in another order."""
    rng = np.random.default_rng(0)
    names = rng.choice(["a", "b", "c"], 20_000)
    table = pa.table({"name": names.tolist(), "price": (names == "a") + rng.normal(size=20_000)})
    changes = {"source.target": "price", "source.positive": None, "model.scaling_rows": "all"}
    runs = []
    for threads in (1, 2):
        folder = tmp_path / str(threads)
        folder.mkdir()
        work = Workplace(folder)
        work.put(0, table)
        work.put(0, table.slice(0, 17_000), where="held-out")
        with threadpool_limits(threads, "blas"):
            runs.append((work.run_here(changes), work.model()))
    assert_same_model(runs[0][1], runs[1][1])
    for key in ("test_mse", "progressive_error"):
        assert runs[0][0][key] == runs[1][0][key]


@pytest.mark.thorough
def test_a_scheduler_without_workers_is_an_error_after_the_time_that_the_job_gives(work: Workplace) -> None:
    with real_cluster(work.folder, workers=0) as cluster:
        done = run_command("run", work.job({**JOB, "cluster_seconds": 0.5}), "--cluster", cluster.address)
    assert (done.code, done.out) == (exit_codes.CLUSTER, "")
    assert f"no worker came to the cluster {cluster.address} within 0.5 s" in done.err
    assert not work.store.exists()


@pytest.mark.thorough
def test_a_scheduler_killed_while_workers_are_asked_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ridgestream.jobs.cluster.workers.probe", sleep)  # as many seconds as there are threads
    with real_cluster(tmp_path, workers=1) as cluster:
        killing = threading.Timer(1.5, cluster.scheduler.kill)
        killing.start()
        with (
            pytest.raises(ClusterError, match=r"the scheduler has gone or has dropped a task"),
            open_executor(cluster.address, PATIENCE, ClusterOptions(threads=4)),
        ):
            pass
        killing.join()


def test_a_connection_that_closes_during_a_result_is_an_error_for_a_lost_scheduler(
    two_workers: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(future: "Future[object]", timeout: float | None = None) -> None:  # noqa: ARG001
        raise CommClosedError("in <TCP>: Stream is closed")

    with open_executor(two_workers.address, PATIENCE) as executor:
        monkeypatch.setattr(Future, "result", cut)
        with pytest.raises(ClusterError, match=r"the scheduler has gone .*Stream is closed; what was committed stands"):
            list(executor.run(abs, [-1]))


def test_the_error_for_a_lost_scheduler_has_one_line(two_workers: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    message = (
        "1 Future cancelled:\nReasons:\n1 Future cancelled for reason: gone.\nMessage: Client lost it.\nFuture: ['f']"
    )

    def cancelled(future: "Future[object]", timeout: float | None = None) -> None:  # noqa: ARG001
        raise CancelledError(message)

    monkeypatch.setattr("ridgestream.jobs.cluster.retries.MAX_SENDINGS", 1)
    with open_executor(two_workers.address, PATIENCE) as executor:
        monkeypatch.setattr(Future, "result", cancelled)
        with pytest.raises(ClusterError, match=r"has dropped a task: Client lost it; what was committed stands"):
            list(executor.run(abs, [-1]))


@pytest.mark.thorough
def test_no_scheduler_at_the_address_is_an_error(work: Workplace) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        done = run_command("run", work.job({**JOB, "cluster_seconds": 0.5}), "--cluster", address)
    assert (done.code, done.out) == (exit_codes.CLUSTER, "")
    assert f"no scheduler answers at {address}" in done.err
    assert not work.store.exists()


def start_and_wait_for_ingest(work: Workplace, cluster: Cluster) -> subprocess.Popen[bytes]:
    job = work.job({**JOB, "cluster_seconds": 1.0})
    process = start_command("run", job, "--cluster", cluster.address, log=work.folder / "log")
    wait_until(lambda: any(work.store.glob("chunks/*")), process)
    return process


@pytest.mark.thorough
@pytest.mark.parametrize("stopped", [False, True])
def test_a_worker_killed_in_mid_ingest_changes_nothing(work: Workplace, alone: Workplace, stopped: bool) -> None:
    """`stopped` has done nothing of what it was given, so that there are tasks to be given to the other for certain."""
    with real_cluster(work.folder, workers=2) as cluster:
        if stopped:
            cluster.workers[0].send_signal(signal.SIGSTOP)
        process = start_and_wait_for_ingest(work, cluster)
        cluster.workers[0].kill()
        assert process.wait(PATIENCE) == 0, (work.folder / "log").read_text()
    assert_same_as(alone, work)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("who", "expected"),
    points(
        [("workers", "the cluster has lost its workers"), ("scheduler", "the scheduler has gone")],
        ordinary=[("workers", "the cluster has lost its workers")],
    ),
)
def test_a_cluster_that_dies_in_mid_ingest_is_an_error_and_the_same_command_goes_on(
    work: Workplace, alone: Workplace, who: str, expected: str
) -> None:
    with real_cluster(work.folder, workers=2) as cluster:
        process = start_and_wait_for_ingest(work, cluster)
        for victim in cluster.workers if who == "workers" else (cluster.scheduler,):
            victim.kill()
        assert process.wait(PATIENCE) == exit_codes.CLUSTER, (work.folder / "log").read_text()
    assert f"ridgestream: {expected}" in (work.folder / "log").read_text()
    assert read_ledger(open_store(work.store).root()).rows < ROWS
    work.run_here(JOB)
    assert_same_as(alone, work)


def test_evaluation_does_not_depend_on_the_cluster(alone: Workplace, two_workers: Cluster) -> None:
    job = read_job(alone.job(JOB), {})
    with open_executor(two_workers.address, PATIENCE) as executor:
        there = run_evaluate(job, executor, Silent())
    here = run_evaluate(job, InProcess(), Silent())
    for result in (here, there):
        del result["peak_rss_bytes"]
    assert here == there
