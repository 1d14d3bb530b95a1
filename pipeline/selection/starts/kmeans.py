"""K-means dictionaries: centres of clusters, by Lloyd (1982) from a start by Arthur & Vassilvitskii (2007), k-means++.

The initial centres are drawn from a random sample of rows; then each of a fixed number of passes over all rows moves
each centre to the mean of the rows nearest to it. A centre without nearest rows moves to one of the rows that are
farthest from their centres. Rows count by weight; targets are not used.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.selection.candidate_rounds import take_present
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.basis import plan_kernel_rows
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import RowSet
from ridgestream.pipeline.sums.top_rows import TopRows, TopRowsAccumulator

SAMPLE = 20
"""Rows of the sample per centre."""

FARTHEST = 64
"""The largest number of empty centres that move in one pass."""


@dataclass(frozen=True)
class Clusters:
    """Sums over the rows nearest to each centre; a monoid under `merge`, up to rounding."""

    weights: Floats
    """Σ w, shape (n_centres,)."""
    sums: Floats
    """Σ w x, shape (n_centres, n_features)."""
    inertia: float
    """Σ w ‖x − c‖² to the nearest centre."""
    farthest: TopRows
    """Rows with large w ‖x − c‖²."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows, those of `other` later."""
        return type(self)(
            self.weights + other.weights,
            self.sums + other.sums,
            self.inertia + other.inertia,
            self.farthest.merge(other.farthest),
        )

    def means(self, centres: Floats) -> Floats:
        """Return the new centres, shape (n_centres, n_features)."""
        moved = centres.copy()
        filled = self.weights > 0
        moved[filled] = self.sums[filled] / self.weights[filled, np.newaxis]
        far = self.farthest.places[0][self.farthest.scores[0] > 0]
        empty = np.flatnonzero(~filled)[: len(far)]
        rows = self.farthest.rows
        moved[empty] = rows.features[np.searchsorted(rows.places, far[: len(empty)])]
        return moved


def kmeans_centres(rows: RowSet, n_basis: int, seed: int, passes: int, report: Reporter) -> StartingDictionary:
    """Return at most `n_basis` centres after `passes` passes of O(n_basis·n_features) per row; none is a row.

    There are fewer if the sample has fewer distinct rows. The result depends only on the seed and on the rows in their
    order. Raises InputError if n_basis or passes is below one, or every drawn row has weight zero.
    """
    if n_basis < 1 or passes < 1:
        raise InputError(f"n_basis and passes must be at least 1, they are {n_basis} and {passes}")
    rng = np.random.default_rng(seed)
    centres = _spread(*_draw_sample(rows, n_basis, rng), n_basis, rng)
    for number in range(1, passes + 1):
        clusters = rows.reduce(sum_clusters, centres, events.STEP_KMEANS_PASS.numbered(number=number, passes=passes))
        centres = clusters.means(centres)
        weight = float(clusters.weights.sum())
        report.say(
            events.SELECTION_CENTRES_MOVED,
            passes_left=passes - number,
            mean_squared_distance=clusters.inertia / weight if weight else None,
            empty=int(np.count_nonzero(clusters.weights == 0)),
        )
    _, first = np.unique(centres, axis=0, return_index=True)
    centres = centres[np.sort(first)]
    return StartingDictionary(centres, np.full(len(centres), -1))


@named_pass("ridgestream.pipeline.learners.kmeans_dictionary", "sum_clusters")
def sum_clusters(centres: Floats, blocks: Iterable[RowBlock]) -> Clusters:
    """Return the sums for centres (n_centres, n_features) over the rows of all blocks; BLAS runs on one thread.

    The first of several centres at the same distance counts as the nearest; a row of weight zero is absent.
    """
    weights, sums, inertia = np.zeros(len(centres)), np.zeros_like(centres), 0.0
    board = TopRowsAccumulator(1, FARTHEST, centres.shape[1], 0)
    with one_blas_thread():
        for block in blocks:
            present = np.arange(len(block.features)) if block.weights is None else np.flatnonzero(block.weights)
            for start in range(0, len(present), plan_kernel_rows(len(centres))):
                chosen = present[start : start + plan_kernel_rows(len(centres))]
                part = RowBlock(block.features[chosen], np.empty((len(chosen), 0)), None)
                own = np.ones(len(chosen)) if block.weights is None else block.weights[chosen]
                nearest, distances = _nearest(part.features, centres)
                weights += np.bincount(nearest, own, len(centres))
                for feature, column in enumerate(part.features.T):
                    sums[:, feature] += np.bincount(nearest, own * column, len(centres))
                inertia += float(own @ distances)
                board.add((own * distances)[np.newaxis], block.first + chosen, part)
    return Clusters(weights, sums, inertia, board.top_rows())


def _nearest(features: Floats, centres: Floats) -> tuple[Integers, Floats]:
    """Return the number of the nearest centre of each row, and the squared distance from it, by its differences."""
    scores = features @ centres.T
    scores -= 0.5 * np.einsum("ij,ij->i", centres, centres)
    nearest = np.argmax(scores, axis=1)
    differences = features - centres[nearest]
    return nearest, np.einsum("ij,ij->i", differences, differences)


def _draw_sample(rows: RowSet, n_basis: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return rows of positive weight with their weights, in their order."""
    indices = np.sort(rng.choice(rows.n_rows, min(rows.n_rows, SAMPLE * n_basis), replace=False))
    drawn = take_present(rows, indices)
    if not len(drawn.places):
        raise InputError(
            f"none of the {len(indices)} rows drawn of {rows.n_rows} has a positive weight: give rows that weigh"
        )
    return drawn.features, drawn.weights


def _spread(features: Floats, weights: Floats, n_centres: int, rng: np.random.Generator) -> Floats:
    """Return distinct rows as initial centres, each drawn by weight times squared distance from those before."""
    chosen: list[int] = []
    shares = weights
    distances = np.full(len(features), np.inf)
    while len(chosen) < n_centres and shares.sum() > 0:
        cumulated = np.cumsum(shares)
        drawn = int(np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right"))
        chosen.append(min(drawn, int(np.flatnonzero(shares)[-1])))
        differences = features - features[chosen[-1]]
        distances = np.minimum(distances, np.einsum("ij,ij->i", differences, differences))
        shares = weights * distances
    return features[chosen]
