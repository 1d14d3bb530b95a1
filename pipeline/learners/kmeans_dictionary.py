"""A dictionary of k-means centres (Lloyd 1982), begun by k-means++ (Arthur & Vassilvitskii 2007) on rows drawn.

The centres of a sample are moved by a fixed number of passes over all rows, each to the weighted mean of the rows that
are nearest to it; a centre without rows stays. Centres are no rows, so no place is told of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_matrix

from ridgestream.pipeline.arrays import Floats
from ridgestream.pipeline.block_statistics import RowBlock, plan_kernel_rows
from ridgestream.pipeline.errors import InputError
from ridgestream.pipeline.row_sets import RowSet
from ridgestream.pipeline.starting_dictionary import StartingDictionary
from ridgestream.pipeline.threads import one_blas_thread

SAMPLE = 20
"""Rows drawn for k-means++, as a multiple of the centres."""

PASSES = 3
"""Passes over all rows, after as many rounds on the sample as it takes."""

SAMPLE_ROUNDS = 10
"""Rounds of Lloyd's algorithm on the sample."""


@dataclass(frozen=True)
class CentreSums:
    """Sums over the rows that are nearest to each centre."""

    weights: Floats
    """Of their weights, shape (n_centres,)."""
    features: Floats
    """Of their features times weights, shape (n_centres, n_features)."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows."""
        return type(self)(self.weights + other.weights, self.features + other.features)


def find_centres(rows: RowSet, n_centres: int, seed: int) -> StartingDictionary:
    """Return the centres, as many as there are different ones; PASSES passes of O(n_centres·n_features) a row.

    Raises InputError if all rows weigh nothing.
    """
    centres = _begin(rows, n_centres, seed)
    for number in range(PASSES):
        centres = _moved(centres, rows.reduce(sum_nearest, centres, f"k-means, pass {number + 1} of {PASSES}"))
    centres = np.unique(centres, axis=0)
    return StartingDictionary(centres, np.full(len(centres), -1))


def sum_nearest(centres: Floats, blocks: Iterable[RowBlock]) -> CentreSums:
    """Return the sums of the rows nearest to each centre (n_centres, n_features); the first centre wins a tie."""
    n_centres, n_features = centres.shape
    weights, sums, norms = np.zeros(n_centres), np.zeros((n_centres, n_features)), np.sum(centres**2, axis=1)
    step = plan_kernel_rows(n_centres)
    for block in blocks:
        own = np.ones(len(block.features)) if block.weights is None else block.weights
        for start in range(0, len(own), step):
            part, weight = block.features[start : start + step], own[start : start + step]
            with one_blas_thread():
                nearest = np.argmin(norms - 2 * (part @ centres.T), axis=1)
            weights += np.bincount(nearest, weight, n_centres)
            sums += np.asarray(csr_matrix((weight, (nearest, np.arange(len(part)))), (n_centres, len(part))) @ part)
    return CentreSums(weights, sums)


def _begin(rows: RowSet, n_centres: int, seed: int) -> Floats:
    """Return the centres of rows drawn at random."""
    from scipy.cluster.vq import kmeans2

    rng = np.random.default_rng(seed)
    block = rows.take(rng.choice(rows.n_rows, min(rows.n_rows, SAMPLE * n_centres), replace=False))
    sample = block.features if block.weights is None else block.features[block.weights > 0]
    sample = np.unique(sample, axis=0)
    if not len(sample):
        raise InputError("there is no row of positive weight to find centres of")
    if len(sample) <= n_centres:
        return sample
    with one_blas_thread():
        centres, _ = kmeans2(sample, n_centres, SAMPLE_ROUNDS, minit="++", missing="warn", rng=rng)
    return np.asarray(centres)


def _moved(centres: Floats, sums: CentreSums) -> Floats:
    near = sums.weights > 0
    moved = centres.copy()
    moved[near] = sums.features[near] / sums.weights[near, np.newaxis]
    return moved
