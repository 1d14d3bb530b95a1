"""Local experts that workers share: each learns some of the cells, from all rows of a stretch of the stream.

Every worker reads the whole stretch and keeps the rows of its cells: reading, standardizing and routing a row costs
each of them what a kernel row of some ten vectors costs, and nothing but states and predictions is sent. The cells of
a worker, and the stretches, change no bit: a cell learns its rows in the same parts, whoever has it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.executor import InProcess, MemoryNeed
from ridgestream.pipeline.base.memory_plan import TrainingPlan
from ridgestream.pipeline.dataset.block_plan import Part
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES, Block, BlockReader, Stream
from ridgestream.pipeline.dataset.range_checks import naming_partition
from ridgestream.pipeline.dataset.task_label import TaskLabel
from ridgestream.pipeline.online.experts.cell_learning import PART_BYTES, Step, check_block, learn_block, learn_cell
from ridgestream.pipeline.online.experts.cells import Cells
from ridgestream.pipeline.online.experts.experts_state import ExpertsState
from ridgestream.pipeline.online.experts.packed_cell import N_BASIS, ROWS_SEEN, SWAPS, rows_seen_of
from ridgestream.pipeline.training.online.learned_block import LearnedBlock, Point
from ridgestream.stores.catalog.ledger import LedgerEntry

STRETCH_ROWS, STRETCH_ROWS_A_CELL = 2**19, 1024
"""The most rows that are learned between two exchanges of states, the larger number, unless one part has more."""

FEWEST_SHARED, FEWEST_SHARED_A_CELL = 2**15, 128
"""Fewer rows than one of these are learned in the process of the job: to send the states would take longer."""

EVERY_WORKERS_SECONDS = 3e-6
"""About how long a worker reads, standardizes and routes a row, whether or not it is one of its cells'."""


@dataclass(frozen=True)
class CellTask:
    """Some cells, and the stretch of the stream that they learn."""

    cells: Integers
    """Their numbers, in ascending order."""
    state: ExpertsState
    """Their state before, with the centres of all cells."""
    parts: tuple[Part, ...]
    """The stretch."""
    first: int
    """How many rows the model has seen before."""
    step: Step
    """What a cell does with its rows."""
    label: TaskLabel
    """Description for error messages."""


@dataclass(frozen=True)
class CellRows:
    """The rows of some cells in a part of the stream."""

    places: Integers
    """Their places in the part, shape (rows,)."""
    predictions: Floats
    """What was predicted before each was learned, shape (rows, n_outputs)."""
    targets: Floats
    """In the learner's units, shape (rows, n_outputs)."""
    weights: Floats | None
    """Shape (rows,); None if all weights are 1."""
    point: Point
    """The cells after the part."""


@dataclass(frozen=True)
class CellsLearned:
    """What a task brings back."""

    cells: Cells
    """All cells, as wide as rows are now."""
    packed: dict[int, Floats]
    """The states of the cells that changed, by number."""
    rows: tuple[CellRows, ...]
    """The rows of the task's cells, part by part."""


@dataclass(frozen=True)
class SharedCells:
    """Learns parts of a stream by tasks of the stream's executor."""

    stream: Stream
    """The stream."""
    entries: Sequence[LedgerEntry]
    """Its partitions."""
    step: Step = learn_cell
    """What a cell does with its rows."""

    def learn(self, state: ExpertsState, parts: Sequence[Part]) -> Iterator[tuple[ExpertsState, list[LearnedBlock]]]:
        """Learn the parts stretch by stretch; yield the state after each, and its blocks."""
        executor = self.stream.executor
        shared = executor.broadcast(self.stream.reader), executor.broadcast(tuple(self.entries))
        for stretch in _stretches(parts, max(STRETCH_ROWS, STRETCH_ROWS_A_CELL * len(state.cells))):
            executor.admit([_need(state, executor.count_workers())])
            outputs = self.stream.reader.map_of(stretch[0][0].segment).target.n_outputs
            tasks = list(self._tasks(replace(state, n_targets=outputs), stretch, executor.count_workers()))
            learned = list(executor.run(learn_cells, tasks, *shared))
            packed = {cell: kept for each in learned for cell, kept in each.packed.items()}
            state = replace(state, n_targets=outputs, cells=learned[0].cells).having(packed)
            yield state, list(_blocks(stretch, tasks[0].first, learned))

    def _tasks(self, state: ExpertsState, stretch: tuple[Part, ...], workers: int) -> Iterator[CellTask]:
        first = int(state.total(ROWS_SEEN))
        label = self.stream.label([block_range for part in stretch for block_range in part])
        for cells in divide_cells([rows_seen_of(packed) for packed in state.packed], workers):
            yield CellTask(cells, state.only(cells.tolist()), stretch, first, self.step, label)


def _need(state: ExpertsState, workers: int) -> MemoryNeed:
    (n_cells, n_features), max_basis = state.cells.centres.shape, state.parameters.max_basis or 0
    return TrainingPlan(max_basis, n_features, BLOCK_BYTES, n_cells, PART_BYTES).worker_need(workers)


def fewest_shared(n_cells: int) -> int:
    """Return the fewest rows whose cells workers share."""
    return max(FEWEST_SHARED, FEWEST_SHARED_A_CELL * n_cells)


def is_worth_sharing(stream: Stream, parts: Sequence[Part], n_cells: int) -> bool:
    """Return whether workers share the cells that learn these parts."""
    rows = sum(block_range.rows for part in parts for block_range in part)
    return not isinstance(stream.executor, InProcess) and rows >= fewest_shared(n_cells)


def divide_cells(rows: Sequence[int], groups: int) -> list[Integers]:
    """Return the numbers of cells, in ascending order, in at most so many groups that have about as many rows each."""
    order, groups = np.argsort(-np.asarray(rows), kind="stable"), max(1, groups)
    turns = np.arange(len(order)) % (2 * groups)
    group_of = np.minimum(turns, 2 * groups - 1 - turns)
    return [np.sort(order[group_of == group]) for group in range(min(groups, len(order)))]


def learn_cells(task: CellTask, reader: BlockReader, entries: Sequence[LedgerEntry]) -> CellsLearned:
    """Learn the rows of a task's cells; runs on a worker."""
    state, first, rows = task.state, task.first, []
    for part in task.parts:
        block = reader.read_joined(part)
        with naming_partition(entries, part[0].segment), np.errstate(over="ignore", invalid="ignore"):
            state, learned = _learn_part(state, block, task, first)
        rows.append(learned)
        first += len(block.targets)
    before = task.state.packed
    changed = {cell: kept for cell, kept in enumerate(state.packed) if kept is not before[cell]}
    return CellsLearned(state.cells, changed, tuple(rows))


def _learn_part(state: ExpertsState, block: Block, task: CellTask, first: int) -> tuple[ExpertsState, CellRows]:
    state = state.widened(block.new_features) if len(block.new_features) else state
    checked = check_block(state, block.features, block.targets, block.weights, first)
    state, places, predictions = learn_block(state, checked, task.cells, task.step)
    weights = None if block.weights is None else block.weights[places]
    point = Point(len(block.targets), int(state.total(N_BASIS)), int(state.total(SWAPS)))
    return state, CellRows(places, predictions, block.targets[places], weights, point)


def _stretches(parts: Sequence[Part], most_rows: int) -> Iterator[tuple[Part, ...]]:
    together: list[Part] = []
    rows = 0
    for part in parts:
        more = sum(block_range.rows for block_range in part)
        if together and rows + more > most_rows:
            yield tuple(together)
            together, rows = [], 0
        together.append(part)
        rows += more
    if together:
        yield tuple(together)


def _blocks(stretch: tuple[Part, ...], first: int, learned: Sequence[CellsLearned]) -> Iterator[LearnedBlock]:
    for number, part in enumerate(stretch):
        rows = [each.rows[number] for each in learned]
        places = np.argsort(np.concatenate([each.places for each in rows]))
        predictions, targets = (
            np.concatenate([getattr(each, name) for each in rows])[places] for name in ("predictions", "targets")
        )
        weights = [each.weights for each in rows if each.weights is not None]
        points = [each.point for each in rows]
        point = Point(points[0].stop, sum(each.n_basis for each in points), sum(each.swaps for each in points))
        yield LearnedBlock(
            part, first, predictions, targets, np.concatenate(weights)[places] if weights else None, [point]
        )
        first += len(targets)
