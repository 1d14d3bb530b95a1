"""A store's rows as a row set: the same results as rows in memory, wherever tasks run."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from support.jobs.recording import Killed, Notes
from support.stores.models import feature_map_of
from support.stores.partitions import REQUEST, mixed_columns, write_partition
from support.stores.stores import PicklingExecutor, ingest_folder, ledger_of, new_store

from ridgestream.pipeline.base import pass_checkpoint
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.executor import Executor, InProcess, InThreads, Result, Task
from ridgestream.pipeline.base.pass_checkpoint import CheckpointBuilder, CheckpointStore, name_of_pass
from ridgestream.pipeline.base.serialization import hash_of
from ridgestream.pipeline.batch.orols.residual_pass import screen_rows
from ridgestream.pipeline.batch.shard_merge_select import learn_shard
from ridgestream.pipeline.dataset import stored_rows
from ridgestream.pipeline.dataset.stored_rows import StoredRows
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.metric import judged_sums
from ridgestream.pipeline.metric.judged_sums import JudgedSumming, JudgedSums, sum_judged
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import GROUPS, LEARNED, Split
from ridgestream.pipeline.online.experts.cells import Cells
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.selection.starts.kmeans import sum_clusters
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.candidate_products import sum_candidates
from ridgestream.pipeline.sums.normal_equations import Summing, sum_together
from ridgestream.pipeline.sums.residual_products import sum_residuals
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import ArrayRows, RowSet, cut_evenly, divide
from ridgestream.pipeline.training.new_row_errors import judge_rows
from ridgestream.pipeline.training.online.cell_trial import CellTrial, TrialRows, TriedCells, try_cells
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.segments.segments import Segments

SIZES = [300, 0, 500, 1, 257]

COUNT = Step("count", "count")


@dataclass(frozen=True)
class Numbers:
    """The row numbers that a pass read, in order, and its number of parts."""

    rows: tuple[int, ...]
    parts: int = 1

    def merge(self, other: "Numbers") -> "Numbers":
        return Numbers(self.rows + other.rows, self.parts + other.parts)


def number_rows(start: int, blocks: Iterable[RowBlock]) -> Numbers:
    return Numbers(tuple(start + block.first + i for block in blocks for i in range(len(block.features))))


def unnamed(start: int, blocks: Iterable[RowBlock]) -> Numbers:
    return number_rows(start, blocks)


def store_of(tmp_path: Path, *, weighted: bool) -> Store:
    for i, rows in enumerate(SIZES):
        weights = {"w": np.random.default_rng(i).choice([0.0, 0.5, 2.0], rows)} if weighted else {}
        write_partition(tmp_path / "source" / f"part-{i}.parquet", mixed_columns(rows, seed=i) | weights)
    store = new_store(tmp_path / "store")
    ingest_folder(store, tmp_path / "source", replace(REQUEST, weight="w" if weighted else None))
    return store


def rows_of(
    store: Store,
    orders: Sequence[int] = range(5),
    executor: Executor | None = None,
    checkpoints: CheckpointStore | None = None,
) -> StoredRows:
    ledger = ledger_of(store)
    return StoredRows(
        Segments(store.root()),
        ledger,
        orders,
        feature_map_of(store),
        executor or InProcess(),
        Notes(),
        checkpoints=checkpoints,
    )


@pytest.mark.parametrize("limit", [1, 299, 300, 301, 801, 5000])
def test_the_first_rows_are_those_of_the_first_partitions(store: Store, limit: int) -> None:
    ledger, whole = ledger_of(store), rows_of(store)
    first = StoredRows(
        Segments(store.root()), ledger, range(5), feature_map_of(store), InProcess(), Notes(), limit=limit
    )
    count = min(limit, whole.n_rows)
    assert first.n_rows == count
    np.testing.assert_array_equal(first.take(np.arange(count)).features, whole.take(np.arange(count)).features)
    read = first.reduce(number_rows, 0, COUNT, parts=3)
    assert read.rows == tuple(range(count))


def in_memory(rows: StoredRows) -> ArrayRows:
    block = rows.take(np.arange(rows.n_rows))
    return ArrayRows(block.features, block.targets, block.weights)


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store_of(tmp_path, weighted=request.param)


def test_rows_can_be_taken_in_any_order_and_repeatedly(store: Store) -> None:
    rows = rows_of(store)
    whole = in_memory(rows)
    indices = np.array([1057, 3, 299, 300, 3, 800, 801])
    block, expected = rows.take(indices), whole.take(indices)
    np.testing.assert_array_equal(block.features, expected.features)
    np.testing.assert_array_equal(block.targets, expected.targets)
    assert (block.weights is None) == (expected.weights is None)
    if block.weights is not None and expected.weights is not None:
        np.testing.assert_array_equal(block.weights, expected.weights)
    assert len(rows.take(np.empty(0, dtype=np.int64)).features) == 0


def test_a_pass_reads_every_row_once_in_order_however_rows_are_split(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_rows, "TASK_ROWS", 256)
    for rows in (rows_of(store), in_memory(rows_of(store))):
        assert rows.reduce(number_rows, 10, COUNT).rows == tuple(range(10, 1068))
        numbers = rows.reduce(number_rows, 0, COUNT, parts=7)
        assert (numbers.rows, numbers.parts) == (tuple(range(1058)), 7)
    assert rows_of(store).reduce(number_rows, 0, COUNT).parts == 2 + 2 + 1 + 2


def test_indices_count_in_the_set_and_numbers_in_the_whole_store(store: Store) -> None:
    rows = rows_of(store, [2, 4])
    assert rows.n_rows == 757
    assert rows.reduce(number_rows, 0, COUNT).rows == tuple(range(757))
    assert rows.reduce(number_rows, 0, COUNT, parts=5).rows == tuple(range(757))
    np.testing.assert_array_equal(rows.numbers(np.array([0, 499, 500, 756])), [300, 799, 801, 1057])
    np.testing.assert_array_equal(
        rows.take(np.array([499, 500])).features, rows_of(store).take(np.array([799, 801])).features
    )


def test_a_set_without_rows_is_one_call_without_blocks(store: Store) -> None:
    empty: RowSet = rows_of(store, [1])
    assert empty.reduce(number_rows, 0, COUNT) == Numbers(())
    assert empty.reduce(number_rows, 0, COUNT, parts=3) == Numbers(())


class MemoryCheckpoints:
    """A checkpoint store in memory."""

    def __init__(self) -> None:
        self.saved: dict[str, tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]] = {}
        self.pending: dict[str, CheckpointBuilder] = {}

    def load(self, key: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
        return self.saved.get(key)

    def save(self, key: str, record: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.saved[key] = json.loads(json.dumps(record)), dict(arrays)

    def set_pending(self, key: str, make: CheckpointBuilder | None) -> None:
        self.pending = {key: make} if make else {}


@pytest.mark.parametrize(
    ("function", "module"),
    [
        (sum_together, "block_statistics"),
        (sum_candidates, "candidate_sums"),
        (sum_residuals, "residual_sums"),
        (sum_clusters, "learners.kmeans_dictionary"),
        (screen_rows, "learners.orols_pass"),
        (learn_shard, "learners.shard_merge_select"),
        (judge_rows, "batch"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_checkpoints_of_a_pass_have_the_name_they_had_in_version_0_1_0(
    function: Callable[..., Any], module: str
) -> None:
    assert name_of_pass(function) == (f"ridgestream.pipeline.{module}", function.__name__)


def test_a_pass_without_a_name_is_refused_if_its_sums_are_checkpointed(store: Store) -> None:
    with pytest.raises(InputError, match=r"has no name for its checkpoints: decorate it with named_pass"):
        rows_of(store, checkpoints=MemoryCheckpoints()).reduce(unnamed, 0, COUNT)


def test_a_renamed_dataclass_is_hashed_by_its_former_name() -> None:
    @dataclass(frozen=True)
    class Before:
        value: int

    @dataclass(frozen=True)
    class After:
        value: int
        hashed_as: ClassVar[str] = Before.__qualname__

    assert hash_of(After(3)) == hash_of(Before(3))
    assert hash_of(After(3)) != hash_of(After(4))


@pytest.mark.samples
def test_a_killed_pass_resumes_and_gives_the_same_bits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_rows, "TASK_ROWS", 256)
    monkeypatch.setattr(pass_checkpoint, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(pass_checkpoint, "WORTH_SECONDS", 0.0)
    checkpoints, straight = MemoryCheckpoints(), bits(rows_of(store), 3)
    counts = []
    for after in (2, 1, 2, 9):
        executor = Killed(after)
        rows = rows_of(store, executor=executor, checkpoints=checkpoints)
        with suppress(KeyboardInterrupt):
            assert [b.tobytes() for b in bits(rows, 3)] == [b.tobytes() for b in straight]
        counts.append(executor.done)
    assert counts == [2, 1, 2, 2]  # seven tasks, none twice
    executor = Killed(9)
    bits(rows_of(store, executor=executor, checkpoints=checkpoints), 3)
    assert executor.done == 0
    assert [b.tobytes() for b in bits(rows_of(store, [0, 2], checkpoints=checkpoints), 3)] == [
        b.tobytes() for b in bits(rows_of(store, [0, 2]), 3)
    ]


def test_a_short_pass_is_not_checkpointed(store: Store) -> None:
    checkpoints = MemoryCheckpoints()
    bits(rows_of(store, checkpoints=checkpoints), 3)
    assert not checkpoints.saved


@pytest.mark.parametrize(("bytes_a_second", "saved"), [(1, False), (2**40, True)])
def test_sums_that_take_longer_to_write_than_to_repeat_are_not_checkpointed(
    store: Store, monkeypatch: pytest.MonkeyPatch, bytes_a_second: int, saved: bool
) -> None:
    monkeypatch.setattr(pass_checkpoint, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(pass_checkpoint, "WORTH_BYTES", bytes_a_second)
    checkpoints = MemoryCheckpoints()
    bits(rows_of(store, checkpoints=checkpoints), 3)
    assert bool(checkpoints.saved) == saved


class Ahead(InProcess):
    """Draws three tasks before the first result, as workers do."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[Any] = []

    def run(self, function: Callable[..., Result], tasks: Iterable[Task], *shared: Any) -> Iterator[Result]:
        waiting: deque[Task] = deque()
        for task in tasks:
            self.drawn.append(task)
            waiting.append(task)
            if len(waiting) == 3:
                yield function(waiting.popleft(), *shared)
        yield from (function(task, *shared) for task in waiting)


def summings_of(rows: StoredRows) -> list[JudgedSumming]:
    bases = [Basis(RBF(g), rows.take(np.arange(9)).features, np.zeros(rows.n_features)) for g in (0.1, 0.2, 0.4)]
    return [JudgedSumming(Metric.standardized(rows.n_features), (b,), Split(rows.n_rows), 1) for b in bases]


def test_workers_go_on_with_the_next_pass_while_the_sums_of_one_are_considered(store: Store) -> None:
    rows, executor = rows_of(store), Ahead()
    summings = summings_of(rows)
    passes = rows_of(store, executor=executor).reduce_each(sum_judged, summings, COUNT, parts=2)
    first = next(passes)
    assert len(executor.drawn) > 2
    assert hash_of([first, *passes]) == hash_of([rows.reduce(sum_judged, each, COUNT, parts=2) for each in summings])
    assert len(executor.drawn) == 3 * 2


def test_several_passes_resume_where_they_were_killed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_checkpoint, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(pass_checkpoint, "WORTH_SECONDS", 0.0)
    checkpoints, summings = MemoryCheckpoints(), summings_of(rows_of(store))
    straight = hash_of(list(rows_of(store).reduce_each(sum_judged, summings, COUNT, parts=4)))
    counts = []
    for after in (5, 2, 99):
        executor = Killed(after)
        rows = rows_of(store, executor=executor, checkpoints=checkpoints)
        with suppress(KeyboardInterrupt):
            assert hash_of(list(rows.reduce_each(sum_judged, summings, COUNT, parts=4))) == straight
        counts.append(executor.done)
    assert counts == [5, 2, 5]  # twelve tasks, none twice


def bits(rows: RowSet, folds: int) -> list[npt.NDArray[np.float64]]:
    basis = Basis(RBF(0.2), rows.take(np.array([5, 300, 700])).features, np.zeros(rows.n_features))
    sums = rows.statistics((Summing(basis, 1, folds),), COUNT).parts[0]
    return [fold.products for fold in sums.folds]


@pytest.mark.samples
def test_sums_have_the_same_bits_in_any_executor_and_match_memory_to_rounding(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_rows, "TASK_ROWS", 256)
    local, pickled = bits(rows_of(store), 3), bits(rows_of(store, executor=PicklingExecutor()), 3)
    assert [b.tobytes() for b in local] == [b.tobytes() for b in pickled]
    for matrix, expected in zip(local, bits(in_memory(rows_of(store)), 3), strict=True):
        np.testing.assert_allclose(matrix, expected, rtol=1e-13)


class ThreeWorkers(PicklingExecutor):
    """Runs tasks as a cluster of three workers might."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks = 0

    def count_workers(self) -> int:
        return 3

    def run(self, function: Callable[..., Result], tasks: Iterable[Task], *shared: Any) -> Iterator[Result]:
        tasks = list(tasks)
        self.tasks += len(tasks)
        return super().run(function, tasks, *shared)


def test_shares_of_an_argument_are_taken_apart_and_change_no_bit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of the metric's rows, and cells, are such: of workers, and of one process if their sums are large."""
    rows = rows_of(store)
    metric, basis = (
        Metric.standardized(rows.n_features),
        Basis(RBF(0.2), rows.take(np.arange(9)).features, np.zeros(rows.n_features)),
    )
    summing = JudgedSumming(metric, (basis, basis), Split(rows.n_rows), 1)
    settings = OnlineSettings(RBF(0.2), max_basis=20)
    centres, first = np.unique(basis.vectors, axis=0), TrialRows(metric, 900)
    learned = first.group(first.of(rows.take(np.arange(900))), LEARNED)
    trial = CellTrial(first, settings, centres, Cells.of(centres).nearest(learned.features), np.arange(len(centres)))

    def results(executor: Executor) -> tuple[JudgedSums, TriedCells]:
        rows = rows_of(store, executor=executor)
        return rows.reduce(sum_judged, summing, COUNT, parts=2), rows.reduce(try_cells, trial, COUNT, parts=1)

    workers = ThreeWorkers()
    assert hash_of(results(workers)) == hash_of(results(InProcess()))
    assert workers.tasks == 2 * GROUPS + 3
    assert hash_of(results(InThreads(3))) == hash_of(results(InProcess()))
    monkeypatch.setattr(judged_sums, "SMALL_BYTES", 100)
    assert len(divide(summing, 1)) == GROUPS
    assert hash_of(results(InProcess())) == hash_of(results(workers))


@pytest.mark.parametrize(("n_rows", "parts"), [(0, 3), (2, 3), (3, 3), (1000, 7)])
def test_parts_are_as_equal_as_can_be(n_rows: int, parts: int) -> None:
    ranges = cut_evenly(n_rows, parts)
    assert [row for start, stop in ranges for row in range(start, stop)] == list(range(n_rows))
    sizes = [stop - start for start, stop in ranges]
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == max(1, min(n_rows, parts))
