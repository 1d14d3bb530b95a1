"""The block stream: standardized rows in order, decoded ahead of the learner.

Blocks are decoded by a thread of this process or by the workers of a cluster; their boundaries are the same.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Self, cast

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.executor import Executor, InProcess, MemoryNeed
from ridgestream.pipeline.base.memory_plan import plan_block_bytes
from ridgestream.pipeline.dataset.block_plan import BlockRange, Part, plan_blocks
from ridgestream.pipeline.dataset.task_label import TaskLabel
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.stores.requests.activity import ACTIVITY
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.segments.segments import SegmentRows, SegmentSource

BLOCK_BYTES = 8 * 2**20
"""Memory limit for the features of one block."""

AHEAD = 2
"""Tasks of blocks decoded ahead of the learner."""

TASK_BLOCKS = 64
"""Largest number of blocks that are read together."""


@dataclass(frozen=True)
class Block:
    """Rows prepared for a learner."""

    block_range: BlockRange
    """The rows' range."""
    features: Floats
    """Standardized, shape (rows, n_features)."""
    targets: Floats
    """In the learner's units, shape (rows, n_outputs)."""
    weights: Floats | None
    """Shape (rows,); None if all weights are 1."""
    new_features: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Positions at which features were inserted since the previous block, as used by `numpy.insert`."""

    @classmethod
    def joined(cls, blocks: Sequence[Self]) -> Self:
        """Return consecutive blocks of one segment as one."""
        first, last = blocks[0], blocks[-1]
        if first is last:
            return first
        return cls(
            replace(last.block_range, start=first.block_range.start),
            np.concatenate([block.features for block in blocks]),
            np.concatenate([block.targets for block in blocks]),
            None if first.weights is None else np.concatenate([cast("Floats", block.weights) for block in blocks]),
            first.new_features,
        )


@dataclass(frozen=True)
class BlockTask:
    """Blocks to be read together: one large one, or several small ones, in order."""

    ranges: tuple[BlockRange, ...]
    """The rows' ranges."""
    partitions: tuple[str, str]
    """The names of the first and the last partition."""

    @property
    def label(self) -> TaskLabel:
        """Description for error messages."""
        first, last = self.ranges[0], self.ranges[-1]
        label = TaskLabel(self.partitions[0], first.start, first.stop)
        return label.through(TaskLabel(self.partitions[1], last.start, last.stop))


class Stream:
    """The rows of several segments as a stream of blocks; their boundaries depend only on store and feature maps."""

    def __init__(
        self,
        segments: SegmentSource,
        numbers: Sequence[int],
        feature_map: FeatureMap,
        maps: Sequence[FeatureMap] | None = None,
        executor: Executor | None = None,
        names: Mapping[int, str] | None = None,
    ) -> None:
        """Open the segments without reading rows; raises StoreError for a missing or incomplete one.

        If the feature map grows, `maps` holds the extended map of each segment. Blocks are read by `executor`; `names`
        are the partitions of the segments, for messages.
        """
        maps_of = dict(zip(numbers, maps or [feature_map] * len(numbers), strict=True))
        self.ranges: tuple[BlockRange, ...] = tuple(
            block_range
            for number in ACTIVITY.counted(numbers, "the blocks of partitions")
            for block_range in _cut(number, segments[number], maps_of[number])
        )
        self.reader = BlockReader(segments, feature_map, maps_of)
        self.executor, self._names = executor or InProcess(), names or {}
        self._most_rows = BLOCK_BYTES // (8 * max(1, (maps or [feature_map])[-1].n_features))

    def blocks(self, begin: int = 0) -> Iterator[Block]:
        """Yield the blocks in order from block number `begin` on, reading ahead.

        Memory: AHEAD + 2 blocks here, or one here and the executor's running tasks on its workers. Raises StoreError
        for a missing or damaged chunk when its block is requested, and the errors of the executor.
        """
        read_ahead = self._blocks_here if isinstance(self.executor, InProcess) else self._blocks_there
        for blocks in read_ahead(list(self._tasks(begin))):
            yield from blocks

    def parts(self, begin: int, most_rows: Callable[[int], int]) -> Iterator[Part]:
        """Yield consecutive ranges of a segment together, of at most `most_rows` for its features if they are several.

        They begin with range number `begin`; where they are cut depends on the store alone.
        """
        together: list[BlockRange] = []
        for block_range in self.ranges[begin:]:
            together.append(block_range)
            rows, n_features = together[0].rows, self.reader.map_of(block_range.segment).n_features
            if block_range.ends_segment or (len(together) + 1) * rows > most_rows(n_features):
                yield tuple(together)
                together = []

    def joined(self, parts: Iterable[Part], begin: int) -> Iterator[Block]:
        """Yield the blocks of each of these parts of the stream, which begin with range number `begin`, as one."""
        blocks = self.blocks(begin)
        return (Block.joined(list(islice(blocks, len(ranges)))) for ranges in parts)

    def label(self, ranges: Sequence[BlockRange]) -> TaskLabel:
        """Return the description of consecutive ranges, for messages."""
        return self._task(ranges).label

    def _tasks(self, begin: int) -> Iterator[BlockTask]:
        """Yield tasks of one block, or of at most TASK_BLOCKS that take no more than BLOCK_BYTES together."""
        together: list[BlockRange] = []
        rows = 0
        for block_range in self.ranges[begin:]:
            rows += block_range.rows
            if together and (rows > self._most_rows or len(together) == TASK_BLOCKS):
                yield self._task(together)
                together, rows = [], block_range.rows
            together.append(block_range)
        if together:
            yield self._task(together)

    def _task(self, ranges: Sequence[BlockRange]) -> BlockTask:
        first, last = (self._names.get(each.segment, "") for each in (ranges[0], ranges[-1]))
        return BlockTask(tuple(ranges), (first, last))

    def _blocks_there(self, tasks: Sequence[BlockTask]) -> Iterator[list[Block]]:
        self.executor.admit([block_need()])
        yield from self.executor.run(read_blocks, tasks, self.executor.broadcast(self.reader))

    def _blocks_here(self, tasks: Sequence[BlockTask]) -> Iterator[list[Block]]:
        with ThreadPoolExecutor(1, thread_name_prefix="decode") as pool:
            waiting: deque[Future[list[Block]]] = deque()
            try:
                for task in tasks:
                    waiting.append(pool.submit(read_blocks, task, self.reader))
                    if len(waiting) > AHEAD:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def block_need() -> MemoryNeed:
    """Return the memory that a worker needs to read a block."""
    return MemoryNeed(plan_block_bytes(BLOCK_BYTES), "a block of rows", "run the job with --cluster none")


def read_blocks(task: BlockTask, reader: "BlockReader") -> list[Block]:
    """Return the blocks; runs on a worker, or in a thread of this process."""
    return [reader.read(block_range) for block_range in task.ranges]


def _cut(number: int, segment: SegmentRows, feature_map: FeatureMap) -> Iterator[BlockRange]:
    # without the first target, as when one target was the only case: existing streams keep their boundaries
    row_bytes = 8 * (feature_map.n_features + feature_map.target.n_outputs - 1)
    return plan_blocks([(number, segment.rows, segment.chunk_rows)], BLOCK_BYTES, row_bytes)


class BlockReader:
    """Reads and standardizes blocks of several segments.

    If the feature map grows from segment to segment, `maps` holds the extended map of each.
    """

    def __init__(
        self, segments: SegmentSource, feature_map: FeatureMap, maps: Mapping[int, FeatureMap] | None = None
    ) -> None:
        self._segments, self._feature_map = segments, feature_map
        self._map_of = {number: each for number, each in (maps or {}).items() if each is not feature_map}
        previous = [feature_map, *(maps or {}).values()]
        self._new = {
            number: before.added_features(after)
            for (number, after), before in zip((maps or {}).items(), previous, strict=False)
            if before is not after
        }
        self._opened: _OpenSegment | None = None

    def read(self, block_range: BlockRange) -> Block:
        """Return the block; raises StoreError for a missing or damaged chunk."""
        segment = self._open(block_range.segment)
        rows = segment.standardized(segment.segment.read(block_range.start, block_range.stop))
        block = Block(block_range, rows.features, rows.targets, rows.weights)
        new = self._new.get(block_range.segment) if block_range.start == 0 else None
        return block if new is None else replace(block, new_features=new)

    def read_joined(self, ranges: Part) -> Block:
        """Return consecutive ranges of a segment as one block."""
        return Block.joined([self.read(block_range) for block_range in ranges])

    def map_of(self, number: int) -> FeatureMap:
        """Return the feature map of a segment's rows."""
        return self._map_of.get(number, self._feature_map)

    def pick(self, number: int, indices: Integers) -> RowBlock:
        """Return rows of one segment by ascending indices close to each other: reads all rows between them, too."""
        segment, start = self._open(number), int(indices[0])
        rows = segment.segment.read(start, int(indices[-1]) + 1)
        return segment.standardized(rows.take(indices - start))

    def rows_of_chunk(self, number: int) -> int:
        """Return the rows per chunk of a segment."""
        return self._open(number).segment.chunk_rows

    def _open(self, number: int) -> "_OpenSegment":
        """Return a segment, the last one without opening it again."""
        opened = self._opened
        if opened is None or opened.number != number:
            opened = _OpenSegment(number, self._segments[number], self.map_of(number))
            self._opened = opened
        return opened

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_opened": None}


@dataclass(frozen=True)
class _OpenSegment:
    """A segment with the maps of its codes."""

    number: int
    segment: SegmentRows
    feature_map: FeatureMap

    @cached_property
    def _facts(self) -> tuple[list[npt.NDArray[np.int64]], tuple[Label, ...]]:
        """The maps of the segment's codes, and its classes."""
        facts = self.segment.facts()
        return self.feature_map.code_maps(facts.categories), facts.classes

    def standardized(self, rows: Rows) -> RowBlock:
        """Return rows of the segment as features and targets in the learner's units."""
        feature_map, (code_maps, classes) = self.feature_map, self._facts
        features = feature_map.features(rows.numeric, rows.codes, code_maps)
        raw = rows.targets if rows.targets is not None else np.empty((len(rows), 0))
        targets = feature_map.target.standardize(feature_map.target.encode(raw, classes))
        weights = feature_map.target.weigh(targets, rows.weights)
        if rows.weights is not None:  # zero times an infinite kernel value would be NaN
            features[rows.weights == 0], targets[rows.weights == 0] = 0.0, 0.0
        return RowBlock(features, targets, weights)
