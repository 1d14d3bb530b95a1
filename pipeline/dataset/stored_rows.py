"""Rows of a store as a row set: tasks read their own rows, on any executor, and return sums.

A task is a run of rows, of one segment unless the caller gives the number of tasks. Sums are added one by one in the
order of the rows, so they have the same bits on any number of workers, and for any division of partitions into nights.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ridgestream.pipeline.base.array_checks import Integers
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.pass_checkpoint import CheckpointStore, ResumablePass, name_of_pass
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.serialization import hash_of
from ridgestream.pipeline.dataset.block_plan import plan_blocks
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES, BlockReader
from ridgestream.pipeline.dataset.task_label import TaskLabel
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.sums.normal_equations import SeveralStatistics, Summing, sum_together
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import Sums, cut_evenly
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.segments.segments import Segment

if TYPE_CHECKING:
    import zarr

TASK_ROWS = 65_536
"""Rows per task, a multiple of every segment's chunk; large enough that returning the sums costs little."""

Argument = TypeVar("Argument")
Summed = TypeVar("Summed", bound=Sums)


@dataclass(frozen=True)
class RowRange:
    """Rows of one segment."""

    segment: int
    """The segment's number in the ledger."""
    start: int
    """First row."""
    stop: int
    """One past the last row."""
    first: int
    """The index of the first row in the row set."""
    partition: str = ""
    """The name of its partition, for messages."""

    @property
    def label(self) -> TaskLabel:
        """Description for error messages."""
        return TaskLabel(self.partition, self.start, self.stop)


RowTask = tuple[RowRange, ...]
"""Ranges of rows to be summed, in order."""


@dataclass(frozen=True)
class RowSource:
    """What tasks need to read their rows; sent once to all workers."""

    root: "zarr.Group"
    """The root of the snapshot."""
    feature_map: FeatureMap
    """Maps raw columns to standardized features."""


class StoredRows:
    """The rows of several segments of a store, in ledger order."""

    def __init__(
        self,
        root: "zarr.Group",
        ledger: Ledger,
        segments: Iterable[int],
        feature_map: FeatureMap,
        executor: Executor,
        report: Reporter,
        checkpoints: CheckpointStore | None = None,
    ) -> None:
        numbers = set(segments)
        ends = np.cumsum([entry.rows for entry in ledger.entries])
        self._entries = [entry for entry in ledger.entries if entry.segment in numbers]
        self._firsts = {e.segment: int(end) - e.rows for e, end in zip(ledger.entries, ends, strict=True)}
        self._source, self._executor, self._report = RowSource(root, feature_map), executor, report
        self._checkpoints = checkpoints

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(entry.rows for entry in self._entries)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self._source.feature_map.n_features

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self._source.feature_map.target.n_outputs

    def numbers(self, indices: Integers) -> Integers:
        """Return the indices, among all rows of the store, of the rows with these indices in the row set."""
        if not self._entries:
            return indices
        sizes = np.array([entry.rows for entry in self._entries])
        ends = np.cumsum(sizes)
        segments = np.searchsorted(ends, indices, side="right")
        firsts = np.array([self._firsts[entry.segment] for entry in self._entries])
        return np.asarray(indices - (ends - sizes)[segments] + firsts[segments])

    def take(self, indices: Integers) -> RowBlock:
        """Return the rows at these indices; reads the chunks that contain them, one at a time.

        Raises StoreError for a missing or damaged chunk.
        """
        ascending, positions = np.unique(indices, return_inverse=True)
        blocks = [block for number, inside in self._split(ascending) for block in self._read_rows(number, inside)]
        features = np.concatenate([np.empty((0, self.n_features)), *(block.features for block in blocks)])
        targets = np.concatenate([np.empty((0, self.n_targets)), *(block.targets for block in blocks)])
        weights = [block.weights for block in blocks if block.weights is not None]
        return RowBlock(
            features[positions], targets[positions], np.concatenate(weights)[positions] if weights else None
        )

    def reduce(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        argument: Argument,
        step: Step,
        parts: int | None = None,
    ) -> Summed:
        """Return function(argument, blocks) over all rows, by tasks of at most TASK_ROWS rows, or by `parts` tasks.

        Raises StoreError for unreadable rows, and the errors of the executor.
        """
        tasks = self._tasks() if parts is None else [self._range(*run) for run in cut_evenly(self.n_rows, parts)]
        tasks = tasks or [()]
        checkpoint = ResumablePass(self._checkpoints, self._key(function, argument, tasks), function)
        done, summed = checkpoint.load()
        self._report.begin(step, self.n_rows, partitions=len(self._entries))
        self._report.advance(sum(_count(task) for task in tasks[:done]))
        shared = self._executor.broadcast((self._source, function, argument)) if done < len(tasks) else None
        for part in self._executor.run(run_task, tasks[done:], shared):
            summed = part if summed is None else summed.merge(part)
            done += 1
            checkpoint.update(done, summed, complete=done == len(tasks))
            self._report.advance(_count(tasks[done - 1]))
        self._report.end(rows=self.n_rows)
        return cast("Summed", summed)

    def statistics(self, summings: Sequence[Summing], step: Step) -> SeveralStatistics:
        """Return the sums of each basis over all rows."""
        return self.reduce(sum_together, summings, step)

    def _tasks(self) -> list[RowTask]:
        starts = accumulate((entry.rows for entry in self._entries), initial=0)
        return [task for entry, start in zip(self._entries, starts, strict=False) for task in plan_tasks(entry, start)]

    def _range(self, start: int, stop: int) -> RowTask:
        """Return the rows with indices from `start` up to `stop`, segment by segment."""
        ranges, begin = [], 0
        for entry in self._entries:
            low, high = max(start - begin, 0), min(stop - begin, entry.rows)
            if low < high:
                ranges.append(RowRange(entry.segment, low, high, begin + low, entry.name))
            begin += entry.rows
        return tuple(ranges)

    def _key(self, function: Callable[..., Any], argument: object, tasks: list[RowTask]) -> str:
        """Return the key of the pass's checkpoint; empty without a checkpoint store."""
        if self._checkpoints is None:
            return ""
        contents = [entry.content_sha256 for entry in self._entries]
        cuts = [[(rows.segment, rows.start, rows.stop, rows.first) for rows in task] for task in tasks]
        return hash_of((*name_of_pass(function), argument, self._source.feature_map, contents, cuts))

    def _split(self, ascending: Integers) -> Iterator[tuple[int, Integers]]:
        """Yield each segment's number and the indices of its requested rows within the segment."""
        begin = 0
        for entry in self._entries:
            low, high = np.searchsorted(ascending, [begin, begin + entry.rows])
            yield entry.segment, ascending[low:high] - begin
            begin += entry.rows

    def _read_rows(self, number: int, indices: Integers) -> Iterator[RowBlock]:
        """Yield rows of one segment by ascending indices, chunk by chunk."""
        if not len(indices):
            return
        segment = Segment.open(self._source.root, number)
        reader = BlockReader({number: segment}, self._source.feature_map)
        for chunk in np.split(indices, np.flatnonzero(np.diff(indices // segment.chunk_rows)) + 1):
            yield reader.pick(number, chunk)


def plan_tasks(entry: LedgerEntry, first: int = 0) -> list[RowTask]:
    """Return the tasks of a partition whose first row has index `first`; none for a partition without rows."""
    starts = range(0, entry.rows, TASK_ROWS)
    ends = [min(start + TASK_ROWS, entry.rows) for start in starts]
    pairs = zip(starts, ends, strict=True)
    return [(RowRange(entry.segment, start, stop, first + start, entry.name),) for start, stop in pairs]


def _count(task: RowTask) -> int:
    return sum(rows.stop - rows.start for rows in task)


def run_task(task: RowTask, shared: tuple[RowSource, Callable[[Any, Iterable[RowBlock]], Summed], Any]) -> Summed:
    """Return the function's sums over the rows of a task."""
    source, function, argument = shared
    summed: Summed = function(argument, _read(task, source))
    return summed


def _read(task: RowTask, source: RowSource) -> Iterator[RowBlock]:
    """Yield the rows of a task, in blocks that depend only on the store and the number of features."""
    for rows in task:
        segment = Segment.open(source.root, rows.segment)
        reader = BlockReader({rows.segment: segment}, source.feature_map)
        whole = [(rows.segment, rows.stop - rows.start, segment.chunk_rows)]
        for block_range in plan_blocks(whole, BLOCK_BYTES, 8 * source.feature_map.n_features):
            block = reader.read(block_range.shifted(rows.start))
            yield RowBlock(block.features, block.targets, block.weights, rows.first + block_range.start)
