"""A value that tasks share reaches every worker that can have it, and waits for none that cannot."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from support.jobs.clusters import Cluster, multiply, real_cluster
from support.jobs.jobs import PATIENCE

from ridgestream.jobs.cluster.connection import open_client
from ridgestream.jobs.cluster.dask_executor import open_executor
from ridgestream.pipeline.base.executor import Executor

VALUE = np.ones(100)
KEPT = {"DASK_DISTRIBUTED__SCHEDULER__ACTIVE_MEMORY_MANAGER__START": "False"}
"""The scheduler drops no copy that no task waits for."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with real_cluster(tmp_path, workers=3, scheduler_environment=KEPT) as cluster:
        yield cluster


def products(executor: Executor, tasks: int) -> list[float]:
    return list(executor.run(multiply, range(tasks), executor.broadcast(VALUE)))


def test_each_worker_has_a_shared_value_before_the_first_task(cluster: Cluster) -> None:
    with open_executor(cluster.address, PATIENCE) as executor, open_client(cluster.address, PATIENCE) as client:
        shared = executor.broadcast(VALUE)
        holders = client.who_has()
        assert max(len(workers) for workers in holders.values()) == 3, shared


@pytest.mark.thorough
@pytest.mark.parametrize("victim", range(3))
def test_a_worker_that_dies_while_a_value_is_shared_holds_nothing_up(cluster: Cluster, victim: int) -> None:
    """It is frozen first, so that the value is on its way to it, or is to come from it, as it dies."""
    with open_executor(cluster.address, PATIENCE) as executor, ThreadPoolExecutor(1) as pool:
        cluster.workers[victim].send_signal(signal.SIGSTOP)
        done = pool.submit(products, executor, 4)
        sleep(0.5)
        cluster.workers[victim].kill()
        assert done.result(PATIENCE) == [0.0, 100.0, 200.0, 300.0]
        assert products(executor, 3) == [0.0, 100.0, 200.0]
