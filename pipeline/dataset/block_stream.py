"""The stream: blocks of standardized rows in order, each decoded while those before it are learned.

They are decoded by a thread of this process, or by the workers of a cluster, always by the same cuts.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.executor import Executor, InProcess, Need
from ridgestream.pipeline.base.memory_plan import plan_block_bytes
from ridgestream.pipeline.dataset.block_plan import BlockRange, plan_blocks
from ridgestream.pipeline.dataset.task_label import Work
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.sums.normal_equations import RowBlock
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.segments.segments import Segment

if TYPE_CHECKING:
    import zarr

BLOCK_BYTES = 8 * 2**20
"""What the features of one block may take."""

AHEAD = 2
"""Blocks decoded ahead of the learner."""


@dataclass(frozen=True)
class Block:
    """Rows ready for a learner."""

    where: BlockRange
    """Where they come from."""
    features: Floats
    """Standardized, shape (rows, n_features)."""
    targets: Floats
    """In the learner's units, shape (rows, n_outputs)."""
    weights: Floats | None
    """Shape (rows,), None where every row counts once."""
    new_features: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Where features are new since the block before this one, as places for `numpy.insert`."""


@dataclass(frozen=True)
class BlockTask:
    """A block that a worker is to read."""

    where: BlockRange
    """Its rows."""
    partition: str
    """The name of its partition."""

    @property
    def work(self) -> Work:
        """What it is of."""
        return Work(self.partition, self.where.start, self.where.stop)


class Stream:
    """The rows of some segments, cut into blocks by the store and the feature maps alone."""

    def __init__(
        self,
        root: "zarr.Group",
        numbers: Sequence[int],
        feature_map: FeatureMap,
        maps: Sequence[FeatureMap] | None = None,
        executor: Executor | None = None,
        names: Mapping[int, str] | None = None,
    ) -> None:
        """Open the segments; raise StoreError for one that is not there whole. No row is read.

        Where the feature map grows, `maps` holds that of each segment, extended from `feature_map`. Blocks are read by
        `executor`; `names` are the partitions of the segments, for what is to be told of them.
        """
        segments = Segments(root, tuple(numbers))
        maps_of = dict(zip(numbers, maps or [feature_map] * len(numbers), strict=True))
        self.ranges: tuple[BlockRange, ...] = tuple(
            where for number, segment in segments.items() for where in _cut(number, segment, maps_of[number])
        )
        self._reader = BlockReader(segments, feature_map, maps_of)
        self._executor, self._names = executor or InProcess(), names or {}

    def blocks(self, begin: int = 0) -> Iterator[Block]:
        """Yield the blocks in their order from number `begin` on, reading ahead.

        Memory is AHEAD + 2 blocks here, or one here and what the executor has under way on its workers. Raises
        StoreError where a chunk is missing or damaged, when its block is asked for, and what the executor raises.
        """
        return self._blocks_here(begin) if isinstance(self._executor, InProcess) else self._blocks_there(begin)

    def _blocks_there(self, begin: int) -> Iterator[Block]:
        self._executor.admit([need_of_block()])
        tasks = (BlockTask(where, self._names.get(where.segment, "")) for where in self.ranges[begin:])
        yield from self._executor.run(read_block, tasks, self._executor.broadcast(self._reader))

    def _blocks_here(self, begin: int) -> Iterator[Block]:
        with ThreadPoolExecutor(1, thread_name_prefix="decode") as pool:
            waiting: deque[Future[Block]] = deque()
            try:
                for where in self.ranges[begin:]:
                    waiting.append(pool.submit(self._reader.read, where))
                    if len(waiting) > AHEAD:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def need_of_block() -> Need:
    """Return what a worker needs that reads a block."""
    return Need(plan_block_bytes(BLOCK_BYTES), "a block of rows", "run the job with --cluster none")


def read_block(task: BlockTask, reader: "BlockReader") -> Block:
    """Return the block, read by a worker."""
    return reader.read(task.where)


def _cut(number: int, segment: Segment, feature_map: FeatureMap) -> Iterator[BlockRange]:
    row_bytes = 8 * (feature_map.n_features + feature_map.target.n_outputs - 1)  # stores of one target came first
    return plan_blocks([(number, segment.rows, segment.chunk_rows)], BLOCK_BYTES, row_bytes)


class Segments(Mapping[int, Segment]):
    """Some segments of a store, each opened when it is first asked for; they travel as their numbers."""

    def __init__(self, root: "zarr.Group", numbers: tuple[int, ...]) -> None:
        self._root, self._numbers = root, numbers
        self._open: dict[int, Segment] = {}

    def __reduce__(self) -> "tuple[type[Segments], tuple[zarr.Group, tuple[int, ...]]]":
        return type(self), (self._root, self._numbers)

    def __getitem__(self, number: int) -> Segment:
        if number not in self._numbers:
            raise KeyError(number)
        if number not in self._open:
            self._open[number] = Segment.open(self._root, number)
        return self._open[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class BlockReader:
    """Reads blocks of some segments, by their numbers, and standardizes them.

    Where the feature map grows from segment to segment, `maps` holds that of each, extended from `feature_map`.
    """

    def __init__(
        self, segments: Mapping[int, Segment], feature_map: FeatureMap, maps: Mapping[int, FeatureMap] | None = None
    ) -> None:
        self._segments, self._map_of = segments, {number: (maps or {}).get(number, feature_map) for number in segments}
        befores = [feature_map, *self._map_of.values()]
        pairs = zip(self._map_of.items(), befores, strict=False)
        self._new = {number: before.added_features(now) for (number, now), before in pairs}
        self._maps: dict[int, list[npt.NDArray[np.int64]]] = {}
        self._classes: dict[int, tuple[Label, ...]] = {}

    def read(self, where: BlockRange) -> Block:
        """Return the block; raise StoreError where a chunk is missing or damaged."""
        rows = self._standardized(where.segment, self._segments[where.segment].read(where.start, where.stop))
        block = Block(where, rows.features, rows.targets, rows.weights)
        return replace(block, new_features=self._new[where.segment]) if where.start == 0 else block

    def pick(self, number: int, places: Integers) -> RowBlock:
        """Return rows of one segment, ascending and near each other: all that lie between them are read, too."""
        start = int(places[0])
        rows = self._segments[number].read(start, int(places[-1]) + 1)
        return self._standardized(number, rows.take(places - start))

    def _standardized(self, number: int, rows: Rows) -> RowBlock:
        feature_map = self._map_of[number]
        features = feature_map.features(rows.numeric, rows.codes, self._maps_of(number, feature_map))
        kept = rows.targets if rows.targets is not None else np.empty((len(rows), 0))
        targets = feature_map.target.standardize(feature_map.target.encode(kept, self._classes[number]))
        if rows.weights is not None:  # zero times what a kernel makes of an absurd value would not be zero
            features[rows.weights == 0], targets[rows.weights == 0] = 0.0, 0.0
        return RowBlock(features, targets, rows.weights)

    def _maps_of(self, number: int, feature_map: FeatureMap) -> list[npt.NDArray[np.int64]]:
        if number not in self._maps:
            facts = self._segments[number].facts()
            self._maps[number] = feature_map.code_maps(facts.categories)
            self._classes[number] = facts.classes
        return self._maps[number]
