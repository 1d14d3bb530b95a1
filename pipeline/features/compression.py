"""Columns with values far out, as amounts and counts often are, and sizes that are wrong: their logarithms, nearly.

A few such values take most of a column's standard deviation, which leaves little for all others, and most of the
gradients by which a metric is learned. So the feature is asinh z, with z the distance from the median in robust
standard deviations: it is linear near the median, and a logarithm far from it.

Where the values are far out on one side, as incomes are, z is the distance from the value at the other end, in units of
a low quantile's: a logarithm of nearly all values, since the smallest ones would differ by next to nothing otherwise.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats

FAR = 5.0
"""A value is far out if it is so many standard deviations away from the mean."""

NORMAL_QUARTILES = 1.349
"""The distance of the quartiles of a normal distribution, in standard deviations."""

ONE_SIDED = 0.25
"""The asymmetry of asinh z above which values are far out on one side; z from that side must halve it."""

ASYMMETRY_SHARES = (0.02, 0.5, 0.98)
"""The shares of values whose quantiles are compared: those of a symmetric column are equally far apart."""

UNIT_SHARES = (0.02, 0.05, 0.1, 0.25, 0.5)
"""The shares of values whose distance from the end is tried as the unit of z."""


@dataclass(frozen=True)
class Compression:
    """How a column is compressed."""

    median: float
    """The median of its values."""
    origin: float
    """Where z is zero."""
    unit: float
    """The distance from there at which z is one."""
    spread: float
    """The standard deviation of asinh z."""


def fit_compression(values: Floats, *, one_sided: bool = True) -> Compression | None:
    """Return how a column with these values (rows,) is compressed; None if none is far out, or only two differ.

    Where most values are the same, as a count of zero, the others must have one that is far out among them. Unless
    `one_sided`, the origin is the median.
    """
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist() if len(values) else (0.0, 0.0, 0.0)
    usual = values if high > low else values[values != median]
    if len(np.unique(usual)) <= 2 or np.abs(usual - usual.mean()).max() <= FAR * usual.std():
        return None
    deviation = (high - low) / NORMAL_QUARTILES if high > low else float(np.median(np.abs(usual - median)))
    origin, unit = _from_one_end(usual, median, deviation) if one_sided else (median, deviation)
    return Compression(median, origin, unit, float(np.arcsinh((values - origin) / unit).std()))


def _from_one_end(values: Floats, median: float, deviation: float) -> tuple[float, float]:
    """Return the origin and unit at an end of the values that make them most symmetric, if by half, or those given."""
    quantiles = np.quantile(values, ASYMMETRY_SHARES)
    asymmetry = _asymmetry(quantiles, median, deviation)
    if asymmetry <= ONE_SIDED:
        return median, deviation
    best = min(_ends(values), key=lambda end: _asymmetry(quantiles, *end), default=(median, deviation))
    return best if _asymmetry(quantiles, *best) <= asymmetry / 2 else (median, deviation)


def _ends(values: Floats) -> Iterator[tuple[float, float]]:
    """Yield the origins and units to compare."""
    for end, shares in ((values.min(), UNIT_SHARES), (values.max(), [1 - share for share in UNIT_SHARES])):
        units = np.abs(np.quantile(values, shares) - end)
        yield from ((float(end), unit) for unit in units.tolist() if unit > 0)


def _asymmetry(quantiles: Floats, origin: float, unit: float) -> float:
    """Return by how much the outer quantiles of asinh z differ in their distance from the median, 0 to 1.

    Those of the values, at ASYMMETRY_SHARES, become those of asinh z, which rises with them.
    """
    low, median, high = np.arcsinh((quantiles - origin) / unit).tolist()
    return abs(low + high - 2 * median) / (high - low) if high > low else 0.0
