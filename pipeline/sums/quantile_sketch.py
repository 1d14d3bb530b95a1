"""Quantile sketches: how the values of columns are distributed, in a few numbers that are kept and compared.

A sketch has, of each column, the values at which certain shares of a sample's weight are reached, and how much of it
lies below each and up to it: the two differ where many rows have the same value. Between two such values the weight is
taken to be spread evenly.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import ndtri

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.sums.moments import Moments

SAMPLE_ROWS = 4096
"""Rows of a sample at most."""

_TAIL = np.array([0.0, 0.001, 0.0025, 0.005, 0.01, 0.025])
LEVELS = np.concatenate([_TAIL, np.arange(1, 20) / 20, 1 - _TAIL[::-1]])
"""The shares of the weight at which values are kept: every twentieth, and closer where outliers are."""

_NUMBERS = 3 * len(LEVELS) + 1
"""Numbers of a sketch a column."""

_GOLDEN = (5**0.5 - 1) / 2
_TOLERANCE = 1e-12
"""How far a cumulated share may be from a level and count as reaching it."""

_IMAGINED = 400
"""Values that stand for a distribution of which only moments are known."""

_SAME = 1e-9
"""By which share rounding may move a variance."""


@dataclass(frozen=True)
class Sketch:
    """The distributions of d columns."""

    points: Floats
    """The smallest value up to which each level is reached, shape (31, d), ascending; zero where nothing counts."""
    below: Floats
    """The share of the weight below each of them, shape (31, d)."""
    upto: Floats
    """The share of the weight up to each of them, shape (31, d); one in the last row where something was counted."""
    sampled: Floats
    """How many rows of equal weight the sample is worth, (Σw)²/Σw², shape (d,)."""

    @classmethod
    def of(cls, values: Floats, weights: Floats | None = None) -> Self:
        """Return the sketch of the rows of `values` (rows, d); NaN and rows of weight zero are absent."""
        if weights is not None:
            values, weights = values[weights > 0], weights[weights > 0]
        return cls.from_array(_side_by_side([_sketch(column, weights) for column in values.T]))

    @classmethod
    def of_moments(cls, moments: Moments, rows: int) -> Self:
        """Return what these moments of so many rows would come of: a normal distribution cut off at the range.

        A column of two values is told exactly by its moments.
        """
        array = _side_by_side([_sketch(*_imagined(moments, column)) for column in range(len(moments.mean))])
        array[-1] = np.where(moments.count > 0, min(rows, SAMPLE_ROWS), 0)
        return cls.from_array(array)

    def shares_upto(self, column: int, values: Floats) -> Floats:
        """Return the share of a column's weight up to each of `values` (n,): its distribution function, shape (n,)."""
        steps = np.repeat(self.points[:, column], 2)
        heights = np.column_stack([self.below[:, column], self.upto[:, column]]).ravel()
        return np.asarray(np.interp(values, steps, heights, left=0.0))

    def as_array(self) -> Floats:
        """Return it as rows, shape (94, d)."""
        return np.vstack([self.points, self.below, self.upto, self.sampled])

    @classmethod
    def from_array(cls, array: Floats) -> Self:
        """Make the sketch from what `as_array` returned."""
        points, below, upto = np.split(array[:-1], 3)
        return cls(points, below, upto, array[-1])


class Sample:
    """Some rows of a partition, spread evenly over it, whatever the batches in which it comes; O(SAMPLE_ROWS·d)."""

    def __init__(self, n_rows: int) -> None:
        self._places, self._seen = sample_places(n_rows), 0
        self._values: list[Floats] = []
        self._weights: list[Floats] = []

    def add(self, values: Floats, weights: Floats | None) -> None:
        """Take what belongs to the sample of the next rows (rows, d)."""
        low, high = np.searchsorted(self._places, [self._seen, self._seen + len(values)])
        places = self._places[low:high] - self._seen
        self._values.append(values[places])
        self._weights.append(np.ones(len(places)) if weights is None else weights[places])
        self._seen += len(values)

    def sketch(self, n_columns: int) -> Sketch:
        """Return the sketch of the rows taken."""
        values = np.vstack([np.empty((0, n_columns)), *self._values])
        return Sketch.of(values, np.concatenate([np.empty(0), *self._weights]))


def sample_places(n_rows: int) -> Integers:
    """Return the places of at most SAMPLE_ROWS of `n_rows` rows, ascending: all, or one in each run of equal length.

    Where in its run a row is taken changes by the golden ratio, so that no period of the rows is met again and again.
    """
    if n_rows <= SAMPLE_ROWS:
        return np.arange(n_rows)
    runs = np.arange(SAMPLE_ROWS)
    return np.unique(((runs + runs * _GOLDEN % 1.0) * (n_rows / SAMPLE_ROWS)).astype(np.int64))


def _side_by_side(columns: list[Floats]) -> Floats:
    return np.column_stack(columns) if columns else np.empty((_NUMBERS, 0))


def _sketch(values: Floats, weights: Floats | None) -> Floats:
    """Return one column's points, shares below and up to them, and what its sample is worth: shape (94,)."""
    present = ~np.isnan(values)
    values, w = values[present], np.ones(present.sum()) if weights is None else weights[present]
    if not len(values):
        return np.zeros(_NUMBERS)
    order = np.argsort(values, kind="stable")
    ascending, cumulated = values[order], np.cumsum(w[order])
    cumulated = np.concatenate([[0.0], cumulated / cumulated[-1]])
    points = ascending[np.searchsorted(cumulated[1:], LEVELS - _TOLERANCE)]
    below = cumulated[np.searchsorted(ascending, points, side="left")]
    upto = cumulated[np.searchsorted(ascending, points, side="right")]
    share = w / w.max()
    return np.concatenate([points, below, upto, [share.sum() ** 2 / (share**2).sum()]])


def _imagined(moments: Moments, column: int) -> tuple[Floats, Floats]:
    """Return values (n,) and weights (n,) with about these moments of a column; none where nothing was counted.

    Two values have the largest variance that their mean and range allow, (max − mean)(mean − min); no others have.
    """
    if not moments.count[column] > 0:
        return np.empty(0), np.empty(0)
    low, high, mean = moments.minimum[column], moments.maximum[column], moments.mean[column]
    variance, largest = moments.squares[column] / moments.count[column], (high - mean) * (mean - low)
    if variance >= (1 - _SAME) * largest:
        values = np.array([low, high])
        share = (mean - low) / (high - low) if high > low else 1.0
        weights = np.array([1 - share, share])
    else:
        values = np.clip(mean + np.sqrt(variance) * ndtri((np.arange(_IMAGINED) + 0.5) / _IMAGINED), low, high)
        weights = np.ones(_IMAGINED)
    return values[weights > 0], weights[weights > 0]
