"""Count, mean, variance and range of columns, merged block by block (Chan, Golub & LeVeque 1979)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats

_SAME = 1e-9
"""Relative rounding error allowed in a variance."""


@dataclass(frozen=True)
class Moments:
    """Weighted moments of d columns; a commutative monoid under `merge`, up to rounding."""

    count: Floats
    """The sum of weights, shape (d,)."""
    mean: Floats
    """Weighted means, shape (d,); zero for columns without values."""
    squares: Floats
    """Weighted sums of squared deviations from the mean, shape (d,)."""
    minimum: Floats
    """Smallest values, shape (d,); +inf for columns without values."""
    maximum: Floats
    """Largest values, shape (d,); −inf for columns without values."""

    @classmethod
    def empty(cls, n_columns: int) -> Self:
        """Return the moments of no rows."""
        zeros, infinite = np.zeros(n_columns), np.full(n_columns, np.inf)
        return cls(zeros, zeros, zeros, infinite, -infinite)

    @classmethod
    def of(cls, values: Floats, weights: Floats | None = None) -> Self:
        """Return the moments of the rows of `values` (rows, d) in two passes.

        Rows of weight zero are skipped; NaN is a missing value and is skipped in its column.
        """
        if weights is not None:
            values, weights = values[weights > 0], weights[weights > 0]
        if not len(values):
            return cls.empty(values.shape[1])
        w = np.ones(len(values)) if weights is None else weights
        if np.isnan(values).any():
            return cls._of_present(values, w)
        total = w.sum()
        mean = w @ values / total
        squares = w @ (values - mean) ** 2
        return cls(np.full(values.shape[1], total), mean, squares, values.min(axis=0), values.max(axis=0))

    @classmethod
    def _of_present(cls, values: Floats, w: Floats) -> Self:
        """Return the moments of the values (rows, d) that are not NaN, with weights (rows,)."""
        present = ~np.isnan(values)
        count = w @ present
        total = w @ np.where(present, values, 0.0)
        mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
        squares = w @ np.where(present, values - mean, 0.0) ** 2
        smallest = np.where(present, values, np.inf).min(axis=0)
        return cls(count, mean, squares, smallest, np.where(present, values, -np.inf).max(axis=0))

    def merge(self, other: Self) -> Self:
        """Return the moments of both sets of rows; O(d)."""
        count = self.count + other.count
        share = np.divide(other.count, count, out=np.zeros_like(count), where=count > 0)
        delta = other.mean - self.mean
        return type(self)(
            count=count,
            mean=self.mean + delta * share,
            squares=self.squares + other.squares + delta**2 * self.count * share,
            minimum=np.minimum(self.minimum, other.minimum),
            maximum=np.maximum(self.maximum, other.maximum),
        )

    def take(self, columns: Sequence[int]) -> Self:
        """Return the moments of these columns."""
        return type(self).from_array(self.as_array()[:, list(columns)])

    def constant(self) -> "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]":
        """Return which columns have no two different values, shape (d,)."""
        return np.asarray(self.minimum >= self.maximum)

    def two_valued(self) -> "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]":
        """Return which columns have two different values, and no other: their variance is as large as any can be."""
        with np.errstate(invalid="ignore", over="ignore"):  # columns without values
            largest = self.count * (self.maximum - self.mean) * (self.mean - self.minimum)
            return np.asarray(~self.constant() & (self.squares >= (1 - _SAME) * largest))

    def deviation(self) -> Floats:
        """Return population standard deviations, shape (d,); one for columns that are constant or without values."""
        variance = np.divide(self.squares, self.count, out=np.ones_like(self.squares), where=self.count > 0)
        deviation = np.sqrt(variance)
        return np.where(self.constant() | ~(deviation > 0), 1.0, deviation)

    def as_array(self) -> Floats:
        """Return the five vectors as rows, shape (5, d)."""
        return np.stack([self.count, self.mean, self.squares, self.minimum, self.maximum])

    @classmethod
    def from_array(cls, array: Floats) -> Self:
        """Return the moments from the result of `as_array`."""
        return cls(*(np.asarray(row) for row in array))


def merge_moments(parts: list[Moments], n_columns: int) -> Moments:
    """Return the moments of all parts, merged from left to right."""
    return reduce(Moments.merge, parts, Moments.empty(n_columns))
