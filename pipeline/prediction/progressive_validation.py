"""The progressive error of each partition: every row is predicted before it is learned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.prediction.evaluate import Evaluation, losses_of

RECENT = 20
"""Number of partitions, those learned just before, that an error is compared with at most."""

FACTOR, SIGMAS, SIGMAS_OF_SQUARES = 1.5, 4.5, 12.0
"""An error is an outlier if it is more than FACTOR times the median of those before, and SIGMAS deviations above it.

A mean square takes more: of few rows it has a long tail (`tests/benchmarks/drift_alarms.py` counts the alarms).
"""

LEAST_ROWS = 10
"""An error over fewer rows has no limit: a single row decides it, and its distribution is far from normal."""

_MAD = 1.4826
"""Ratio of the standard deviation to the median absolute deviation of a normal distribution."""

_KURTOSIS = 9.0
"""Assumed kurtosis of regression errors, which gives the variance of a mean square: three times the normal one."""


@dataclass(frozen=True)
class Progressive:
    """Sums over rows that were predicted before they were learned, in total and for each partition."""

    total: Evaluation
    """The sums over all rows, in the learner's units."""
    segments: tuple[int, ...] = ()
    """The segments of the rows, in order."""
    weights: tuple[float, ...] = ()
    """The weight of the rows of each segment."""
    losses: tuple[float, ...] = ()
    """For each segment, the weight of misclassified rows, or the weighted sum of squared errors in squared target
    units, averaged over the targets.
    """

    @classmethod
    def of(cls, segment: int, sums: Evaluation, feature_map: FeatureMap) -> Self:
        """Return the sums over rows of one segment."""
        return cls(sums, (segment,), (sums.weight,), (mean_errors(sums, feature_map)[0] * sums.weight,))

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows, those of `other` following."""
        total = self.total.merge(other.total)
        if not (self.segments and other.segments and self.segments[-1] == other.segments[0]):
            sums = (getattr(self, name) + getattr(other, name) for name in ("segments", "weights", "losses"))
            return type(self)(total, *sums)
        weights, losses = (
            (*own[:-1], own[-1] + others[0], *others[1:])
            for own, others in ((self.weights, other.weights), (self.losses, other.losses))
        )
        return type(self)(total, self.segments + other.segments[1:], weights, losses)

    def errors(self) -> Mapping[int, float]:
        """Return each segment's error, except for segments without a row of positive weight."""
        sums = zip(self.segments, self.weights, self.losses, strict=True)
        return {segment: loss / weight for segment, weight, loss in sums if weight > 0}


def mean_errors(sums: Evaluation, feature_map: FeatureMap) -> tuple[float, tuple[float, ...]]:
    """Return the misclassified fraction or the mean squared error over the targets, and the error of each target.

    Squared errors are in squared target units; there are none for classes. Without rows, the error is zero.
    """
    errors = tuple(mse * s**2 for mse, s in zip(sums.test_mse_of, feature_map.target.scale, strict=False))
    return sum(errors) / len(errors) if errors else sums.test_error or 0.0, errors


def last_value_errors(sums: Evaluation, feature_map: FeatureMap) -> tuple[float, ...]:
    """Return the errors of the last value, as `mean_errors` those of the model: one of classes, or of each target."""
    errors = sums.last_value.errors
    return errors if sums.classes else tuple(e * s**2 for e, s in zip(errors, feature_map.target.scale, strict=False))


def sum_losses(
    outputs: Floats, targets: Floats, weights: Floats | None, feature_map: FeatureMap, *, classes: bool
) -> tuple[Floats, Floats]:
    """Return cumulative sums over the rows of the weight, (rows,), and of the weighted loss, (rows,).

    The loss averages to `mean_errors`. Outputs and targets, both (rows, n_outputs), are in the learner's units.
    """
    w = np.ones(len(targets)) if weights is None else weights
    losses = losses_of(outputs, targets, feature_map, classes=classes)
    if not classes:
        losses = losses * np.square(feature_map.target.scale)
    return np.cumsum(w), np.cumsum(w * losses.mean(axis=1))


def find_limits(
    errors: Sequence[float | None], rows: Sequence[int], *, classes: bool, first: int = 0
) -> list[float | None]:
    """Return for each partition from `first` on, in the order of learning, above which limit its error is an outlier.

    The limit is the larger of FACTOR times the median of the RECENT errors before it and SIGMAS deviations above it,
    of a mean square SIGMAS_OF_SQUARES.
    The variance is that of these errors, estimated from their median absolute deviation, plus the sampling variance
    with this number of rows: p(1 − p)/n for a fraction, (_KURTOSIS − 1)e²/n for a mean square. None without previous
    errors, for a partition without an error, and for one of fewer than LEAST_ROWS rows.
    """
    limits: list[float | None] = []
    before = [error for error in errors[:first] if error is not None]
    for error, n in zip(errors[first:], rows[first:], strict=True):
        is_judged = before and error is not None and n >= LEAST_ROWS
        limits.append(_limit(before[-RECENT:], n, classes=classes) if is_judged else None)
        before += [] if error is None else [error]
    return limits


def _limit(before: Sequence[float], rows: int, *, classes: bool) -> float:
    typical = median(before)
    spread = _MAD * median(abs(error - typical) for error in before)
    p = min(typical + 1 / rows, 1.0)  # one mistake more, so that the first mistake after none is not an outlier
    chance = p * (1 - p) / rows if classes else (_KURTOSIS - 1) * typical**2 / rows
    sigmas = SIGMAS if classes else SIGMAS_OF_SQUARES
    return max(FACTOR * typical, typical + sigmas * sqrt(spread**2 + chance))
