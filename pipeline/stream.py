"""The stream: blocks of standardized rows in order, each decoded while the one before it is learned."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.arrays import Floats, Integers
from ridgestream.pipeline.block_statistics import RowBlock
from ridgestream.pipeline.blocks import BlockRange, plan_blocks
from ridgestream.pipeline.features import FeatureMap
from ridgestream.stores.classes import Label
from ridgestream.stores.rows import Rows
from ridgestream.stores.segments import Segment

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


class Stream:
    """The rows of some segments, cut into blocks by the store alone."""

    def __init__(self, root: "zarr.Group", numbers: Sequence[int], feature_map: FeatureMap) -> None:
        """Open the segments; raise StoreError for one that is not there whole. No row is read."""
        segments = {number: Segment.open(root, number) for number in numbers}
        self.ranges: tuple[BlockRange, ...] = tuple(
            plan_blocks(
                [(number, segment.rows, segment.chunk_rows) for number, segment in segments.items()],
                BLOCK_BYTES,
                8 * (feature_map.n_features + feature_map.n_outputs - 1),  # stores of one target came first
            )
        )
        self._reader = BlockReader(segments, feature_map)

    def blocks(self, begin: int = 0) -> Iterator[Block]:
        """Yield the blocks in their order from number `begin` on, reading ahead; memory is AHEAD + 2 blocks.

        Raises StoreError where a chunk is missing or damaged, when its block is asked for.
        """
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


class BlockReader:
    """Reads blocks of some segments, by their numbers, and standardizes them."""

    def __init__(self, segments: dict[int, Segment], feature_map: FeatureMap) -> None:
        self._segments, self._feature_map = segments, feature_map
        self._maps: dict[int, list[npt.NDArray[np.int64]]] = {}
        self._classes: dict[int, tuple[Label, ...]] = {}

    def read(self, where: BlockRange) -> Block:
        """Return the block; raise StoreError where a chunk is missing or damaged."""
        rows = self._standardized(where.segment, self._segments[where.segment].read(where.start, where.stop))
        return Block(where, rows.features, rows.targets, rows.weights)

    def pick(self, number: int, places: Integers) -> RowBlock:
        """Return rows of one segment, ascending and near each other: all that lie between them are read, too."""
        start = int(places[0])
        rows = self._segments[number].read(start, int(places[-1]) + 1)
        return self._standardized(number, rows.at(places - start))

    def _standardized(self, number: int, rows: Rows) -> RowBlock:
        features = self._feature_map.features(rows.numeric, rows.codes, self._maps_of(number))
        kept = rows.targets if rows.targets is not None else np.empty((len(rows), 0))
        targets = self._feature_map.targets(kept, self._classes[number])
        return RowBlock(features, self._feature_map.scaled_targets(targets), rows.weights)

    def _maps_of(self, number: int) -> list[npt.NDArray[np.int64]]:
        if number not in self._maps:
            facts = self._segments[number].facts()
            self._maps[number] = self._feature_map.code_maps(facts.categories)
            self._classes[number] = facts.classes
        return self._maps[number]
