"""The block stream: standardized rows in order, decoded ahead of the learner.

Blocks are decoded by a thread of this process or by the workers of a cluster; their boundaries are the same.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.executor import Executor, InProcess, MemoryNeed
from ridgestream.pipeline.base.memory_plan import plan_block_bytes
from ridgestream.pipeline.dataset.block_plan import BlockRange, plan_blocks
from ridgestream.pipeline.dataset.task_label import TaskLabel
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.segments.segments import Segment

if TYPE_CHECKING:
    import zarr

BLOCK_BYTES = 8 * 2**20
"""Memory limit for the features of one block."""

AHEAD = 2
"""Blocks decoded ahead of the learner."""


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


@dataclass(frozen=True)
class BlockTask:
    """A block to be read by a worker."""

    block_range: BlockRange
    """The rows' range."""
    partition: str
    """The name of its partition."""

    @property
    def label(self) -> TaskLabel:
        """Description for error messages."""
        return TaskLabel(self.partition, self.block_range.start, self.block_range.stop)


class Stream:
    """The rows of several segments as a stream of blocks; their boundaries depend only on store and feature maps."""

    def __init__(
        self,
        root: "zarr.Group",
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
        segments = OpenSegments(root, tuple(numbers))
        maps_of = dict(zip(numbers, maps or [feature_map] * len(numbers), strict=True))
        self.ranges: tuple[BlockRange, ...] = tuple(
            block_range
            for number, segment in segments.items()
            for block_range in _cut(number, segment, maps_of[number])
        )
        self._reader = BlockReader(segments, feature_map, maps_of)
        self._executor, self._names = executor or InProcess(), names or {}

    def blocks(self, begin: int = 0) -> Iterator[Block]:
        """Yield the blocks in order from block number `begin` on, reading ahead.

        Memory: AHEAD + 2 blocks here, or one here and the executor's running tasks on its workers. Raises StoreError
        for a missing or damaged chunk when its block is requested, and the errors of the executor.
        """
        return self._blocks_here(begin) if isinstance(self._executor, InProcess) else self._blocks_there(begin)

    def _blocks_there(self, begin: int) -> Iterator[Block]:
        self._executor.admit([block_need()])
        tasks = (
            BlockTask(block_range, self._names.get(block_range.segment, "")) for block_range in self.ranges[begin:]
        )
        yield from self._executor.run(read_block, tasks, self._executor.broadcast(self._reader))

    def _blocks_here(self, begin: int) -> Iterator[Block]:
        with ThreadPoolExecutor(1, thread_name_prefix="decode") as pool:
            waiting: deque[Future[Block]] = deque()
            try:
                for block_range in self.ranges[begin:]:
                    waiting.append(pool.submit(self._reader.read, block_range))
                    if len(waiting) > AHEAD:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def block_need() -> MemoryNeed:
    """Return the memory that a worker needs to read a block."""
    return MemoryNeed(plan_block_bytes(BLOCK_BYTES), "a block of rows", "run the job with --cluster none")


def read_block(task: BlockTask, reader: "BlockReader") -> Block:
    """Return the block; runs on a worker."""
    return reader.read(task.block_range)


def _cut(number: int, segment: Segment, feature_map: FeatureMap) -> Iterator[BlockRange]:
    # without the first target, as when one target was the only case: existing streams keep their boundaries
    row_bytes = 8 * (feature_map.n_features + feature_map.target.n_outputs - 1)
    return plan_blocks([(number, segment.rows, segment.chunk_rows)], BLOCK_BYTES, row_bytes)


class OpenSegments(Mapping[int, Segment]):
    """Segments of a store by number, each opened on first access; pickled as their numbers only."""

    def __init__(self, root: "zarr.Group", numbers: tuple[int, ...]) -> None:
        self._root, self._numbers = root, numbers
        self._opened: dict[int, Segment] = {}

    def __reduce__(self) -> "tuple[type[OpenSegments], tuple[zarr.Group, tuple[int, ...]]]":
        return type(self), (self._root, self._numbers)

    def __getitem__(self, number: int) -> Segment:
        if number not in self._numbers:
            raise KeyError(number)
        if number not in self._opened:
            self._opened[number] = Segment.open(self._root, number)
        return self._opened[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class BlockReader:
    """Reads and standardizes blocks of several segments.

    If the feature map grows from segment to segment, `maps` holds the extended map of each.
    """

    def __init__(
        self, segments: Mapping[int, Segment], feature_map: FeatureMap, maps: Mapping[int, FeatureMap] | None = None
    ) -> None:
        self._segments = segments
        self._map_of = {number: (maps or {}).get(number, feature_map) for number in segments}
        previous = [feature_map, *self._map_of.values()]
        pairs = zip(self._map_of.items(), previous, strict=False)
        self._new = {number: before.added_features(after) for (number, after), before in pairs}
        self._code_maps: dict[int, list[npt.NDArray[np.int64]]] = {}
        self._classes: dict[int, tuple[Label, ...]] = {}

    def read(self, block_range: BlockRange) -> Block:
        """Return the block; raises StoreError for a missing or damaged chunk."""
        rows = self._standardized(
            block_range.segment, self._segments[block_range.segment].read(block_range.start, block_range.stop)
        )
        block = Block(block_range, rows.features, rows.targets, rows.weights)
        return replace(block, new_features=self._new[block_range.segment]) if block_range.start == 0 else block

    def pick(self, number: int, indices: Integers) -> RowBlock:
        """Return rows of one segment by ascending indices close to each other: reads all rows between them, too."""
        start = int(indices[0])
        rows = self._segments[number].read(start, int(indices[-1]) + 1)
        return self._standardized(number, rows.take(indices - start))

    def _standardized(self, number: int, rows: Rows) -> RowBlock:
        feature_map = self._map_of[number]
        features = feature_map.features(rows.numeric, rows.codes, self._code_maps_of(number, feature_map))
        raw = rows.targets if rows.targets is not None else np.empty((len(rows), 0))
        targets = feature_map.target.standardize(feature_map.target.encode(raw, self._classes[number]))
        if rows.weights is not None:  # zero times an infinite kernel value would be NaN
            features[rows.weights == 0], targets[rows.weights == 0] = 0.0, 0.0
        return RowBlock(features, targets, rows.weights)

    def _code_maps_of(self, number: int, feature_map: FeatureMap) -> list[npt.NDArray[np.int64]]:
        if number not in self._code_maps:
            facts = self._segments[number].facts()
            self._code_maps[number] = feature_map.code_maps(facts.categories)
            self._classes[number] = facts.classes
        return self._code_maps[number]
