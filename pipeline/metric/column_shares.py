"""How much of the targets each column explains by itself: sums over bins of its values, from one pass."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.metric.split import LEARNED, Split
from ridgestream.pipeline.sums.row_block import RowBlock

EDGES = (-1.15, -0.67, -0.32, 0.0, 0.32, 0.67, 1.15)
"""The edges of the bins of a standardized value: those of a normal one are about alike."""

N_BINS = len(EDGES) + 1


@dataclass(frozen=True)
class BinSums:
    """Sums over rows, by bins of each column; a monoid under `merge`, up to rounding."""

    weights: Floats
    """Σw of each bin, shape (n_features, N_BINS)."""
    targets: Floats
    """Σwy of each bin, shape (n_features, N_BINS, n_targets)."""
    totals: Floats
    """Σw, Σw², and Σwy² over all targets, shape (3,)."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows."""
        return type(self)(self.weights + other.weights, self.targets + other.targets, self.totals + other.totals)

    @property
    def shares(self) -> Floats:
        """The share of the targets' variance between each column's bins, shape (n_features,).

        What as many bins explain by chance is subtracted, and one over the number of rows added, so that no column
        that varies is lost; one that has a single bin has zero.
        """
        weight, squares, total = self.totals.tolist()
        if weight <= 0:
            return np.zeros(len(self.weights))
        rows, used = weight**2 / squares, self.weights > 0
        means = self.targets / np.where(used, self.weights, 1.0)[..., np.newaxis]
        about_mean = np.sum(self.targets.sum(axis=1) ** 2, axis=1) / weight
        between = np.sum(self.targets * means, axis=(1, 2)) - about_mean
        degrees = used.sum(axis=1) - 1
        share = np.clip(between / np.maximum(total - about_mean, np.finfo(float).tiny), 0.0, 1.0)
        by_chance = (1.0 - share) * degrees / np.maximum(rows - degrees - 1.0, 1.0)
        return np.asarray(np.where(degrees > 0, np.maximum(share - by_chance, 0.0) + 1.0 / rows, 0.0))


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
    """Return the sums over the rows of all blocks that are learned from; O(n_features · n_targets) a row."""
    shape = (task.n_features, N_BINS, task.n_targets)
    sums = BinSums(np.zeros(shape[:2]), np.zeros(shape), np.zeros(3))
    with one_blas_thread():
        for group, rows in chain.from_iterable(map(task.split.parts, blocks)):
            if group == LEARNED:
                sums = sums.merge(_sums_of(rows))
    return sums


def _sums_of(rows: RowBlock) -> BinSums:
    weights = np.ones(len(rows.features)) if rows.weights is None else rows.weights
    summed = weights[:, np.newaxis] * np.column_stack([np.ones(len(weights)), rows.targets])
    bins = np.searchsorted(EDGES, rows.features, side="right")
    by_bin = np.stack([(bins == each).T.astype(np.float64) @ summed for each in range(N_BINS)], axis=1)
    totals = np.array([np.sum(weights), np.sum(weights**2), np.sum(summed[:, 1:] * rows.targets)])
    return BinSums(by_bin[:, :, 0], by_bin[:, :, 1:], totals)
