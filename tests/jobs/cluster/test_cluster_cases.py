"""What users of Dask ran into on clusters: the small inputs of their reports, and the right outcome.

Others of their kind are next to what they are about: a partition that does not fit, threads, in `test_workers`; a
scheduler without workers, or killed in mid-run, in `test_cluster`, `test_cluster_processes` and `test_crash_matrix`.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from support.jobs.clusters import Cluster, real_cluster
from support.jobs.jobs import PATIENCE, Workplace, assert_same_model, draw_rows, open_store, wait_until
from support.jobs.recording import Notes
from support.points import points
from support.stores.training import context_of

from ridgestream.jobs.cluster.cluster_error import ClusterError
from ridgestream.jobs.cluster.dask_executor import TASKS_PER_WORKER, DaskExecutor, open_executor
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.executor import Executor, InProcess, MemoryNeed
from ridgestream.pipeline.base.reporter import Fact, Silent
from ridgestream.pipeline.dataset import block_stream, stored_rows
from ridgestream.pipeline.dataset.block_stream import Block, Stream
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.training.refit import refit
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.segments.segments import Segments

LOST = "cluster.worker_lost"


def results_on(executor: DaskExecutor) -> dict[str, list[str]]:
    """The results of tasks that each worker holds, by its address."""
    held = {address: [str(k) for k in keys] for address, keys in executor._submission._client.has_what().items()}
    return {address: [key for key in keys if key.startswith("perform")] for address, keys in held.items()}


class Striking:
    """Kills a worker that holds results, which nobody has fetched yet, after the first result of the first run."""

    threads = 1

    def __init__(self, executor: DaskExecutor, cluster: Cluster) -> None:
        self._executor, self._cluster, self.struck = executor, cluster, 0

    def count_workers(self) -> int:
        return self._executor.count_workers()

    def admit(self, needs: Iterable[MemoryNeed]) -> None:
        self._executor.admit(needs)

    def broadcast(self, value: Any) -> Any:
        return self._executor.broadcast(value)

    def run(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        for result in self._executor.run(function, tasks, *shared):
            if not self.struck:
                self._strike()
            yield result

    def release(self) -> None:
        self._executor.release()

    def _strike(self) -> None:
        wait_until(lambda: any(len(keys) > 1 for keys in results_on(self._executor).values()))
        held = results_on(self._executor)
        victim = max(held, key=lambda address: len(held[address]))
        name = self._executor._submission._client.scheduler_info(n_workers=-1)["workers"][victim]["name"]
        self.struck = len(held[victim])
        self._cluster.workers[int(name)].kill()


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


@pytest.mark.thorough
def test_sums_that_died_with_their_worker_before_they_were_fetched_count_once(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """distributed#7870"""
    monkeypatch.setattr(stored_rows, "TASK_ROWS", 256)
    monkeypatch.setattr(stored_rows, "TASK_PARTS", 1)
    for number in range(4):
        work.put(number, draw_rows(number, 1000))
    work.run_here({"evaluate.path": None})
    store, record, notes = open_store(work.store), work.model(), Notes()

    def refitted(executor: Executor) -> Any:
        return refit(context_of(store, executor=executor), record, record.learned)

    with (
        real_cluster(work.folder, 2) as cluster,
        open_executor(cluster.address, PATIENCE, report=notes) as executor,
    ):
        assert isinstance(executor, DaskExecutor)
        striking = Striking(executor, cluster)
        there = refitted(striking)
    assert striking.struck >= 1
    assert 0 < notes.facts(LOST)["results_lost"] <= striking.struck  # type: ignore[operator]  # one may be under way
    assert_same_model(there, refitted(InProcess()))


@pytest.mark.thorough
def test_results_lost_with_the_only_worker_are_not_awaited_for_ever(tmp_path: Path) -> None:
    with real_cluster(tmp_path, 1) as cluster, open_executor(cluster.address, 2.0) as executor:
        assert isinstance(executor, DaskExecutor)
        results = executor.run(abs, range(-9, 0))
        assert next(results) == 9
        wait_until(lambda: any(results_on(executor).values()))
        cluster.workers[0].kill()
        with pytest.raises(ClusterError, match="has lost its workers, and no other came within 2 s"):
            list(results)


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with real_cluster(tmp_path_factory.mktemp("two-workers"), 2) as cluster:
        yield cluster


def run_there(work: Workplace, cluster: Cluster, changes: dict[str, Any], report: Any = None) -> dict[str, Any]:
    job, report = read_job(work.job(changes), {}), report or Silent()
    with open_executor(cluster.address, PATIENCE) as executor:
        return run_job(job, executor, report, 0.0, new_model=False)


@pytest.mark.at_most(2)
@pytest.mark.samples
@pytest.mark.parametrize(
    ("method", "where"),
    points(product(["online", "ols"], ["first", "in the middle", "alone"]), [("online", "alone"), ("ols", "first")]),
)
def test_partitions_without_rows_work_on_a_cluster_and_are_consumed(
    work: Workplace, two_workers: Cluster, where: str, method: str
) -> None:
    """dask-ml#911, dask#8327"""
    none, changes = draw_rows(0).slice(0, 0), {"evaluate.path": None, "model.method": method, "model.max_basis": 10}
    changes |= {"model.novelty_threshold": None} if method == "online" else {}
    tables = {"first": [none, 1, 2], "in the middle": [1, none, 2], "alone": [none]}[where]
    here = Workplace(work.folder / "here")
    for number, table in enumerate(tables):
        for place in (work, here):
            place.put(number, draw_rows(table) if isinstance(table, int) else table)
    result, alone = run_there(work, two_workers, changes), here.run_here(changes)
    assert result["partitions_consumed"] == alone["partitions_consumed"]
    assert len(read_ledger(open_store(work.store).root()).entries) == len(tables)
    if where != "alone":
        assert result["partitions_consumed"] == 3
        assert_same_model(work.model(), here.model())
    work.put(7)
    here.put(7)
    assert run_there(work, two_workers, changes)["partitions_consumed"] == len(tables) + 1
    here.run_here(changes)
    assert_same_model(work.model(), here.model())


class Sampling(Silent):
    """Notes the memory of some processes as the rows of each step are done."""

    def __init__(self, processes: list[int]) -> None:
        self._processes = [psutil.Process(process) for process in processes]
        self.steps: list[list[int]] = []

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:  # noqa: ARG002
        self.steps.append([])

    def advance(self, rows: int, **facts: Fact) -> None:  # noqa: ARG002
        self.steps[-1].append(sum(process.memory_info().rss for process in self._processes))


@pytest.mark.slow
def test_memory_is_flat_over_two_hundred_partitions(
    work: Workplace, two_workers: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """distributed#8375. What each brings is a megabyte of rows, which would show if it were kept."""
    partitions, rows = 200, 2_000
    values = np.random.default_rng(0).normal(size=(54, rows))
    table = pa.table({**{f"x{i}": values[i] for i in range(54)}, "label": np.arange(rows) % 3})
    first = work.put(0, table)
    for number in range(1, partitions):
        copyfile(first, first.with_name(f"part-{number:03d}.parquet"))
    monkeypatch.setattr(block_stream, "BLOCK_BYTES", 2**20)
    pids = [two_workers.scheduler.pid, *(worker.pid for worker in two_workers.workers)]
    report = Sampling([psutil.Process().pid, *pids])
    changes = {"evaluate.path": None, "model.max_basis": 5, "model.scaling_rows": rows, "model.refit": True}
    result = run_there(work, two_workers, changes, report)
    assert result["partitions_consumed"] == partitions
    for samples in report.steps[:3]:  # ingest, train, refit
        assert len(samples) >= partitions
        quarter = len(samples) // 4
        assert max(samples[-quarter:]) - max(samples[quarter : 2 * quarter]) < 64 * 2**20


@pytest.mark.thorough
def test_blocks_for_the_learner_come_in_order_and_a_bounded_number_ahead(
    work: Workplace, two_workers: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_stream, "BLOCK_BYTES", 256 * 4 * 8)
    for number in range(3):
        work.put(number, draw_rows(number, 2000))
    work.run_here({"evaluate.path": None})
    root, numbers = open_store(work.store).root(), (0, 1, 2)
    feature_map = FeatureMap.from_dict(work.model().encoding)
    here = list(Stream(Segments(root), numbers, feature_map).blocks())
    with open_executor(two_workers.address, PATIENCE) as executor:
        assert isinstance(executor, DaskExecutor)
        blocks = Stream(Segments(root), numbers, feature_map, executor=executor).blocks()
        there: list[Block] = []
        for block in blocks:
            there.append(block)
            if len(there) in (1, 5):
                wait_until(lambda: not any(executor._submission._client.processing().values()))
                held = sum(map(len, results_on(executor).values()))
                assert 0 < held <= 2 * TASKS_PER_WORKER < len(here) - 5
    assert [block.block_range for block in there] == [block.block_range for block in here]
    for one, other in zip(there, here, strict=True):
        assert one.features.tobytes() == other.features.tobytes()
        assert one.targets.tobytes() == other.targets.tobytes()
