"""A histogram of errors whose parts add up: its bins are as wide as the errors themselves ask for.

A bin is 2^exponent wide and begins at a multiple of that, so bins of one width lie whole in those of the next. The
exponent is the smallest for which no more than MOST_BINS hold anything; that of all rows is the same however they are
cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import frexp
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats

MOST_BINS = 512
"""Bins that hold anything, at most."""

_DIGITS = 40
"""Bits to which a bin's number is known; the largest error is below 2^_DIGITS bins."""

_SMALLEST = -1000


@dataclass(frozen=True)
class ErrorHistogram:
    """The weight of rows by their error."""

    exponent: int = _SMALLEST
    """Bins are 2^exponent wide, in the errors' own units."""
    bins: tuple[int, ...] = ()
    """The numbers of the bins that hold anything, ascending: bin i begins at i·2^exponent."""
    weights: tuple[float, ...] = ()
    """The weight in each."""

    @classmethod
    def of(cls, errors: Floats, weights: Floats | None) -> Self:
        """Return the histogram of finite errors (rows,) with weights (rows,); O(rows log rows)."""
        w = np.ones(len(errors)) if weights is None else weights
        counts = (w > 0) & np.isfinite(errors)
        counted = errors[counts]
        if not len(counted):
            return cls()
        exponent = max(frexp(float(np.abs(counted).max()))[1] - _DIGITS, _SMALLEST)
        numbers = np.floor(np.ldexp(counted, -exponent)).astype(np.int64)
        bins, places = np.unique(numbers, return_inverse=True)
        sums = np.bincount(places, w[counts], len(bins))
        return cls(exponent, tuple(map(int, bins)), tuple(map(float, sums))).fitting()

    def merge(self, other: Self) -> Self:
        """Return the histogram of both."""
        exponent = max(self.exponent, other.exponent)
        sums: dict[int, float] = {}
        for part in (self.widened(exponent), other.widened(exponent)):
            for number, weight in zip(part.bins, part.weights, strict=True):
                sums[number] = sums.get(number, 0.0) + weight
        return type(self)(exponent, tuple(sorted(sums)), tuple(sums[number] for number in sorted(sums))).fitting()

    def widened(self, exponent: int) -> Self:
        """Return it with bins 2^exponent wide, no narrower than they are."""
        sums: dict[int, float] = {}
        for number, weight in zip(self.bins, self.weights, strict=True):
            wide = number >> (exponent - self.exponent)
            sums[wide] = sums.get(wide, 0.0) + weight
        return type(self)(exponent, tuple(sums), tuple(sums.values()))

    def fitting(self) -> Self:
        """Return it with no more than MOST_BINS bins."""
        fitting = self
        while len(fitting.bins) > MOST_BINS:
            fitting = fitting.widened(fitting.exponent + 1)
        return fitting

    def shown(self, bins: int, tail: float = 0.005) -> "Bars":
        """Return at most so many bars that leave out no more than `tail` of the weight on either side."""
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
        held = dict(zip(wide.bins, wide.weights, strict=True))
        return Bars(
            float(np.ldexp(float(first), exponent)),
            float(np.ldexp(1.0, exponent)),
            tuple(held.get(number, 0.0) for number in range(first, last + 1)),
            sum(weight for number, weight in held.items() if number < first),
            sum(weight for number, weight in held.items() if number > last),
        )


@dataclass(frozen=True)
class Bars:
    """A histogram as it is shown."""

    begin: float
    """Where the first bar begins."""
    width: float
    """The width of each."""
    weights: tuple[float, ...]
    """The weight in each."""
    below: float
    """The weight before the first."""
    above: float
    """The weight after the last."""


def _quantile(bins: Sequence[int], weights: Sequence[float], share: float) -> int:
    """Return the first bin up to which there is more than that share of the weight."""
    total = sum(weights)
    reached = zip(bins, accumulate(weights), strict=True)
    return next((number for number, sum_ in reached if sum_ > share * total), bins[-1])
