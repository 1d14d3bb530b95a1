"""A mergeable histogram of errors whose bin width adapts to the errors.

Bins are 2^exponent wide and begin at multiples of that, so narrower bins lie entirely inside wider ones. The exponent
is the smallest with at most MOST_BINS non-empty bins; for the same rows it is the same however they are divided.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import frexp
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats

MOST_BINS = 512
"""Largest number of non-empty bins."""

_DIGITS = 40
"""Bits of a bin's index; the largest error is below 2^_DIGITS bins."""

_SMALLEST = -1000


@dataclass(frozen=True)
class ErrorHistogram:
    """The weight of rows by their error."""

    exponent: int = _SMALLEST
    """Bins are 2^exponent wide, in the errors' own units."""
    bins: tuple[int, ...] = ()
    """The indices of the non-empty bins, ascending: bin i begins at i·2^exponent."""
    weights: tuple[float, ...] = ()
    """The weight in each."""

    @classmethod
    def of(cls, errors: Floats, weights: Floats | None) -> Self:
        """Return the histogram of finite errors (rows,) with weights (rows,); O(rows log rows)."""
        w = np.ones(len(errors)) if weights is None else weights
        counts = (w > 0) & np.isfinite(errors)
        weighted = errors[counts]
        if not len(weighted):
            return cls()
        largest = float(np.abs(weighted).max())
        exponent = max(frexp(largest)[1] - _DIGITS, _SMALLEST) if largest else _SMALLEST
        numbers = np.floor(np.ldexp(weighted, -exponent)).astype(np.int64)
        bins, indices = np.unique(numbers, return_inverse=True)
        sums = np.bincount(indices, w[counts], len(bins))
        return cls(exponent, tuple(map(int, bins)), tuple(map(float, sums))).fitting()

    def merge(self, other: Self) -> Self:
        """Return the histogram of both sets of rows."""
        exponent = max(self.exponent, other.exponent)
        sums: dict[int, float] = {}
        for part in (self.widened(exponent), other.widened(exponent)):
            for number, weight in zip(part.bins, part.weights, strict=True):
                sums[number] = sums.get(number, 0.0) + weight
        return type(self)(exponent, tuple(sorted(sums)), tuple(sums[number] for number in sorted(sums))).fitting()

    def widened(self, exponent: int) -> Self:
        """Return the histogram with bins 2^exponent wide, which are at least as wide as now."""
        sums: dict[int, float] = {}
        for number, weight in zip(self.bins, self.weights, strict=True):
            wide = number >> (exponent - self.exponent)
            sums[wide] = sums.get(wide, 0.0) + weight
        return type(self)(exponent, tuple(sums), tuple(sums.values()))

    def fitting(self) -> Self:
        """Return the histogram with at most MOST_BINS non-empty bins."""
        fitting = self
        while len(fitting.bins) > MOST_BINS:
            fitting = fitting.widened(fitting.exponent + 1)
        return fitting

    def quantile(self, share: float) -> float:
        """Return the middle of the first bin at which the cumulated weight exceeds this share; 0 without rows."""
        middle = _quantile(self.bins, self.weights, share) + 0.5 if self.bins else 0.0
        return float(np.ldexp(middle, self.exponent))

    def shown(self, bins: int, tail: float = 0.005) -> "Bars":
        """Return at most `bins` bars that exclude at most the fraction `tail` of the weight on either side."""
        total = sum(self.weights)
        if not total > 0:
            return Bars(0.0, 1.0, (), 0.0, 0.0)
        low, high = (
            _quantile(self.bins, self.weights, tail),
            -_quantile([-number for number in reversed(self.bins)], self.weights[::-1], tail),
        )
        exponent = self.exponent
        while (high >> (exponent - self.exponent)) - (low >> (exponent - self.exponent)) >= bins:
            exponent += 1
        wide = self.widened(exponent)
        first, last = low >> (exponent - self.exponent), high >> (exponent - self.exponent)
        weights = dict(zip(wide.bins, wide.weights, strict=True))
        return Bars(
            begin=float(np.ldexp(float(first), exponent)),
            width=float(np.ldexp(1.0, exponent)),
            weights=tuple(weights.get(number, 0.0) for number in range(first, last + 1)),
            below=sum(weight for number, weight in weights.items() if number < first),
            above=sum(weight for number, weight in weights.items() if number > last),
        )


@dataclass(frozen=True)
class Bars:
    """The bars of a histogram, for display."""

    begin: float
    """The lower bound of the first bar."""
    width: float
    """The width of each bar."""
    weights: tuple[float, ...]
    """The weight in each bar."""
    below: float
    """The weight below the first bar."""
    above: float
    """The weight above the last bar."""


def _quantile(bins: Sequence[int], weights: Sequence[float], share: float) -> int:
    """Return the first bin at which the cumulated weight exceeds this share of the total."""
    total = sum(weights)
    reached = zip(bins, accumulate(weights), strict=True)
    return next((number for number, sum_ in reached if sum_ > share * total), bins[-1])
