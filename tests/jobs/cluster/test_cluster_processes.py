"""The forest recipe on a cluster of processes, started by Dask's commands, whose workers and scheduler are killed."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from support.jobs.clusters import Cluster, real_cluster
from support.jobs.jobs import (
    FOREST,
    PATIENCE,
    Workplace,
    assert_same_model,
    forest_job,
    killed_at_last,
    put_forest,
    read_model_at,
    start_command,
    wait_until,
)
from support.jobs.namespaces import network, why_unavailable

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.stores.catalog.models import ModelRecord

ROWS, PARTITIONS = 36_000, 12
FEW: Mapping[str, Any] = {**forest_job(ROWS, PARTITIONS, max_basis=150), "evaluate.path": "held-out"}
RECIPE = Path(__file__).parents[3] / "jobs" / "recipes" / "forest.toml"


@dataclass(frozen=True)
class Run:
    """A command that is run again and again, and what it makes."""

    job: Path
    store: Path
    name: str = "model"
    patience: int = 10
    """Seconds to wait for a scheduler that is gone."""

    def start(self, cluster: Cluster, log: Path, within: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
        options = ("--set", f"cluster_seconds={self.patience}", "--cluster", cluster.address, "--json")
        return start_command("run", self.job, "--store", self.store, *options, log=log, within=within)

    def model(self) -> ModelRecord:
        return read_model_at(self.store, self.name)


def few(folder: Path) -> Workplace:
    """A part of the forest's rows."""
    work = Workplace(folder)
    put_forest(work, ROWS, PARTITIONS)
    copytree(FOREST / "test", folder / "held-out")
    return work


def run_of_few(folder: Path) -> Run:
    work = few(folder)
    return Run(work.job(FEW), work.store)


def recipe_in(folder: Path, name: str) -> Run:
    """The main job, with a store of its own."""
    return Run(RECIPE, folder / name, "forest", patience=60)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A run without a cluster over the part."""
    work = few(tmp_path_factory.mktemp("alone"))
    work.run_here(FEW)
    return work


def replace_oldest(cluster: Cluster) -> None:
    """Start a worker, wait until it is there, and kill the one that was there first."""
    living = [worker for worker in cluster.workers if worker.poll() is None]
    cluster.start_worker()
    cluster.wait_for(len(living) + 1)
    living[0].kill()
    living[0].wait(PATIENCE)


def run_through_kills(run: Run, cluster: Cluster, seconds: float, log: Path, at_most: int) -> int:
    """Run the job to its end while a worker is killed every few seconds; return how many were."""
    kills = 0
    with killed_at_last(run.start(cluster, log)) as process:
        while not ends_within(process, seconds if kills < at_most else 5 * PATIENCE):
            assert kills < at_most, log.read_text()
            replace_oldest(cluster)
            kills += 1
        assert process.returncode == 0, log.read_text()
    return kills


def ends_within(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def kill_scheduler_then_go_on(run: Run, cluster: Cluster, log: Path) -> None:
    """Kill the scheduler after the ingest, start it and its workers again, and run the same command again."""
    with killed_at_last(run.start(cluster, log)) as process:
        wait_until(lambda: "event='ingest'" in log.read_text(), process)
        cluster.scheduler.kill()
        cluster.scheduler.wait(PATIENCE)
        for worker in cluster.workers:
            worker.kill()
            worker.wait(PATIENCE)
        assert process.wait(2 * PATIENCE) == exit_codes.CLUSTER, log.read_text()
    assert "the same command continues" in log.read_text()
    cluster.workers.clear()
    address = cluster.address
    cluster.start_scheduler()
    assert cluster.address == address
    for _ in range(2):
        cluster.start_worker()
    cluster.wait_for(2)
    again = log.with_name("again")
    assert run.start(cluster, again).wait(10 * PATIENCE) == 0, again.read_text()


@pytest.mark.thorough
def test_a_part_of_the_forest_is_learned_to_the_same_bits_while_workers_are_killed(
    tmp_path: Path, alone: Workplace
) -> None:
    run = run_of_few(tmp_path)
    with real_cluster(tmp_path, 2) as cluster:
        kills = run_through_kills(run, cluster, 1.0, tmp_path / "log", at_most=4)
    assert kills >= 1
    assert_same(run.model(), alone.model())


@pytest.mark.slow
def test_the_scheduler_is_killed_as_the_model_learns_and_the_same_command_goes_on(
    tmp_path: Path, alone: Workplace
) -> None:
    run = run_of_few(tmp_path)
    with real_cluster(tmp_path, 2) as cluster:
        kill_scheduler_then_go_on(run, cluster, tmp_path / "log")
    assert_same(run.model(), alone.model())


def assert_same(one: ModelRecord, other: ModelRecord) -> None:
    assert_same_model(one, other)
    assert one.history[-1].test_error == other.history[-1].test_error


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_forest_recipe_through_kills_of_workers_and_of_the_scheduler(tmp_path: Path) -> None:
    """Undisturbed, with a worker killed every five seconds, and with the scheduler killed in mid-training."""
    straight, undisturbed, kills, scheduler = (recipe_in(tmp_path, n) for n in ("alone", "calm", "kills", "scheduler"))
    job = read_job(straight.job, {"store": str(straight.store)})
    run_job(job, InProcess(), Silent(), 0.0, new_model=False)
    with real_cluster(tmp_path, 2) as cluster:
        assert undisturbed.start(cluster, tmp_path / "log").wait(10 * PATIENCE) == 0, (tmp_path / "log").read_text()
        assert run_through_kills(kills, cluster, 5.0, tmp_path / "kills.log", at_most=100) >= 2
        kill_scheduler_then_go_on(scheduler, cluster, tmp_path / "scheduler.log")
    for run in (undisturbed, kills, scheduler):
        assert_same(run.model(), straight.model())


@pytest.fixture
def hosts() -> Iterator[Any]:
    reason = why_unavailable()
    if reason:
        pytest.skip(reason)
    with network("scheduler", "one", "other", "job") as hosts:
        yield hosts


@pytest.mark.slow
def test_a_run_goes_on_without_a_worker_whose_network_is_cut_off(tmp_path: Path, alone: Workplace, hosts: Any) -> None:
    """Scheduler, workers and job have addresses of their own; nothing announces that one of them is gone."""
    run, log = run_of_few(tmp_path), tmp_path / "log"
    cluster = Cluster(tmp_path)
    cluster.start_scheduler(hosts.addresses["scheduler"], within=hosts.run_in("scheduler"))
    try:
        for name in ("one", "other"):
            cluster.start_worker("--host", hosts.addresses[name], within=hosts.run_in(name))
        wait_until(lambda: cluster.log.count("Registered to") == 2, cluster.scheduler)
        process = run.start(cluster, log, within=hosts.run_in("job"))
        wait_until(lambda: any(run.store.glob("chunks/*")), process)
        hosts.cut_off("one")
        assert process.wait(6 * PATIENCE) == 0, log.read_text()
    finally:
        cluster.close()
    assert "event='cluster.worker_lost'" in log.read_text()
    assert f"worker='tcp://{hosts.addresses['one']}:" in log.read_text()
    assert_same(run.model(), alone.model())
