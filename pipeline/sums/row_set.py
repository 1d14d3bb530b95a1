"""Row sets: rows that can be read again and again, which is all that a batch method knows of its data.

A method asks for sums over all rows, by a function of blocks and an argument that say what is summed, and for single
rows by their places. Rows in memory are one row set; the rows of a store, read by workers, are another, with the same
answers but for rounding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Protocol, Self, TypeVar

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.sums.normal_equations import RowBlock, SeveralStatistics, Summing, sum_together

BLOCK_ROWS = 8192
"""Rows of a block of rows in memory."""


class Sums(Protocol):
    """What a pass makes of rows; a monoid under `merge`."""

    def merge(self, other: Self) -> Self:
        """Return what comes of both sets of rows, those of `other` later."""


Argument = TypeVar("Argument")
Summed = TypeVar("Summed", bound=Sums)


class RowSet(Protocol):
    """Rows in a fixed order, standardized."""

    @property
    def n_rows(self) -> int:
        """How many there are, those of weight zero included."""

    @property
    def n_features(self) -> int:
        """Features of a row."""

    @property
    def n_targets(self) -> int:
        """Targets of a row."""

    def take(self, places: Integers) -> RowBlock:
        """Return the rows at these places, 0 to n_rows − 1, in the order given; a place may come twice."""

    def reduce(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        argument: Argument,
        step: Step,
        parts: int | None = None,
    ) -> Summed:
        """Return function(argument, blocks) over all rows, in one pass.

        The rows are cut into parts, each part is given to the function block by block, and what comes back is merged in
        the order of the rows; how they are cut depends on the rows alone, or is into `parts` equal runs of rows, as far
        as there are so many rows. Functions and arguments travel to other processes, so a function is one of a
        module's, and pure. `step` is what the pass is reported as. Without any row, the function is called once,
        without blocks.
        """

    def statistics(self, summings: Sequence[Summing], step: Step) -> SeveralStatistics:
        """Return the sums of each basis over all rows, in one pass; a row set may keep them for the next to ask."""


@dataclass(frozen=True)
class ArrayRows:
    """Rows in memory."""

    features: Floats
    """Standardized, shape (n_rows, n_features)."""
    targets: Floats
    """Shape (n_rows, n_targets)."""
    weights: Floats | None = None
    """Shape (n_rows,), None where every row counts once."""

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return len(self.features)

    @property
    def n_features(self) -> int:
        """Features of a row."""
        return int(self.features.shape[1])

    @property
    def n_targets(self) -> int:
        """Targets of a row."""
        return int(self.targets.shape[1])

    def take(self, places: Integers) -> RowBlock:
        """Return the rows at these places."""
        weights = None if self.weights is None else self.weights[places]
        return RowBlock(self.features[places], self.targets[places], weights)

    def reduce(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        argument: Argument,
        step: Step,  # noqa: ARG002
        parts: int | None = None,
    ) -> Summed:
        """Return function(argument, blocks) over all rows, in the calling process."""
        ranges = cut_evenly(self.n_rows, parts or 1)
        return merge_all(function(argument, self._blocks(start, stop)) for start, stop in ranges)

    def statistics(self, summings: Sequence[Summing], step: Step) -> SeveralStatistics:
        """Return the sums of each basis over all rows."""
        return self.reduce(sum_together, summings, step)

    def _blocks(self, start: int, stop: int) -> Iterator[RowBlock]:
        for first in range(start, stop, BLOCK_ROWS):
            part = slice(first, min(first + BLOCK_ROWS, stop))
            weights = None if self.weights is None else self.weights[part]
            yield RowBlock(np.asarray(self.features[part]), np.asarray(self.targets[part]), weights, first)


def cut_evenly(n_rows: int, parts: int) -> list[tuple[int, int]]:
    """Return the ranges of at most `parts` runs of rows, as equal as can be; none is empty but that of no rows."""
    bounds = [n_rows * part // min(parts, max(n_rows, 1)) for part in range(min(parts, max(n_rows, 1)) + 1)]
    return list(pairwise(bounds))


def merge_all(parts: Iterable[Summed]) -> Summed:
    """Return what comes of all parts, at least one, merged one by one in their order."""
    return reduce(lambda before, after: before.merge(after), parts)
