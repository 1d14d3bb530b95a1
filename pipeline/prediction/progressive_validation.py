"""The progressive error, partition by partition: each row predicted before it is learned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.one_vs_rest import winners_of
from ridgestream.pipeline.prediction.evaluate import Evaluation

RECENT = 20
"""Partitions that an error is compared with at most, those learned last before it."""

FACTOR, SIGMAS = 1.5, 4.0
"""An error is far above those before if it is more than FACTOR times their median, and SIGMAS deviations above it."""

_MAD = 1.4826
"""From the median of absolute deviations to the standard deviation, for a normal distribution."""

_KURTOSIS = 9.0
"""Of the errors of a regression, three times that of a normal distribution: how much a mean square of them varies."""


@dataclass(frozen=True)
class Progressive:
    """Sums over rows that were predicted before they were learned: of all of them, and of each partition's."""

    total: Evaluation
    """The sums over all rows, in the learner's units."""
    segments: tuple[int, ...] = ()
    """The segments whose rows they are, in the order of the rows."""
    weights: tuple[float, ...] = ()
    """The weight of the rows of each."""
    losses: tuple[float, ...] = ()
    """The weight of each one's rows that were misclassified, or the weighted sum of their squared errors in squared
    target units, the mean over the targets.
    """

    @classmethod
    def of(cls, segment: int, sums: Evaluation, feature_map: FeatureMap) -> Self:
        """Return the sums over rows of one segment."""
        return cls(sums, (segment,), (sums.weight,), (mean_errors(sums, feature_map)[0] * sums.weight,))

    def merge(self, other: Self) -> Self:
        """Return the sums over both, the rows of `other` later."""
        total = self.total.merge(other.total)
        if not (self.segments and other.segments and self.segments[-1] == other.segments[0]):
            sums = (getattr(self, name) + getattr(other, name) for name in ("segments", "weights", "losses"))
            return type(self)(total, *sums)
        weights, losses = (
            (*mine[:-1], mine[-1] + theirs[0], *theirs[1:])
            for mine, theirs in ((self.weights, other.weights), (self.losses, other.losses))
        )
        return type(self)(total, self.segments + other.segments[1:], weights, losses)

    def errors(self) -> Mapping[int, float]:
        """Return each segment's error; a segment without a row that counts has none."""
        sums = zip(self.segments, self.weights, self.losses, strict=True)
        return {segment: loss / weight for segment, weight, loss in sums if weight > 0}


def mean_errors(sums: Evaluation, feature_map: FeatureMap) -> tuple[float, tuple[float, ...]]:
    """Return the fraction misclassified, or the mean squared error over the targets, and that of each target.

    Squared errors are in squared target units, and there are none for classes; zero without rows.
    """
    errors = tuple(mse * s**2 for mse, s in zip(sums.test_mse_of, feature_map.target.scale, strict=False))
    return sum(errors) / len(errors) if errors else sums.test_error or 0.0, errors


def sum_losses(
    outputs: Floats, targets: Floats, weights: Floats | None, feature_map: FeatureMap, *, classes: bool
) -> tuple[Floats, Floats]:
    """Return the weight of the rows up to each, (rows,), and what `mean_errors` times that weight is, (rows,).

    Outputs and targets, both (rows, n_outputs), are in the learner's units.
    """
    w = np.ones(len(targets)) if weights is None else weights
    if feature_map.target.classes:
        predicted, truth = (winners_of(feature_map.target.class_scores(values)) for values in (outputs, targets))
        losses = (predicted != truth).astype(np.float64)
    elif classes:
        losses = ((outputs[:, 0] > 0) != (targets[:, 0] > 0)).astype(np.float64)
    else:
        losses = ((outputs - targets) ** 2 * np.square(feature_map.target.scale)).mean(axis=1)
    return np.cumsum(w), np.cumsum(w * losses)


def find_limits(errors: Sequence[float | None], rows: Sequence[int], *, classes: bool) -> list[float | None]:
    """Return for each partition in the order of learning beyond which its error is far above those before it.

    The limit is the larger of FACTOR times the median of the RECENT errors before it and SIGMAS deviations above that;
    the variance is that of these errors, by the median of their deviations, and what chance adds with so few rows:
    p(1 − p)/n for a fraction, (_KURTOSIS − 1)e²/n for a mean square. None where there is no error before, or none to
    judge.
    """
    limits: list[float | None] = []
    before: list[float] = []
    for error, n in zip(errors, rows, strict=True):
        limits.append(_limit(before[-RECENT:], n, classes=classes) if before and error is not None and n else None)
        before += [] if error is None else [error]
    return limits


def _limit(before: Sequence[float], rows: int, *, classes: bool) -> float:
    typical = median(before)
    spread = _MAD * median(abs(error - typical) for error in before)
    p = min(typical + 1 / rows, 1.0)  # one mistake more: where none was made, the next is no surprise
    chance = p * (1 - p) / rows if classes else (_KURTOSIS - 1) * typical**2 / rows
    return max(FACTOR * typical, typical + SIGMAS * sqrt(spread**2 + chance))
