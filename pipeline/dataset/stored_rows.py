"""Rows of a store as a row set: tasks read their own rows, wherever they run, and send back sums.

A task is a run of rows, of one segment where the row set cuts them itself. Sums are added one by one in the order of
the rows, so they are the same bits on any number of workers, and however the partitions were spread over nights.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ridgestream.pipeline.base.array_checks import Integers
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.pass_checkpoint import Keeper, KeptPass, name_of_pass
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.serialization import hash_of
from ridgestream.pipeline.dataset.block_plan import plan_blocks
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES, BlockReader
from ridgestream.pipeline.dataset.task_label import Work
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.sums.normal_equations import RowBlock, SeveralStatistics, Summing, sum_together
from ridgestream.pipeline.sums.row_set import Sums, cut_evenly
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.segments.segments import Segment

if TYPE_CHECKING:
    import zarr

TASK_ROWS = 65_536
"""Rows of a task, a multiple of every segment's chunk: enough that sums are small against the work of making them."""

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
    """The place of the first row in the row set."""
    partition: str = ""
    """The name of its partition, to be told of."""

    @property
    def work(self) -> Work:
        """What it is of."""
        return Work(self.partition, self.start, self.stop)


RowTask = tuple[RowRange, ...]
"""Rows to be summed, in their order."""


@dataclass(frozen=True)
class RowSource:
    """Where tasks find their rows; sent once to wherever tasks run."""

    root: "zarr.Group"
    """The root of the snapshot."""
    feature_map: FeatureMap
    """From raw columns to standardized features."""


class StoredRows:
    """The rows of some segments of a store, in ledger order."""

    def __init__(
        self,
        root: "zarr.Group",
        ledger: Ledger,
        segments: Iterable[int],
        feature_map: FeatureMap,
        executor: Executor,
        report: Reporter,
        keeper: Keeper | None = None,
    ) -> None:
        chosen = set(segments)
        ends = np.cumsum([entry.rows for entry in ledger.entries])
        self._entries = [entry for entry in ledger.entries if entry.segment in chosen]
        self._firsts = {e.segment: int(end) - e.rows for e, end in zip(ledger.entries, ends, strict=True)}
        self._source, self._executor, self._report = RowSource(root, feature_map), executor, report
        self._keeper = keeper

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return sum(entry.rows for entry in self._entries)

    @property
    def n_features(self) -> int:
        """Features of a row."""
        return self._source.feature_map.n_features

    @property
    def n_targets(self) -> int:
        """Targets of a row."""
        return self._source.feature_map.target.n_outputs

    def numbers(self, places: Integers) -> Integers:
        """Return the numbers among all rows of the store of the rows at these places."""
        if not self._entries:
            return places
        sizes = np.array([entry.rows for entry in self._entries])
        ends = np.cumsum(sizes)
        segments = np.searchsorted(ends, places, side="right")
        firsts = np.array([self._firsts[entry.segment] for entry in self._entries])
        return np.asarray(places - (ends - sizes)[segments] + firsts[segments])

    def take(self, places: Integers) -> RowBlock:
        """Return the rows at these places; reads the chunks that hold them, one at a time.

        Raises StoreError where a chunk is missing or damaged.
        """
        ascending, where = np.unique(places, return_inverse=True)
        blocks = [block for number, inside in self._split(ascending) for block in self._read_places(number, inside)]
        features = np.concatenate([np.empty((0, self.n_features)), *(block.features for block in blocks)])
        targets = np.concatenate([np.empty((0, self.n_targets)), *(block.targets for block in blocks)])
        weights = [block.weights for block in blocks if block.weights is not None]
        return RowBlock(features[where], targets[where], np.concatenate(weights)[where] if weights else None)

    def reduce(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        argument: Argument,
        step: Step,
        parts: int | None = None,
    ) -> Summed:
        """Return function(argument, blocks) over all rows, by tasks of at most TASK_ROWS rows, or by `parts` tasks.

        Raises StoreError for rows that cannot be read, and what the executor raises.
        """
        tasks = self._tasks() if parts is None else [self._range(*run) for run in cut_evenly(self.n_rows, parts)]
        tasks = tasks or [()]
        kept = KeptPass(self._keeper, self._key(function, argument, tasks), function)
        done, summed = kept.load()
        self._report.begin(step, self.n_rows, partitions=len(self._entries))
        self._report.advance(sum(_count(task) for task in tasks[:done]))
        shared = self._executor.broadcast((self._source, function, argument)) if done < len(tasks) else None
        for part in self._executor.run(run_task, tasks[done:], shared):
            summed = part if summed is None else summed.merge(part)
            done += 1
            kept.offer(done, summed, whole=done == len(tasks))
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
        """Return the rows at the places from `start` up to `stop`, segment by segment."""
        ranges, begin = [], 0
        for entry in self._entries:
            low, high = max(start - begin, 0), min(stop - begin, entry.rows)
            if low < high:
                ranges.append(RowRange(entry.segment, low, high, begin + low, entry.name))
            begin += entry.rows
        return tuple(ranges)

    def _key(self, function: Callable[..., Any], argument: object, tasks: list[RowTask]) -> str:
        """Return what the pass is known by again; nothing where none is kept."""
        if self._keeper is None:
            return ""
        contents = [entry.content_sha256 for entry in self._entries]
        cuts = [[(rows.segment, rows.start, rows.stop, rows.first) for rows in task] for task in tasks]
        return hash_of((*name_of_pass(function), argument, self._source.feature_map, contents, cuts))

    def _split(self, ascending: Integers) -> Iterator[tuple[int, Integers]]:
        """Yield each segment's number and which of its rows, from zero, are at these places."""
        begin = 0
        for entry in self._entries:
            low, high = np.searchsorted(ascending, [begin, begin + entry.rows])
            yield entry.segment, ascending[low:high] - begin
            begin += entry.rows

    def _read_places(self, number: int, places: Integers) -> Iterator[RowBlock]:
        """Yield rows of one segment, ascending, chunk by chunk."""
        if not len(places):
            return
        segment = Segment.open(self._source.root, number)
        reader = BlockReader({number: segment}, self._source.feature_map)
        for chunk in np.split(places, np.flatnonzero(np.diff(places // segment.chunk_rows)) + 1):
            yield reader.pick(number, chunk)


def plan_tasks(entry: LedgerEntry, first: int = 0) -> list[RowTask]:
    """Return the tasks of a partition whose first row is at place `first`; none for a partition without rows."""
    starts = range(0, entry.rows, TASK_ROWS)
    ends = [min(start + TASK_ROWS, entry.rows) for start in starts]
    pairs = zip(starts, ends, strict=True)
    return [(RowRange(entry.segment, start, stop, first + start, entry.name),) for start, stop in pairs]


def _count(task: RowTask) -> int:
    return sum(rows.stop - rows.start for rows in task)


def run_task(task: RowTask, shared: tuple[RowSource, Callable[[Any, Iterable[RowBlock]], Summed], Any]) -> Summed:
    """Return what the function makes of the rows of a task."""
    source, function, argument = shared
    summed: Summed = function(argument, _read(task, source))
    return summed


def _read(task: RowTask, source: RowSource) -> Iterator[RowBlock]:
    """Yield the rows of a task, in blocks that the store and the number of features decide."""
    for rows in task:
        segment = Segment.open(source.root, rows.segment)
        reader = BlockReader({rows.segment: segment}, source.feature_map)
        whole = [(rows.segment, rows.stop - rows.start, segment.chunk_rows)]
        for where in plan_blocks(whole, BLOCK_BYTES, 8 * source.feature_map.n_features):
            block = reader.read(where.shifted(rows.start))
            yield RowBlock(block.features, block.targets, block.weights, rows.first + where.start)
