"""Who judges a metric: rows left out at random, and the last rows in their order.

Neighbours in a feed resemble each other, so rows left out at random may flatter a model of data that change with time;
the last rows stand for those of tomorrow. The metric is learned from the other rows alone, or it would be judged by
what it has seen. Rows that are sorted by target have no last ones that stand for tomorrow: other random ones do then.
A row's group depends on its index, and on that order, alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Integers
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.row_block import RowBlock, choose_rows, drop_absent

LATER = 0
"""The group of the last rows."""

LEARNED = 1
"""The group of the rows that metrics are learned from, and every model is fitted to."""

LEFT_OUT = 2
"""The group of rows left out at random."""

GROUPS = 3
"""The number of groups."""

JUDGES = (LATER, LEFT_OUT)
"""The groups by which models are judged, the last rows first; each judges a model that was fitted without it."""

LATER_SHARE = 0.2
"""The share of the rows that are the last ones."""

FOLDS = 5
"""One in so many of the other rows is left out at random."""


@dataclass(frozen=True)
class Split:
    """Which rows of a pilot are used, and by which of them a model is judged."""

    n_rows: int
    """The number of rows of the pilot."""
    stride: int = 1
    """One row of so many is used."""
    seed: int = 0
    """The seed of the draw."""
    is_sorted: bool = False
    """Whether the rows are sorted by target: random rows stand for the last ones then, which are unlike any others."""

    def groups(self, first: int, count: int) -> Integers:
        """Return the group of each of `count` rows from index `first` on, −1 for a row that is not used."""
        if self.is_sorted:
            are_later = self._draw(first, count, round(1 / LATER_SHARE), self.seed + 2)
        else:
            are_later = np.arange(first, first + count) >= round((1 - LATER_SHARE) * self.n_rows)
        groups = np.where(self._draw(first, count, FOLDS, self.seed), LEFT_OUT, LEARNED)
        groups[are_later] = LATER
        return np.where(deal_folds(first, count, self.stride, self.seed + 1) == 0, groups, -1)

    def parts(self, block: RowBlock) -> Iterator[tuple[int, RowBlock]]:
        """Yield each group that has rows in a block, ascending, with these rows, those of weight zero left out."""
        groups = self.groups(block.first, len(block.features))
        for group in np.unique(groups[groups >= 0]).tolist():
            yield group, drop_absent(choose_rows(block, np.flatnonzero(groups == group)))

    def _draw(self, first: int, count: int, n_folds: int, seed: int) -> npt.NDArray[np.bool_]:
        """Return which rows from index `first` on are in one of so many folds, alike for those of a stride."""
        folds = deal_folds(first // self.stride, count // self.stride + 2, n_folds, seed)
        rows = np.arange(first, first + count)
        return np.asarray(folds[rows // self.stride - first // self.stride] == 0)
