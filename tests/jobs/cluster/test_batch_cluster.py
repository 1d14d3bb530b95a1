"""Batch methods on clusters: the same bits on any number of workers and through kills, and refused where too large."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pytest
from support.jobs.clusters import get_pid, multiply, real_cluster
from support.jobs.jobs import (
    PATIENCE,
    Workplace,
    assert_same_model,
    forest_job,
    put_forest,
    run_command,
    start_command,
    wait_until,
)

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.cluster.dask_executor import open_executor
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.dataset import stored_rows

ROWS, PARTITIONS = 12_000, 4
METHODS: dict[str, dict[str, Any]] = {
    "shard-merge-select": {"model.shard_merge_select.shards": 5, "model.shard_merge_select.shard_basis": 12},
    "ols": {"model.ols.look_ahead": 3},
    "efvs": {"model.efvs.look_ahead": 5},
    "orols": {"model.regularization": None},
    "isls-svm": {"model.isls_svm.start": "k-means", "model.isls_svm.start_basis": 60},
}


def job_of(method: str) -> dict[str, Any]:
    return {**forest_job(ROWS, PARTITIONS, max_basis=40), "model.method": method, **METHODS[method]}


def make_workplace(folder: Path) -> Workplace:
    work = Workplace(folder)
    put_forest(work, ROWS, PARTITIONS)
    return work


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Workplace]:
    """What a run of each method without a cluster makes."""
    works = {method: make_workplace(tmp_path_factory.mktemp(method)) for method in METHODS}
    for method, work in works.items():
        run_job(read_job(work.job(job_of(method)), {}), InProcess(), Silent(), 0.0, new_model=False)
    return works


@pytest.fixture(scope="module", params=[2, *(pytest.param(workers, marks=pytest.mark.thorough) for workers in (1, 4))])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with real_cluster(tmp_path_factory.mktemp("cluster"), request.param) as cluster:
        yield cluster.address


@pytest.mark.at_most(5)
@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
def test_the_number_of_workers_changes_no_bit(
    method: str, address: str, tmp_path: Path, straight: dict[str, Workplace]
) -> None:
    work = make_workplace(tmp_path)
    job = read_job(work.job(job_of(method)), {})
    with open_executor(address, PATIENCE) as executor:
        run_job(job, executor, Silent(), 0.0, new_model=False)
    assert_same_model(work.model(), straight[method].model())


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["ols", pytest.param("shard-merge-select", marks=pytest.mark.thorough)])
def test_a_worker_killed_in_mid_training_changes_no_bit(
    method: str, tmp_path: Path, straight: dict[str, Workplace]
) -> None:
    work = make_workplace(tmp_path)
    with real_cluster(tmp_path, 2) as cluster:
        log = tmp_path / "log"
        process = start_command("run", work.job(job_of(method)), "--cluster", cluster.address, log=log)
        wait_until(lambda: "event='ingest'" in log.read_text(), process)
        cluster.workers[0].kill()
        assert process.wait(PATIENCE) == 0, log.read_text()
    assert_same_model(work.model(), straight[method].model())


@pytest.mark.thorough
def test_a_command_killed_in_mid_training_leaves_nothing_and_the_same_command_ends_it(
    tmp_path: Path, straight: dict[str, Workplace]
) -> None:
    work, log = make_workplace(tmp_path), tmp_path / "log"
    process = start_command("run", work.job(job_of("ols")), log=log)
    wait_until(lambda: "OLS from 3 vectors" in log.read_text(), process)
    process.kill()
    process.wait()
    assert run_command("run", work.job(job_of("ols")), "--json").result["n_basis"] == 40
    assert_same_model(work.model(), straight["ols"].model())


@pytest.mark.thorough
def test_shared_values_are_sent_again_if_the_only_worker_dies() -> None:
    with open_executor("local:1", PATIENCE) as executor:
        (worker,) = set(executor.run(get_pid, range(3)))
        killer = Timer(0.5, os.kill, (worker, signal.SIGKILL))
        shared = executor.broadcast(np.ones(1000))
        killer.start()
        assert list(executor.run(multiply, range(12), shared)) == [1000.0 * task for task in range(12)]
        killer.join()
        assert worker not in set(executor.run(get_pid, range(3)))


@pytest.mark.thorough
def test_a_worker_that_may_use_too_little_is_refused_with_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for share in ("PAUSE", "TERMINATE"):  # the libraries of a worker alone use most of its limit
        monkeypatch.setenv(f"DASK_DISTRIBUTED__WORKER__MEMORY__{share}", "False")
    work = make_workplace(tmp_path)
    with real_cluster(tmp_path, 1, "--memory-limit", "500MB") as cluster:
        done = run_command("run", work.job(job_of("ols")), "--cluster", cluster.address)
    assert done.code == exit_codes.MEMORY
    assert "ridgestream: a task needs 5" in done.err
    assert "may use 500 MB: give workers more" in done.err


@pytest.mark.thorough
def test_workers_that_are_paused_for_good_are_an_error_after_the_time_that_the_job_gives(tmp_path: Path) -> None:
    """A worker of 60 MB uses more than that as it starts, and never runs a task."""
    work = make_workplace(tmp_path)
    with real_cluster(tmp_path, 1, "--memory-limit", "60MB") as cluster:
        done = run_command("run", work.job({**job_of("ols"), "cluster_seconds": 2.0}), "--cluster", cluster.address)
    assert done.code == exit_codes.CLUSTER
    assert "all workers of the cluster have been paused for 2 s" in done.err


@pytest.mark.thorough
def test_tasks_are_cut_by_rows_alone_and_many_of_them_change_nothing_but_rounding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, straight: dict[str, Workplace]
) -> None:
    monkeypatch.setattr(stored_rows, "TASK_ROWS", 512)
    models = []
    for name in ("none", "local:2"):
        work = make_workplace(tmp_path / name.replace(":", "-"))
        job = read_job(work.job(job_of("isls-svm")), {})
        with open_executor(name, PATIENCE) as executor:
            run_job(job, executor, Silent(), 0.0, new_model=False)
        models.append(work.model())
    assert_same_model(*models)
    whole = straight["isls-svm"].model().arrays["refit_products"]
    np.testing.assert_allclose(models[0].arrays["refit_products"], whole, rtol=1e-6)
