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
    """Their robust standard deviation: by their quartiles or, if these are equal, the others' median distance."""
    spread: float
    """The standard deviation of asinh z."""


def fit_compression(values: Floats) -> Compression | None:
    """Return how a column with these values (rows,) is compressed; None if none is far out, or only two differ.

    Where most values are the same, as a count of zero, the others must have one that is far out among them.
    """
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist() if len(values) else (0.0, 0.0, 0.0)
    usual = values if high > low else values[values != median]
    if len(np.unique(usual)) <= 2 or np.abs(usual - usual.mean()).max() <= FAR * usual.std():
        return None
    deviation = (high - low) / NORMAL_QUARTILES if high > low else float(np.median(np.abs(usual - median)))
    return Compression(median, deviation, float(np.arcsinh((values - median) / deviation).std()))
