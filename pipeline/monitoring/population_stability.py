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

The approximation needs several rows a bin (Cochran 1954). For m < 10B, a test takes its place that holds for any
numbers of rows: given the N_i rows of both sides in each bin, the partition is a sample of m of all N rows without
replacement, and has m_i of them in each bin with probability Π C(N_i, m_i) / C(N, m). There are C(m + B − 1, B − 1)
possible outcomes, so that some outcome of at most this probability comes up with probability at most their product.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri, gammaln, rel_entr

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.features.one_vs_rest import Label
from ridgestream.pipeline.sums.quantile_sketch import SAMPLE_ROWS, Sketch, round_single

STABLE, LARGE = 0.1, 0.25
"""The usual interpretation: a column is stable below the first, and from a different population above the second."""

RARE = 0.01
"""Categories with a smaller share of the training rows share a bin."""

BY_CHANCE = 1e-4
"""The probability that some column of a partition with the training rows' distribution is reported as shifted."""

_ROWS_A_BIN = 10
"""Rows a bin from which on the χ² approximation is trusted."""

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
    """The value that it exceeds by chance with probability BY_CHANCE, over all columns, if there are enough rows."""
    has_evidence: bool = False
    """Whether it exceeds chance: by the index, or with few rows by the probability of the rows in the bins."""
    importance: float = 1.0
    """The factor of the index, between 0 for a column that the model does not see and 1."""

    @property
    def is_large(self) -> bool:
        """Whether it exceeds chance, and by its importance LARGE."""
        return self.has_evidence and self.psi * self.importance > LARGE

    @property
    def is_stable(self) -> bool:
        """Whether it is below STABLE, or what chance gives."""
        return self.psi <= max(STABLE, self.chance)


@dataclass(frozen=True)
class Shifts:
    """The shifts of several columns."""

    psi: Floats
    """The population stability index of each, shape (columns,)."""
    chance: Floats
    """The value that it exceeds by chance, shape (columns,)."""
    has_evidence: npt.NDArray[np.bool_]
    """Whether each exceeds chance, shape (columns,)."""
    importance: Floats
    """The importance of each, shape (columns,)."""

    def __getitem__(self, column: int) -> Shift:
        """Return the shift of one column."""
        return Shift(*(each[column].item() for each in vars(self).values()))

    def are_large(self) -> npt.NDArray[np.bool_]:
        """Return whether each exceeds chance, and by its importance LARGE, shape (columns,)."""
        return np.asarray(self.has_evidence & (self.psi * self.importance > LARGE))


def compare_shares(training: Shares, now: Shares, n_columns: int) -> Shift:
    """Return the shift of `now` relative to `training`, for one of `n_columns` columns; zero without rows."""
    return compare_columns(stack_shares([training]), stack_shares([now]), n_columns, np.ones(1))[0]


@dataclass(frozen=True)
class StackedShares:
    """The shares of one side's rows in the bins of several columns."""

    bins: Floats
    """Shape (columns, B), with empty bins before the last one in columns with fewer."""
    rows: Floats
    """The effective number of rows in each column, shape (columns,)."""

    def column(self, position: int) -> Shares:
        """Return the shares in one column."""
        return Shares(self.bins[position], float(self.rows[position]))

    def followed_by(self, later: "StackedShares") -> "StackedShares":
        """Return the shares in these columns and in later ones."""
        most = max(self.bins.shape[1], later.bins.shape[1])
        padded = (np.pad(side.bins, ((0, 0), (0, most - side.bins.shape[1]))) for side in (self, later))
        return StackedShares(np.vstack([*padded]), np.concatenate([self.rows, later.rows]))

    def take(self, columns: npt.NDArray[np.int64]) -> "StackedShares":
        """Return the shares in these columns."""
        return StackedShares(self.bins[columns], self.rows[columns])


def stack_shares(columns: Sequence[Shares]) -> StackedShares:
    """Return the shares of several columns as arrays."""
    bins = np.zeros((len(columns), max((len(shares.bins) for shares in columns), default=1)))
    for row, shares in zip(bins, columns, strict=True):
        row[: len(shares.bins) - 1], row[-1] = shares.bins[:-1], shares.bins[-1]
    return StackedShares(bins, np.array([shares.rows for shares in columns], dtype=np.float64))


def pool_shares(parts: Sequence[StackedShares], counted: npt.NDArray[np.bool_]) -> StackedShares:
    """Return the shares of the rows of several partitions; `counted` (partitions, columns) says which count where."""
    rows = np.stack([part.rows for part in parts]) * counted
    total = rows.sum(axis=0)
    bins = np.einsum("pc,pcb->cb", rows / np.maximum(total, 1.0), np.stack([part.bins for part in parts]))
    return StackedShares(bins, total)


def compare_columns(training: StackedShares, now: StackedShares, n_columns: int, importance: Floats) -> Shifts:
    """Return the shift of each column of `now` relative to `training`, which are of `n_columns` columns altogether."""
    filled = (training.bins > 0) | (now.bins > 0)
    count = filled.sum(axis=1)
    present = (training.rows > 0) & (now.rows > 0)
    n, m = (np.where(present, np.minimum(side.rows, SAMPLE_ROWS), 1.0) for side in (training, now))
    p, q = (
        np.where(filled, (size[:, np.newaxis] * side.bins + 0.5) / (size + 0.5 * count)[:, np.newaxis], 0.0)
        for size, side in ((n, training), (m, now))
    )
    psi = (rel_entr(p, q) + rel_entr(q, p)).sum(axis=1)
    several = count > 1
    critical = chdtri(np.where(several, count - 1, 1), BY_CHANCE / n_columns)
    chance = np.where(present & several, critical * (1 / n + 1 / m), 0.0)
    improbable = _is_improbable(training.bins, now.bins, n, m, count, n_columns)
    evidence = present & np.where(m >= _ROWS_A_BIN * count, psi > chance, improbable)
    return Shifts(np.where(present, np.maximum(psi, 0.0), 0.0), chance, evidence, importance)


def _is_improbable(
    training: Floats, now: Floats, n: Floats, m: Floats, count: npt.NDArray[np.integer], n_columns: int
) -> npt.NDArray[np.bool_]:
    """Return whether m rows with the shares `now` (columns, B) are improbable among the n + m rows of both sides."""
    in_partition = m[:, np.newaxis] * now
    together = n[:, np.newaxis] * training + in_partition
    in_bins = _log_binomial(together, in_partition).sum(axis=1)
    outcomes = _log_binomial(m + count - 1, m)
    return np.asarray(_log_binomial(n + m, m) - in_bins > np.log(n_columns / BY_CHANCE) + outcomes)


def _log_binomial(n: Floats, k: Floats) -> Floats:
    """Return the logarithm of C(n, k), also for numbers that are not whole."""
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(np.maximum(n - k, 0) + 1))


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

    def rounded_edges(self) -> Floats:
        """Return the edges for values that are rounded to float32."""
        low = round_single(np.nextafter(self.edges[:1], np.inf))
        return np.concatenate([np.nextafter(low, -np.inf), round_single(self.edges[1:])])

    def count(self, sketch: Sketch, missing: float) -> Shares:
        """Return the shares of a sketch's rows, of which the share `missing` lacks a value."""
        rows = float(sketch.sampled.max(initial=0.0))
        if not rows:
            return Shares(np.zeros(len(self.edges) + 2), 0.0)
        if not sketch.sampled[self.column]:
            return Shares(np.append(np.zeros(len(self.edges) + 1), 1.0), rows)
        present = np.diff(sketch.shares_upto(self.column, self.edges), prepend=0.0, append=1.0)
        return Shares(np.append(present * (1 - missing), missing), rows)


def stack_edges(bins: Sequence[NumericBins], rounded: int) -> Floats:
    """Return the edges of all columns, shape (E, columns), infinite after the last one of a column with fewer.

    Those of the first `rounded` columns are for values that are rounded to float32.
    """
    edges = np.full((max((len(each.edges) for each in bins), default=0), len(bins)), np.inf)
    for position, each in enumerate(bins):
        edges[: len(each.edges), position] = each.rounded_edges() if each.column < rounded else each.edges
    return edges


def count_rows(edges: Floats, values: Floats, weights: Floats | None, rows: float) -> StackedShares:
    """Return the shares of rows between the edges (E, columns), of `rows` effective rows.

    The values (rows, columns) are in the precision of the edges, NaN for missing ones.
    """
    w = np.ones(len(values)) if weights is None else weights
    share = w / max(float(w.sum()), 1e-300)
    upto = np.einsum("r,rec->ce", share, values[:, np.newaxis, :] <= edges)
    missing = (share @ np.isnan(values))[:, np.newaxis]
    present = np.diff(np.column_stack([upto, 1 - missing]), prepend=0.0, axis=1)
    stacked = np.column_stack([present, missing])
    return StackedShares(np.where(stacked > _TOLERANCE, stacked, 0.0), np.full(edges.shape[1], rows))


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
