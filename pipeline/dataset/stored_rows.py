"""Rows of a store as a row set: tasks read their own rows, on any executor, and return sums.

Rows are summed in parts: runs of rows, of one segment unless the caller gives the number of parts. The sums of parts
are added one by one in the order of the rows, so they have the same bits on any number of workers, and for any division
of partitions into nights. A task sums a large part, or several small ones, of which it returns the sums of each.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Integers
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.executor import Executor, InProcess, InThreads
from ridgestream.pipeline.base.pass_checkpoint import CheckpointStore, ResumablePass, name_of_pass
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.serialization import hash_of
from ridgestream.pipeline.dataset.block_plan import plan_blocks
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES, BlockReader
from ridgestream.pipeline.dataset.task_label import TaskLabel, label_of
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.sums.normal_equations import SeveralStatistics, Summing, sum_together
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import Sums, cut_evenly, divide, merge_all
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.segments.segments import SegmentSource

TASK_ROWS = 65_536
"""Rows per part, a multiple of every segment's chunk; large enough that returning the sums costs little."""

TASK_PARTS = 16
"""Largest number of parts of one task: so many sums are in memory at a time."""

_SMALL_ROWS = 256
"""Parts with so many rows on average, or less, share a task."""

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


RowPart = tuple[RowRange, ...]
"""Ranges of rows to be summed, in order."""


@dataclass(frozen=True)
class RowTask:
    """Parts of the rows that are summed by one task, each on its own."""

    parts: tuple[RowPart, ...]
    """The parts, in order."""
    share: int = 0
    """Which share of the argument is applied to them."""

    @property
    def label(self) -> TaskLabel | None:
        """Description for error messages."""
        return label_of(tuple(rows for part in self.parts for rows in part))


@dataclass(frozen=True)
class RowSource:
    """What tasks need to read their rows; sent once to all workers."""

    reader: BlockReader
    """Reads and standardizes blocks."""
    feature_map: FeatureMap
    """Maps raw columns to standardized features."""


@dataclass(frozen=True)
class _Pass(Generic[Summed]):
    """A pass that is about to begin, or to be resumed."""

    runs: list[RowPart]
    """Its parts."""
    argument: Any
    """The argument of its function."""
    checkpoint: ResumablePass
    """Its checkpoint."""
    done: int
    """The number of parts that are summed."""
    summed: Summed | None
    """Their sums."""


class StoredRows:
    """The rows of several segments of a store in ledger order, or the first `limit` of them."""

    def __init__(
        self,
        segments: SegmentSource,
        ledger: Ledger,
        numbers: Iterable[int],
        feature_map: FeatureMap,
        executor: Executor,
        report: Reporter,
        *,
        checkpoints: CheckpointStore | None = None,
        limit: int | None = None,
    ) -> None:
        wanted = set(numbers)
        ends = np.cumsum([entry.rows for entry in ledger.entries])
        chosen = (entry for entry in ledger.entries if entry.segment in wanted)
        self._entries = list(chosen if limit is None else _first_rows(chosen, limit))
        self._firsts = {e.segment: int(end) - e.rows for e, end in zip(ledger.entries, ends, strict=True)}
        self._ends = np.cumsum([entry.rows for entry in self._entries], dtype=np.int64)
        self._source = RowSource(BlockReader(segments, feature_map), feature_map)
        self._executor, self._report, self._checkpoints = executor, report, checkpoints

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self._ends[-1]) if self._entries else 0

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
        positions = np.searchsorted(self._ends, indices, side="right")
        firsts = [self._firsts[entry.segment] for entry in self._entries]
        return np.asarray(indices - self._starts[positions] + np.array(firsts)[positions])

    @property
    def _starts(self) -> npt.NDArray[np.int64]:
        """The index of the first row of each partition."""
        return np.concatenate([np.zeros(1, np.int64), self._ends])[:-1]

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
        """Return function(argument, blocks) over all rows, in parts of at most TASK_ROWS rows, or in `parts` parts.

        Raises StoreError for unreadable rows, and the errors of the executor.
        """
        [summed] = self.reduce_each(function, (argument,), step, parts)
        return summed

    def reduce_each(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        arguments: Sequence[Argument],
        step: Step,
        parts: int | None = None,
    ) -> Iterator[Summed]:
        """Yield what `reduce` returns for each argument, in order; workers continue while the caller considers one.

        The threads of this process do not: they are the caller's then.
        """
        runs = self._parts() if parts is None else [self._range(*run) for run in cut_evenly(self.n_rows, parts)]
        runs = runs or [()]
        passes = [_Pass(runs, argument, *self._resumed(function, argument, runs)) for argument in arguments]
        together = [[each] for each in passes] if isinstance(self._executor, InThreads) else [passes]
        for some in together:
            summed = self._summed_parts(function, some)
            yield from (self._finish(begun, summed, step) for begun in some)

    def _resumed(
        self, function: Callable[..., Summed], argument: object, runs: list[RowPart]
    ) -> tuple[ResumablePass, int, Summed | None]:
        """Return the checkpoint of a pass, and what it holds: the number of parts summed, and their sums."""
        checkpoint = ResumablePass(self._checkpoints, self._key(function, argument, runs), function)
        return checkpoint, *checkpoint.load()

    def _finish(self, begun: "_Pass[Summed]", parts: Iterator[Summed], step: Step) -> Summed:
        """Return the sums of a pass, to which the next of these parts belong."""
        runs, done, summed = begun.runs, begun.done, begun.summed
        begun.checkpoint.start_clock()
        self._report.begin(step, self.n_rows, partitions=len(self._entries))
        self._report.advance(sum(_count(run) for run in runs[:done]))
        for part in islice(parts, len(runs) - done):
            summed = part if summed is None else summed.merge(part)
            done += 1
            del part  # the next one is summed without it in memory
            begun.checkpoint.update(done, summed, complete=done == len(runs))
            self._report.advance(_count(runs[done - 1]))
        self._report.end(rows=self.n_rows)
        return cast("Summed", summed)

    def _summed_parts(
        self, function: Callable[[Any, Iterable[RowBlock]], Summed], passes: Sequence["_Pass[Summed]"]
    ) -> Iterator[Summed]:
        """Yield the sums of each part that a pass lacks, pass by pass, merged from those of all shares."""
        most = 1 if isinstance(self._executor, InProcess) else TASK_PARTS  # there, a run is stopped after each part
        tasks = [list(group_parts(each.runs[each.done :], most)) for each in passes]
        if not any(tasks):
            return
        workers = self._executor.count_workers()
        shares = [divide(each.argument, workers) for each in passes]
        first = accumulate(map(len, shares), initial=0)
        shared = self._executor.broadcast((self._source, function, [*chain.from_iterable(shares)]))
        shared_out = (
            replace(task, share=start + share)
            for some, own, start in zip(tasks, shares, first, strict=False)
            for task in some
            for share in range(len(own))
        )
        results = self._executor.run(run_task, shared_out, shared)
        for of_shares in (islice(results, len(own)) for some, own in zip(tasks, shares, strict=True) for _ in some):
            yield from _merged(list(of_shares))

    def statistics(self, summings: Sequence[Summing], step: Step) -> SeveralStatistics:
        """Return the sums of each basis over all rows."""
        return self.reduce(sum_together, summings, step)

    def _parts(self) -> list[RowPart]:
        starts = accumulate((entry.rows for entry in self._entries), initial=0)
        return [part for entry, start in zip(self._entries, starts, strict=False) for part in plan_parts(entry, start)]

    def _range(self, start: int, stop: int) -> RowPart:
        """Return the rows with indices from `start` up to `stop`, segment by segment."""
        ranges = []
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right")
        for entry, begin in zip(self._entries[first : last + 1], self._starts[first : last + 1].tolist(), strict=True):
            low, high = max(start - begin, 0), min(stop - begin, entry.rows)
            if low < high:
                ranges.append(RowRange(entry.segment, low, high, begin + low, entry.name))
        return tuple(ranges)

    def _key(self, function: Callable[..., Any], argument: object, runs: list[RowPart]) -> str:
        """Return the key of the pass's checkpoint; empty without a checkpoint store."""
        if self._checkpoints is None:
            return ""
        contents = [entry.content_sha256 for entry in self._entries]
        cuts = [[(rows.segment, rows.start, rows.stop, rows.first) for rows in run] for run in runs]
        return hash_of((*name_of_pass(function), argument, self._source.feature_map, contents, cuts))

    def _split(self, ascending: Integers) -> Iterator[tuple[int, Integers]]:
        """Yield the number of each segment with requested rows, and their indices within the segment."""
        positions = np.searchsorted(self._ends, ascending, side="right")
        for inside in np.split(np.arange(len(ascending)), np.flatnonzero(np.diff(positions)) + 1):
            if len(inside):
                position = int(positions[inside[0]])
                yield self._entries[position].segment, ascending[inside] - self._starts[position]

    def _read_rows(self, number: int, indices: Integers) -> Iterator[RowBlock]:
        """Yield rows of one segment by ascending indices, chunk by chunk."""
        reader = self._source.reader
        for chunk in np.split(indices, np.flatnonzero(np.diff(indices // reader.rows_of_chunk(number))) + 1):
            yield reader.pick(number, chunk)


def _first_rows(entries: Iterable[LedgerEntry], limit: int) -> Iterator[LedgerEntry]:
    """Yield the entries of the first `limit` rows, the last one cut."""
    for entry in entries:
        if limit > 0:
            yield replace(entry, rows=min(entry.rows, limit))
        limit -= entry.rows


def plan_parts(entry: LedgerEntry, first: int = 0) -> list[RowPart]:
    """Return the parts of a partition whose first row has index `first`; none for a partition without rows."""
    starts = range(0, entry.rows, TASK_ROWS)
    ends = [min(start + TASK_ROWS, entry.rows) for start in starts]
    pairs = zip(starts, ends, strict=True)
    return [(RowRange(entry.segment, start, stop, first + start, entry.name),) for start, stop in pairs]


def group_parts(parts: Sequence[RowPart], most: int = TASK_PARTS) -> Iterator[RowTask]:
    """Yield tasks of one part, or of at most `most` that have few rows: no result depends on the grouping."""
    together: list[RowPart] = []
    rows = 0
    for part in parts:
        rows += _count(part)
        if together and (len(together) == most or rows > TASK_PARTS * _SMALL_ROWS):
            yield RowTask(tuple(together))
            together, rows = [], _count(part)
        together.append(part)
    if together:
        yield RowTask(tuple(together))


def _merged(of_shares: list[list[Summed]]) -> Iterator[Summed]:
    """Yield the sums of each part of a task, from those of all shares, which are let go."""
    while of_shares[0]:
        yield merge_all(parts.pop(0) for parts in of_shares)


def _count(part: RowPart) -> int:
    return sum(rows.stop - rows.start for rows in part)


def run_task(
    task: RowTask, shared: tuple[RowSource, Callable[[Any, Iterable[RowBlock]], Summed], Sequence[Any]]
) -> list[Summed]:
    """Return the function's sums over the rows of each part of a task."""
    source, function, shares = shared
    return [function(shares[task.share], _read(part, source)) for part in task.parts]


def _read(part: RowPart, source: RowSource) -> Iterator[RowBlock]:
    """Yield the rows of a part, in blocks that depend only on the store and the number of features."""
    reader = source.reader
    for rows in part:
        whole = [(rows.segment, rows.stop - rows.start, reader.rows_of_chunk(rows.segment))]
        for block_range in plan_blocks(whole, BLOCK_BYTES, 8 * source.feature_map.n_features):
            block = reader.read(block_range.shifted(rows.start))
            yield RowBlock(block.features, block.targets, block.weights, rows.first + block_range.start)
