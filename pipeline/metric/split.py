"""Who judges a metric: rows left out at random, and the last rows in their order.

Neighbours in a feed resemble each other, so rows left out at random may flatter a model of data that change with time;
the last rows stand for those of tomorrow. A row's group depends on its index alone.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Integers
from ridgestream.pipeline.sums.folds import deal_folds

LATER = 0
"""The group of the last rows."""

UNJUDGED = 1
"""The group of the rows that every model is fitted to."""

LATER_SHARE = 0.2
"""The share of the rows that are the last ones."""

FOLDS = 5
"""The folds to which the other rows are dealt."""

FEW_ROWS = 5_000
"""With fewer rows every fold is judged, by a model fitted without it; with more, one fold is enough."""


@dataclass(frozen=True)
class Split:
    """Which rows of a pilot are used, and by which of them a model is judged."""

    n_rows: int
    """The number of rows of the pilot."""
    stride: int = 1
    """One row of so many is used."""
    seed: int = 0
    """The seed of the draw."""

    @property
    def judged(self) -> tuple[int, ...]:
        """The groups by which models are judged; each is judged by a model that was fitted without it."""
        folds = FOLDS if self.n_rows // self.stride < FEW_ROWS else 1
        return (LATER, *range(UNJUDGED + 1, UNJUDGED + 1 + folds))

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        return self.judged[-1] + 1

    def groups(self, first: int, count: int) -> Integers:
        """Return the group of each of `count` rows from index `first` on, −1 for a row that is not used."""
        rows = np.arange(first, first + count)
        folds = deal_folds(first // self.stride, count // self.stride + 2, FOLDS, self.seed)
        folds = folds[rows // self.stride - first // self.stride] + UNJUDGED + 1
        groups = np.where(folds < self.n_groups, folds, UNJUDGED)
        groups[rows >= round((1 - LATER_SHARE) * self.n_rows)] = LATER
        return np.where(self._is_used(first, count), groups, -1)

    def _is_used(self, first: int, count: int) -> npt.NDArray[np.bool_]:
        return np.asarray(deal_folds(first, count, self.stride, self.seed + 1) == 0)
