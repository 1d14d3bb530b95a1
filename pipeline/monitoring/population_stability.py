"""The population stability index: how much the distribution of a column differs from that of the training rows.

With p_i the share of the training rows in bin i, and q_i that of the compared rows,

    PSI = Σ (p_i − q_i) ln(p_i / q_i),

the sum of both relative entropies. Half a row is added to each of the B bins that contain a row of either side,
(n p_i + ½) / (n + B/2) with n at most SAMPLE_ROWS, so that empty bins give neither infinity nor zero: no share is below
1.2·10⁻⁴. Numbers are binned by the deciles of the training rows, with separate bins for values below and above all of
them; equal deciles are merged. Each frequent category has a bin, the rare ones share one, and so do those that do not
occur in the training rows. Missing values have a bin of their own.

If both are samples of one distribution, PSI / (1/n + 1/m) is approximately χ² with B − 1 degrees of freedom (Yurdakul
2018, "Statistical properties of population stability index"): small partitions have a large index by chance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtri, rel_entr

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.features.one_vs_rest import Label
from ridgestream.pipeline.sums.quantile_sketch import SAMPLE_ROWS, Sketch

LARGE = 0.25
"""The usual interpretation: a column is stable below 0.1, and from a different population above this."""

RARE = 0.01
"""Categories with a smaller share of the training rows share a bin."""

BY_CHANCE = 1e-4
"""The probability that some column of a partition with the training rows' distribution is reported as shifted."""

_DECILES = np.arange(1, 10) / 10
_TOLERANCE = 1e-12
"""Tolerance when comparing a cumulated share with a decile."""


@dataclass(frozen=True)
class Shares:
    """The shares of one side's rows in the bins."""

    bins: Floats
    """The share of the rows in each bin, shape (B,), summing to one; all zero without rows."""
    rows: float
    """The effective number of rows of equal weight."""


@dataclass(frozen=True)
class Shift:
    """How far the distribution of a column has shifted."""

    psi: float
    """The population stability index, finite and non-negative."""
    chance: float
    """The value that it exceeds by chance with probability BY_CHANCE, over all columns."""

    @property
    def is_large(self) -> bool:
        """Whether it exceeds both LARGE and chance."""
        return self.psi > max(LARGE, self.chance)


def compare_shares(training: Shares, now: Shares, n_columns: int) -> Shift:
    """Return the shift of `now` relative to `training`, for one of `n_columns` columns; zero without rows."""
    if not (training.rows > 0 and now.rows > 0):
        return Shift(0.0, 0.0)
    filled = (training.bins > 0) | (now.bins > 0)
    n, m = (min(side.rows, SAMPLE_ROWS) for side in (training, now))
    p = (n * training.bins[filled] + 0.5) / (n + 0.5 * filled.sum())
    q = (m * now.bins[filled] + 0.5) / (m + 0.5 * filled.sum())
    psi = float((rel_entr(p, q) + rel_entr(q, p)).sum())
    chance = float(chdtri(filled.sum() - 1, BY_CHANCE / n_columns) * (1 / n + 1 / m)) if filled.sum() > 1 else 0.0
    return Shift(max(psi, 0.0), chance)


@dataclass(frozen=True)
class NumericBins:
    """The bins of a numeric column: up to the first edge, up to the second, …, above the last, and missing."""

    edges: Floats
    """Ascending: just below the smallest training value, the deciles, the largest training value."""
    column: int
    """The column's index in a sketch."""

    @classmethod
    def of(
        cls, sketches: Sequence[Sketch], weights: Sequence[float], column: int, low: float, high: float
    ) -> "NumericBins":
        """Bin by the deciles of several partitions with these weights, whose values are between `low` and `high`."""
        points = np.concatenate([np.empty(0), *(s.points[:, column] for s in sketches)])
        masses = [np.diff(s.upto[:, column], prepend=0.0) * w for s, w in zip(sketches, weights, strict=True)]
        order = np.argsort(points, kind="stable")
        cumulated = np.cumsum(np.concatenate([np.empty(0), *masses])[order])
        if not (len(cumulated) and cumulated[-1] > 0):
            return cls(np.array([np.nextafter(0.0, -1.0), 0.0]), column)
        indices = np.searchsorted(cumulated / cumulated[-1], _DECILES - _TOLERANCE)
        edges = np.array([np.nextafter(low, -np.inf), *points[order][indices], high])
        return cls(np.unique(np.clip(edges, edges[0], high)), column)

    def count(self, sketch: Sketch, missing: float) -> Shares:
        """Return the shares of a sketch's rows, of which the share `missing` lacks a value."""
        rows = float(sketch.sampled.max(initial=0.0))
        if not rows:
            return Shares(np.zeros(len(self.edges) + 2), 0.0)
        if not sketch.sampled[self.column]:
            return Shares(np.append(np.zeros(len(self.edges) + 1), 1.0), rows)
        present = np.diff(sketch.shares_upto(self.column, self.edges), prepend=0.0, append=1.0)
        return Shares(np.append(present * (1 - missing), missing), rows)


@dataclass(frozen=True)
class CategoryBins:
    """The bins of a categorical column: one per frequent category, one for rare ones, one for new ones, and missing."""

    frequent: tuple[Label, ...]
    """The categories with a bin of their own."""
    rare: frozenset[Label]
    """The other categories of the training rows."""

    @classmethod
    def of(cls, counts: Mapping[Any, float]) -> "CategoryBins":
        """Bin by the weight of each category in the training rows."""
        total = sum(counts.values())
        frequent = tuple(value for value, weight in counts.items() if weight >= RARE * total and weight > 0)
        rare = frozenset(value for value, weight in counts.items() if 0 < weight < RARE * total)
        return cls(frequent, rare)

    def count(self, counts: Mapping[Any, float], weight: float, rows: float) -> Shares:
        """Return the shares of rows from the weight of each category and the total weight."""
        if not (weight > 0 and rows > 0):
            return Shares(np.zeros(len(self.frequent) + 3), 0.0)
        training_categories = {*self.frequent, *self.rare}
        sums = [counts.get(value, 0.0) for value in self.frequent]
        sums.append(sum(n for value, n in counts.items() if value in self.rare))
        sums.append(sum(n for value, n in counts.items() if value not in training_categories))
        missing = max(weight - sum(counts.values()), 0.0)
        return Shares(np.array([*sums, missing]) / (sum(sums) + missing), rows)


def mean_shares(parts: Sequence[Shares], weights: Sequence[float]) -> Shares:
    """Return the shares of all parts together, at least one, with these weights."""
    weighted_parts = [(part, w) for part, w in zip(parts, weights, strict=True) if part.rows > 0 and w > 0]
    total = sum(w for _, w in weighted_parts)
    bins = sum((part.bins * (w / total) for part, w in weighted_parts), np.zeros_like(parts[0].bins))
    return Shares(bins, sum(part.rows for part, _ in weighted_parts))
