"""The population stability index: how far the distribution of a column has moved from that of the training rows.

With p_i the share of the training rows in bin i, and q_i that of the rows compared,

    PSI = Σ (p_i − q_i) ln(p_i / q_i),

the sum of both relative entropies. Half a row is added to each of the B bins in which there is a row of either side,
(n p_i + ½) / (n + B/2) with n at most SAMPLE_ROWS, so that an empty bin makes it neither infinite nor nothing: no share
is below 1.2·10⁻⁴. Numbers are binned by the deciles of the training rows, with bins of their own for what lies below
and above all of them; equal deciles are one. Categories are binned one by one, the rare ones together, and those that
the training rows lack. What is missing is a bin, too.

Where both are samples of one distribution, PSI / (1/n + 1/m) is about χ² with B − 1 degrees of freedom (Yurdakul 2018,
"Statistical properties of population stability index"): a small partition has a large index by chance.
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
"""The usual reading: below 0.1 the column is stable, above this it is another population."""

RARE = 0.01
"""A category of a smaller share of the training rows has no bin of its own."""

BY_CHANCE = 1e-4
"""How seldom a partition with the training rows' distribution may be taken for another, over all its columns."""

_DECILES = np.arange(1, 10) / 10
_TOLERANCE = 1e-12
"""How far a cumulated share may be from a decile and count as reaching it."""


@dataclass(frozen=True)
class Shares:
    """How the rows of one side fall into the bins."""

    bins: Floats
    """The share of the rows in each, shape (B,), summing to one; all zero without rows."""
    rows: float
    """How many rows of equal weight they are worth."""


@dataclass(frozen=True)
class Shift:
    """How far a column has moved."""

    psi: float
    """The population stability index, finite and not negative."""
    chance: float
    """What it would exceed by chance in one of 1 / BY_CHANCE partitions."""

    @property
    def is_large(self) -> bool:
        """Whether it is more than LARGE, and more than chance."""
        return self.psi > max(LARGE, self.chance)


def compare_shares(training: Shares, now: Shares, n_columns: int) -> Shift:
    """Return how far `now` is from `training`, one of `n_columns` that are looked at; no shift without rows."""
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
    """The first is just below the smallest training value, the last is the largest, deciles lie between; ascending."""
    column: int
    """Which column of a sketch it is."""

    @classmethod
    def of(
        cls, sketches: Sequence[Sketch], weights: Sequence[float], column: int, low: float, high: float
    ) -> "NumericBins":
        """Bin by the deciles of several partitions with these weights, all of whose values lie from `low` to `high`."""
        points = np.concatenate([np.empty(0), *(s.points[:, column] for s in sketches)])
        masses = [np.diff(s.upto[:, column], prepend=0.0) * w for s, w in zip(sketches, weights, strict=True)]
        order = np.argsort(points, kind="stable")
        cumulated = np.cumsum(np.concatenate([np.empty(0), *masses])[order])
        if not (len(cumulated) and cumulated[-1] > 0):
            return cls(np.array([np.nextafter(0.0, -1.0), 0.0]), column)
        places = np.searchsorted(cumulated / cumulated[-1], _DECILES - _TOLERANCE)
        edges = np.array([np.nextafter(low, -np.inf), *points[order][places], high])
        return cls(np.unique(np.clip(edges, edges[0], high)), column)

    def count(self, sketch: Sketch, missing: float) -> Shares:
        """Return the shares of the rows of a sketch, of which the share `missing` lacks the column."""
        rows = float(sketch.sampled.max(initial=0.0))
        if not rows:
            return Shares(np.zeros(len(self.edges) + 2), 0.0)
        if not sketch.sampled[self.column]:
            return Shares(np.append(np.zeros(len(self.edges) + 1), 1.0), rows)
        present = np.diff(sketch.shares_upto(self.column, self.edges), prepend=0.0, append=1.0)
        return Shares(np.append(present * (1 - missing), missing), rows)


@dataclass(frozen=True)
class CategoryBins:
    """The bins of a categorical column: one a frequent category, the rare ones, those not seen, and missing."""

    frequent: tuple[Label, ...]
    """The categories that have a bin of their own."""
    rare: frozenset[Label]
    """The others that training rows have."""

    @classmethod
    def of(cls, counts: Mapping[Any, float]) -> "CategoryBins":
        """Bin by the weight of each category among the training rows."""
        total = sum(counts.values())
        frequent = tuple(value for value, weight in counts.items() if weight >= RARE * total and weight > 0)
        rare = frozenset(value for value, weight in counts.items() if 0 < weight < RARE * total)
        return cls(frequent, rare)

    def count(self, counts: Mapping[Any, float], weight: float, rows: float) -> Shares:
        """Return the shares by the weight of each category, of rows of this weight in all."""
        if not (weight > 0 and rows > 0):
            return Shares(np.zeros(len(self.frequent) + 3), 0.0)
        known = {*self.frequent, *self.rare}
        sums = [counts.get(value, 0.0) for value in self.frequent]
        sums.append(sum(n for value, n in counts.items() if value in self.rare))
        sums.append(sum(n for value, n in counts.items() if value not in known))
        missing = max(weight - sum(counts.values()), 0.0)
        return Shares(np.array([*sums, missing]) / (sum(sums) + missing), rows)


def mean_shares(parts: Sequence[Shares], weights: Sequence[float]) -> Shares:
    """Return the shares of all parts together, at least one, which have these weights."""
    counted = [(part, w) for part, w in zip(parts, weights, strict=True) if part.rows > 0 and w > 0]
    total = sum(w for _, w in counted)
    bins = sum((part.bins * (w / total) for part, w in counted), np.zeros_like(parts[0].bins))
    return Shares(bins, sum(part.rows for part, _ in counted))
