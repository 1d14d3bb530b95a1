"""Quantile sketches: compact summaries of column distributions that can be stored and compared.

For each column, a sketch stores the values at which fixed shares of a sample's weight are reached, with the exact share
of the weight below each value and up to it; the two differ if many rows have the same value. Between two such values
the weight is interpolated linearly.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import ndtri

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.sums.moments import Moments

SAMPLE_ROWS = 4096
"""Largest number of rows of a sample."""

_TAIL = np.array([0.0, 0.001, 0.0025, 0.005, 0.01, 0.025])
LEVELS = np.concatenate([_TAIL, np.arange(1, 20) / 20, 1 - _TAIL[::-1]])
"""The shares of the weight whose quantiles are stored: every twentieth, denser in the tails."""

_NUMBERS = 3 * len(LEVELS) + 1
"""Numbers stored per column."""

_GOLDEN = (5**0.5 - 1) / 2
_TOLERANCE = 1e-12
"""Tolerance when comparing a cumulated share with a level."""

_SYNTHETIC_ROWS = 400
"""Size of a synthetic sample generated from moments."""

_SAME = 1e-9
"""Relative rounding error allowed in a variance."""


@dataclass(frozen=True)
class Sketch:
    """The distributions of d columns."""

    points: Floats
    """The smallest value at which each level is reached, shape (31, d), ascending; zero for columns without values."""
    below: Floats
    """The share of the weight below each point, shape (31, d)."""
    upto: Floats
    """The share of the weight up to each point, shape (31, d); 1 in the last row of columns with values."""
    sampled: Floats
    """Effective sample size, (Σw)²/Σw², shape (d,)."""

    @classmethod
    def of(cls, values: Floats, weights: Floats | None = None) -> Self:
        """Return the sketch of the rows of `values` (rows, d); skips NaN and rows of weight zero."""
        if weights is not None:
            values, weights = values[weights > 0], weights[weights > 0]
        return cls.from_array(_side_by_side([_sketch(column, weights) for column in values.T]))

    @classmethod
    def of_moments(cls, moments: Moments, rows: int) -> Self:
        """Return an approximate sketch of `rows` rows from their moments: a normal distribution truncated to the range.

        It is exact for columns with two different values.
        """
        array = _side_by_side([_sketch(*_synthesize(moments, column)) for column in range(len(moments.mean))])
        array[-1] = np.where(moments.count > 0, min(rows, SAMPLE_ROWS), 0)
        return cls.from_array(array)

    def shares_upto(self, column: int, values: Floats) -> Floats:
        """Return the share of a column's weight up to each of `values` (n,): its distribution function, shape (n,)."""
        steps = np.repeat(self.points[:, column], 2)
        heights = np.column_stack([self.below[:, column], self.upto[:, column]]).ravel()
        return np.asarray(np.interp(values, steps, heights, left=0.0))

    def as_array(self) -> Floats:
        """Return the sketch as an array, shape (94, d)."""
        return np.vstack([self.points, self.below, self.upto, self.sampled])

    @classmethod
    def from_array(cls, array: Floats) -> Self:
        """Return the sketch from the result of `as_array`."""
        points, below, upto = np.split(array[:-1], 3)
        return cls(points, below, upto, array[-1])


class Sample:
    """A sample of a partition's rows, spread evenly over it, independent of its batches; O(SAMPLE_ROWS·d) memory."""

    def __init__(self, n_rows: int) -> None:
        self._indices, self._seen = sample_indices(n_rows), 0
        self._values: list[Floats] = []
        self._weights: list[Floats] = []

    def add(self, values: Floats, weights: Floats | None) -> None:
        """Add the sampled ones of the next rows (rows, d)."""
        low, high = np.searchsorted(self._indices, [self._seen, self._seen + len(values)])
        indices = self._indices[low:high] - self._seen
        self._values.append(values[indices])
        self._weights.append(np.ones(len(indices)) if weights is None else weights[indices])
        self._seen += len(values)

    def sketch(self, n_columns: int) -> Sketch:
        """Return the sketch of the sampled rows."""
        values = np.vstack([np.empty((0, n_columns)), *self._values])
        return Sketch.of(values, np.concatenate([np.empty(0), *self._weights]))


def sample_indices(n_rows: int) -> Integers:
    """Return the indices of at most SAMPLE_ROWS of `n_rows` rows, ascending: all, or one in each run of equal length.

    The position inside the run advances by the golden ratio, so that no period of the rows is sampled systematically.
    """
    if n_rows <= SAMPLE_ROWS:
        return np.arange(n_rows)
    runs = np.arange(SAMPLE_ROWS)
    return np.unique(((runs + runs * _GOLDEN % 1.0) * (n_rows / SAMPLE_ROWS)).astype(np.int64))


def round_single(values: Floats) -> Floats:
    """Return values rounded to float32, as float64."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


def _side_by_side(columns: list[Floats]) -> Floats:
    return np.column_stack(columns) if columns else np.empty((_NUMBERS, 0))


def _sketch(values: Floats, weights: Floats | None) -> Floats:
    """Return one column's points, shares below and up to them, and effective sample size: shape (94,)."""
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


def _synthesize(moments: Moments, column: int) -> tuple[Floats, Floats]:
    """Return values (n,) and weights (n,) with approximately a column's moments; empty for a column without values.

    A distribution on two values, and no other, has the largest variance for its mean and range, (max − mean)(mean −
    min).
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
        quantiles = ndtri((np.arange(_SYNTHETIC_ROWS) + 0.5) / _SYNTHETIC_ROWS)
        values = np.clip(mean + np.sqrt(variance) * quantiles, low, high)
        weights = np.ones(_SYNTHETIC_ROWS)
    return values[weights > 0], weights[weights > 0]
