"""Columns with values far out, as amounts and counts often are, and sizes that are wrong: their logarithms, nearly.

A few such values take most of a column's standard deviation, which leaves little for all others, and most of the
gradients by which a metric is learned. So the feature is asinh z, with z the distance from the median in robust
standard deviations: it is linear near the median, and a logarithm far from it.
"""

from dataclasses import dataclass

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats

FAR = 5.0
"""A value is far out if it is so many standard deviations away from the mean."""

NORMAL_QUARTILES = 1.349
"""The distance of the quartiles of a normal distribution, in standard deviations."""


@dataclass(frozen=True)
class Compression:
    """How a column is compressed."""

    median: float
    """The median of its values."""
    deviation: float
    """Their robust standard deviation."""
    spread: float
    """The standard deviation of asinh z."""


def fit_compression(values: Floats) -> Compression | None:
    """Return how a column with these values (rows,) is compressed; None if none is far out, or only two differ."""
    if len(np.unique(values)) <= 2 or np.abs(values - values.mean()).max() <= FAR * values.std():
        return None
    median, deviation = float(np.median(values)), _robust_deviation(values)
    return Compression(median, deviation, float(np.arcsinh((values - median) / deviation).std()))


def _robust_deviation(values: Floats) -> float:
    """Return it from the quartiles or, if these are equal, the median distance of the other values from the median."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    if high > low:
        return float((high - low) / NORMAL_QUARTILES)
    return float(np.median(np.abs(values[values != median] - median)))
