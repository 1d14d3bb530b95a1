"""How much of the targets each column explains, by itself and with another: sums over bins of values, from one pass."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.metric.split import LEARNED, Split
from ridgestream.pipeline.sums.row_block import RowBlock, choose_rows

EDGES = (-1.15, -0.67, -0.32, 0.0, 0.32, 0.67, 1.15)
"""The edges of the bins of a standardized value: those of a normal one are about alike."""

N_BINS = len(EDGES) + 1

PAIRED_FEATURES = 64
"""With more features, pairs of them are not looked at: their number grows with the square."""

PAIRED_SUMS = 2**22
"""Nor with more sums of pairs, those of each target counted."""

CHANCE = 4.0
"""By how many standard deviations a pair must explain more than chance: the best of two thousand has 3.5 by chance."""

SUMMED_ROWS = 2048
"""Rows whose bins are summed at a time."""


@dataclass(frozen=True)
class BinSums:
    """Sums over rows, by bins of each column and of each pair; a monoid under `merge`, up to rounding."""

    weights: Floats
    """Σw of each bin of a column with each bin of another, shape (n_features, N_BINS, n_others, N_BINS).

    The others are all columns; a single one that has a single bin where pairs are not looked at.
    """
    targets: Floats
    """Σwy of the same, shape (n_targets, n_features, N_BINS, n_others, N_BINS)."""
    totals: Floats
    """Σw, Σw², Σwy² over all targets, and Σwy of each, shape (3 + n_targets,)."""

    @classmethod
    def empty(cls, n_features: int, n_targets: int) -> Self:
        """Return the sums over no row."""
        n_sums = (1 + n_targets) * (n_features * N_BINS) ** 2
        others = (n_features, N_BINS) if n_features <= PAIRED_FEATURES and n_sums <= PAIRED_SUMS else (1, 1)
        shape = (n_features, N_BINS, *others)
        return cls(np.zeros(shape), np.zeros((n_targets, *shape)), np.zeros(3 + n_targets))

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows."""
        return type(self)(self.weights + other.weights, self.targets + other.targets, self.totals + other.totals)

    @property
    def has_pairs(self) -> bool:
        """Whether pairs of columns are looked at."""
        return bool(self.weights.shape[-1] == N_BINS)

    @property
    def shares(self) -> Floats:
        """The share of the targets' variance between each column's bins, shape (n_features,).

        Added is what it explains more together with its best partner than both do by themselves, and one over the
        number of rows, so that no column that varies is lost; one that has a single bin has zero. What as many bins
        explain by chance is subtracted.
        """
        if self.totals[0] <= 0:
            return np.zeros(len(self.weights))
        alone, _, varies = self._explained(self.weights[:, :, 0].sum(axis=-1), self.targets[:, :, :, 0].sum(axis=-1))
        shares = np.where(varies, alone + 1.0 / self._rows, 0.0)
        if not self.has_pairs:
            return np.asarray(shares)
        cells = (len(shares), len(shares), N_BINS * N_BINS)
        weights = self.weights.transpose(0, 2, 1, 3).reshape(cells)
        targets = self.targets.transpose(0, 1, 3, 2, 4).reshape(-1, *cells)
        together, deviation, _ = self._explained(weights, targets)
        gain = together - alone[:, np.newaxis] - alone - CHANCE * deviation
        np.fill_diagonal(gain, 0.0)
        return np.asarray(shares + np.where(shares > 0, np.maximum(gain.max(axis=1), 0.0), 0.0))

    @property
    def _rows(self) -> float:
        """The number of rows, of weights that differ as many as are worth the same."""
        weight, squares = self.totals[:2].tolist()
        return float(weight**2 / squares)

    def _explained(self, weights: Floats, targets: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the shares beyond chance, their standard deviations by chance, and whether there are bins to differ.

        `weights` has the shape (…, n_bins), `targets` (n_targets, …, n_bins).
        """
        weight, _, total = self.totals[:3].tolist()
        about_mean = float(np.sum(self.totals[3:] ** 2)) / weight
        used = weights > 0
        between = np.sum(targets**2 / np.where(used, weights, 1.0), axis=(0, -1)) - about_mean
        degrees = used.sum(axis=-1) - 1
        share = np.clip(between / max(total - about_mean, np.finfo(float).tiny), 0.0, 1.0)
        left = (1.0 - share) / np.maximum(self._rows - degrees - 1.0, 1.0)
        return np.maximum(share - left * degrees, 0.0), left * np.sqrt(2.0 * degrees), degrees > 0


@dataclass(frozen=True)
class BinTask:
    """The rows and the sizes of their sums; the argument of a pass."""

    split: Split
    """The groups of the rows, of which those that judge are left out."""
    n_features: int
    """The number of features."""
    n_targets: int
    """The number of targets."""


@named_pass("metric", "sum_by_bins")
def sum_by_bins(task: BinTask, blocks: Iterable[RowBlock]) -> BinSums:
    """Return the sums over the rows of all blocks that are learned from; O(n_features² · n_targets) a row.

    O(n_features · n_targets) where pairs are not looked at.
    """
    sums = BinSums.empty(task.n_features, task.n_targets)
    with one_blas_thread():
        for group, rows in chain.from_iterable(map(task.split.parts, blocks)):
            if group == LEARNED:
                for start in range(0, len(rows.features), SUMMED_ROWS):
                    _add(choose_rows(rows, np.arange(start, min(start + SUMMED_ROWS, len(rows.features)))), sums)
    return sums


def _add(rows: RowBlock, sums: BinSums) -> None:
    """Add rows to the sums."""
    weights = np.ones(len(rows.features)) if rows.weights is None else rows.weights
    bins = np.searchsorted(EDGES, rows.features, side="right")
    inside = (bins[:, :, np.newaxis] == np.arange(N_BINS)).reshape(len(bins), -1).astype(np.float64)
    others = inside if sums.has_pairs else np.ones((len(bins), 1))
    for values, summed in zip([np.ones(len(bins)), *rows.targets.T], [sums.weights, *sums.targets], strict=True):
        summed[:] += (inside.T @ (others * (weights * values)[:, np.newaxis])).reshape(summed.shape)
    squares = [np.sum(weights), np.sum(weights**2), np.sum(weights @ rows.targets**2)]
    sums.totals[:] += [*squares, *(weights @ rows.targets)]
