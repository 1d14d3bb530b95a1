"""Refit: the exact coefficients of a dictionary that is already chosen, from one more pass over the rows of a model.

The online pass forms K̃ᵀK̃ of rows against the dictionary as it was when each row came; a vector taken later stands for
earlier rows by its projection only. Here every row meets the final dictionary, (G + λnK)β = z, and nothing else of the
model changes: its learner goes on as if there had been no refit.

A task is a run of rows of one segment. Sums are added in a fixed tree, first those of a segment, then the segments', so
they are the same bits on any number of workers, and however the partitions were spread over nights.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from ridgestream.pipeline.block_statistics import (
    Basis,
    BlockStatistics,
    RowBlock,
    merge_statistics,
    plan_kernel_rows,
    sum_rows,
)
from ridgestream.pipeline.blocks import plan_blocks
from ridgestream.pipeline.executor import Executor
from ridgestream.pipeline.features import FeatureMap
from ridgestream.pipeline.planning import RefitPlan
from ridgestream.pipeline.records import state_of, with_refit
from ridgestream.pipeline.reporting import Reporter
from ridgestream.pipeline.stream import BLOCK_BYTES, BlockReader
from ridgestream.pipeline.threads import one_blas_thread
from ridgestream.stores.ledger import Ledger, LedgerEntry
from ridgestream.stores.models import ModelRecord
from ridgestream.stores.segments import Segment

if TYPE_CHECKING:
    import zarr

TASK_ROWS = 65_536
"""Rows of a task, a multiple of every segment's chunk: enough that sums are small against the work of making them."""


@dataclass(frozen=True)
class RefitTask:
    """Rows of one segment to be summed."""

    order: int
    """The segment's number in the ledger."""
    start: int
    """First row."""
    stop: int
    """One past the last row."""


@dataclass(frozen=True)
class RefitSource:
    """What every task needs; sent once to wherever tasks run."""

    root: "zarr.Group"
    """The root of the snapshot, by which a task reads its rows."""
    feature_map: FeatureMap
    """From raw columns to standardized features."""
    basis: Basis
    """The dictionary."""


def refit(
    root: "zarr.Group",
    ledger: Ledger,
    record: ModelRecord,
    orders: Sequence[int],
    executor: Executor,
    report: Reporter,
) -> ModelRecord:
    """Return the model with coefficients fitted to all rows of the segments `orders`; O(n_basis²) a row.

    Raises StoreError for rows that cannot be read, NumericalBreakdown if the normal matrix is not positive definite.
    """
    state = state_of(record)
    basis = Basis(state.parameters.kernel, state.basis_vectors, state.centre)
    source = RefitSource(root, FeatureMap.from_dict(record.encoding), basis)
    entries = _entries(ledger, orders)
    report.begin("refit", sum(entry.rows for entry in entries), partitions=len(entries))
    sums = sum_segments(source, entries, state.n_targets, executor, report)
    with one_blas_thread():
        normal = sums.factorize(state.gram, state.parameters.regularization)
        refitted = with_refit(record, sums, normal.solve(sums.rhs))
    report.end(rows=sums.rows, n_basis=state.n_basis, jitter=normal.jitter or None)
    return refitted


def check_refit_memory(ledger: Ledger, max_basis: int, limit_bytes: int) -> None:
    """Raise MemoryRefused, with the numbers, if a refit over the ledger's partitions cannot fit; no row is read."""
    largest = max((len(plan_tasks(entry)) for entry in ledger.entries), default=0)
    kernel_bytes = 8 * max_basis * plan_kernel_rows(max_basis)
    plan = RefitPlan(max_basis, _count_features(ledger), len(ledger.entries), largest, BLOCK_BYTES, kernel_bytes)
    plan.check(limit_bytes)


def plan_tasks(entry: LedgerEntry) -> list[RefitTask]:
    """Return the tasks of a partition, by its rows alone; none for a partition without rows."""
    starts = range(0, entry.rows, TASK_ROWS)
    return [RefitTask(entry.order, start, min(start + TASK_ROWS, entry.rows)) for start in starts]


def sum_segments(
    source: RefitSource, entries: Sequence[LedgerEntry], n_targets: int, executor: Executor, report: Reporter
) -> BlockStatistics:
    """Return the sums over all rows of the partitions, in a tree over those of each partition."""
    tasks = [task for entry in entries for task in plan_tasks(entry)]
    empty = BlockStatistics.empty(len(source.basis.vectors), n_targets)
    results = executor.run(sum_task, tasks, executor.broadcast(source), n_targets)
    done = zip(tasks, _reported(results, report), strict=True)
    segments = (
        merge_statistics((sums for _, sums in parts), empty) for _, parts in groupby(done, lambda pair: pair[0].order)
    )
    return merge_statistics(segments, empty)


def sum_task(task: RefitTask, source: RefitSource, n_targets: int) -> BlockStatistics:
    """Return the sums over the rows of a task."""
    return sum_rows(source.basis, _read(task, source), n_targets)


def _read(task: RefitTask, source: RefitSource) -> Iterator[RowBlock]:
    """Yield the rows of a task, in blocks that the store and the number of features decide."""
    segment = Segment.open(source.root, task.order)
    reader = BlockReader({task.order: segment}, source.feature_map)
    whole = [(task.order, task.stop - task.start, segment.chunk_rows)]
    for where in plan_blocks(whole, BLOCK_BYTES, 8 * source.feature_map.n_features):
        block = reader.read(where.shifted(task.start))
        yield RowBlock(block.features, block.targets, block.weights)


def _reported(results: Iterator[BlockStatistics], report: Reporter) -> Iterator[BlockStatistics]:
    for sums in results:
        report.advance(sums.rows)
        yield sums


def _entries(ledger: Ledger, orders: Sequence[int]) -> list[LedgerEntry]:
    return [ledger.entries[order] for order in orders]


def _count_features(ledger: Ledger) -> int:
    """Return how many features a model that begins now would have; an older one has no more."""
    numeric = len(ledger.schema.numeric) if ledger.schema else 0
    return numeric + sum(len(values) for values in ledger.categories)
