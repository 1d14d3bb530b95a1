"""Prediction intervals f ± q·s by split-conformal prediction on standardized residuals, adapted from night to night.

The scores |y − f| / s of rows that the model had not learned when it predicted them say by which multiple q of s an
interval must reach on either side. s is the standard deviation of a new observation as far as that explains the
residuals: σ̂^(1 − p)·std^p, with the power p of POWERS under which these rows are likeliest. Where λ is tiny, std is
mostly the prior's and says little. For unit weights, q is score number ⌈level·(n + 1)⌉ of n in ascending order. An
interval then covers a further exchangeable row with a probability from `level` to level + 1/(n + 1).
With weights q is their quantile, where the new row has the largest weight (Barber, Candès, Ramdas & Tibshirani 2023,
"Conformal prediction beyond exchangeability").

Rows are not exchangeable with those before where a feed moves with time. The level that is worked with then follows the
coverage of the nights (Gibbs & Candès 2021, "Adaptive conformal inference under distribution shift"): α ← α +
RATE·(α₀ − the share of the night's rows outside), for each of LEVELS, by a fraction of that for a night of few rows.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import InputError

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""The levels that are adapted; others follow by linear interpolation."""

COVERAGE_LEVEL = 0.9
"""The level whose coverage a night reports."""

POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The powers that are compared: at 0 all intervals have the same width, at 1 that of the standard deviation."""

RATE = 0.8
"""How far α follows the coverage of a night of many rows."""

_HALF_ROWS = 500.0
"""A night of so many rows moves α half as far as one of many."""

_LEAST, _MOST = 0.1, 3.0
"""α stays between these multiples of 1 − level."""

_FLOOR = 1e-12
"""The least standard deviation, in the learner's units, in which targets have about the deviation 1."""


@dataclass(frozen=True)
class Intervals:
    """What turns standard deviations into intervals of a given level."""

    scores: Floats
    """|y − f| / s of rows that were not learned when they were predicted, shape (n_rows, n_targets)."""
    weights: Floats
    """The weight of each row, shape (n_rows,)."""
    outside: Floats
    """α, the share of rows outside that is worked with for each of LEVELS, shape (n_targets, n_levels)."""
    powers: Floats
    """The power p of each target, shape (n_targets,)."""

    @classmethod
    def of(cls, scores: Floats, weights: Floats) -> Self:
        """Return the intervals of scores by the standard deviation itself, before the first night of coverage."""
        n_targets = scores.shape[1]
        return cls(scores, weights, np.tile(1 - np.array(LEVELS), (n_targets, 1)), np.ones(n_targets))

    @classmethod
    def fit(cls, errors: Floats, deviations: Floats, noise: Floats, weights: Floats) -> Self:
        """Return the intervals of rows with |y − f| and deviations, both (rows, n_targets), and σ̂ (n_targets,)."""
        columns = zip(errors.T, deviations.T, noise[:, np.newaxis], strict=True)
        powers = np.array([_likeliest(*column, weights) for column in columns])
        return replace(cls.of(errors / scales_of(deviations, noise, powers), weights), powers=powers)

    def scales(self, deviations: Floats, noise: Floats) -> Floats:
        """Return s of rows with standard deviations of a new observation (rows, n_targets), and σ̂ (n_targets,)."""
        return scales_of(deviations, noise, self.powers)

    def factors(self, level: float) -> Floats:
        """Return q of each target, shape (n_targets,): the level is covered by f ± q·s.

        Raises InputError if the rows are too few for any finite interval of this level.
        """
        if len(self.weights) and np.isfinite(conformal_quantile(self.scores[:, 0], self.weights, level)):
            return np.array([self._factor(target, level) for target in range(self.scores.shape[1])])
        raise InputError(
            f"{self._count_rows()} are too few for intervals of the level {level:g}, which need "
            f"{int(np.ceil(level / (1 - level) - 1e-9))}: lower the level, or train on more rows"
        )

    def _count_rows(self) -> str:
        """Return how many rows there are, and as how many of equal weight they count."""
        equal = self.weights.sum() / self.weights.max() if len(self.weights) else 0.0
        rows = f"{len(self.weights)} rows"
        return rows if equal > len(self.weights) - 0.5 else f"{rows}, which count as {equal:.1f} of equal weight,"

    def _factor(self, target: int, level: float) -> float:
        scores = self.scores[:, target]
        quantile = conformal_quantile(scores, self.weights, 1 - self._outside(target, level))
        return min(quantile, float(scores.max()))

    def _outside(self, target: int, level: float) -> float:
        """Return the share of rows outside to work with for any level."""
        shares = np.minimum.accumulate(self.outside[target])
        return float(np.interp(level, [0.0, *LEVELS, 1.0], [1.0, *shares, 0.0]))

    def shares_outside(self, scores: Floats, weights: Floats) -> Floats:
        """Return the share of rows (rows, n_targets) outside the intervals of each of LEVELS, as `outside`.

        Levels for which there are too few rows have the share that they should have.
        """
        shares = np.tile(1 - np.array(LEVELS), (scores.shape[1], 1))
        for number, level in enumerate(LEVELS):
            if np.isfinite(conformal_quantile(self.scores[:, 0], self.weights, level)):
                shares[:, number] = weights @ (scores > self.factors(level)) / weights.sum()
        return shares

    def adapted(self, before: "Intervals", shares: Floats, rows: int) -> Self:
        """Return the intervals after a night of `rows` rows, of which these shares were outside those `before`."""
        alpha = 1 - np.array(LEVELS)
        step = RATE * rows / (rows + _HALF_ROWS)
        return replace(self, outside=np.clip(before.outside + step * (alpha - shares), _LEAST * alpha, _MOST * alpha))


def conformal_quantile(scores: Floats, weights: Floats, level: float) -> float:
    """Return the least score up to which rows have this share of the weight, a new row's included; ∞ if none has.

    The new row's weight is the largest. Scores and weights have the shape (rows,); O(rows log rows).
    """
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(weights[order])
    if not len(reached):
        return float("inf")
    wanted = level * (reached[-1] + weights.max()) * (1 - 1e-12)
    position = int(np.searchsorted(reached, wanted))
    return float(scores[order[position]]) if position < len(scores) else float("inf")


def scales_of(deviations: Floats, noise: Floats, powers: Floats) -> Floats:
    """Return σ̂^(1 − p)·std^p in the learner's units, at least what is above zero beyond rounding."""
    return np.maximum(noise ** (1 - powers) * deviations**powers, _FLOOR)


def _likeliest(errors: Floats, deviations: Floats, noise: Floats, weights: Floats) -> float:
    """Return the power of largest likelihood of a target's errors (rows,), Laplace of a scale proportional to s."""
    costs = []
    for power in POWERS:
        scales = scales_of(deviations, noise, np.array(power))
        mean = float(weights @ (errors / scales)) / float(weights.sum())
        costs.append(float(weights @ np.log(scales)) / float(weights.sum()) + np.log(max(mean, _FLOOR)))
    return max(power for power, cost in zip(POWERS, costs, strict=True) if cost == min(costs))
