"""Probabilities of classes from scores: Venn-Abers prediction on kept-out scores, each class against the rest.

A class's scores are sorted into bins of equal weight. For each bin, one more row of the class, and one more that is not
of it, are added in turn, and the isotonic regression of the bins' shares gives p₁ and p₀ there (Vovk, Petej & Fedorova
2015, "Large-scale probabilistic predictors with and without guarantees of validity"). Their merger p₁/(1 − p₀ + p₁)
ascends with the score, is never 0 or 1, and falls back to the class's share where rows are few. Between bins it is
interpolated. With more than two classes, the probabilities are divided by their sum.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers

N_BINS = 64
"""The number of bins of a class's scores."""


@dataclass(frozen=True)
class Probabilities:
    """The probability of each class as a function of its score; of two classes, of the second."""

    scores: Floats
    """The mean score of each bin, ascending, shape (n_outputs, N_BINS)."""
    values: Floats
    """The probability there, ascending, shape (n_outputs, N_BINS)."""

    @classmethod
    def fit(cls, outputs: Floats, truth: Floats, weights: Floats) -> Self:
        """Fit them to rows that were not learned when they were predicted; O(rows log rows + N_BINS²).

        `outputs` (rows, n_outputs) are a learner's, `truth` has 1 where the row is of the output's class, and else −1;
        at least one weight (rows,) is above zero.
        """
        pairs = zip(outputs.T, truth.T > 0, strict=True)
        curves = [_curve(scores, is_class, weights) for scores, is_class in pairs]
        return cls(*(np.stack(part) for part in zip(*curves, strict=True)))

    def of(self, outputs: Floats) -> Floats:
        """Return the probability of each class, shape (rows, n_classes), from outputs (rows, n_outputs)."""
        columns = [np.interp(o, *curve) for o, *curve in zip(outputs.T, self.scores, self.values, strict=True)]
        if len(columns) == 1:
            return np.column_stack([1 - columns[0], columns[0]])
        shares = np.column_stack(columns)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _curve(scores: Floats, is_class: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], weights: Floats) -> list[Floats]:
    """Return the bins' mean scores and probabilities, each of shape (N_BINS,); the last bin is repeated to fill it."""
    order = np.argsort(scores, kind="stable")
    order = order[weights[order] > 0]
    w, ascending = weights[order], scores[order]
    bins = _bins_of(ascending, w)
    total, hits = (np.bincount(bins, part).astype(np.float64) for part in (w, w * is_class[order]))
    means = np.maximum.accumulate(np.bincount(bins, w * ascending) / total)
    values = _merged(total, hits, float(w.max()))
    fill = N_BINS - len(values)
    return [np.pad(means, (0, fill), "edge"), np.pad(np.maximum.accumulate(values), (0, fill), "edge")]


def _bins_of(ascending: Floats, weights: Floats) -> Integers:
    """Return the bin of each row, from 0 on without gaps; equal scores share one."""
    middle = np.cumsum(weights) - weights / 2
    firsts = np.searchsorted(ascending, ascending, side="left")
    numbers = np.minimum((middle / weights.sum() * N_BINS).astype(np.int64), N_BINS - 1)[firsts]
    return np.asarray(np.unique(numbers, return_inverse=True)[1])


def _merged(total: Floats, hits: Floats, weight: float) -> Floats:
    """Return the Venn-Abers probability of each bin, for a further row of this weight: (n_bins,); O(n_bins²)."""
    low, high = (_isotonic_with_row(total, hits, weight, share) for share in (0.0, weight))
    return high / (1 - low + high)


def _isotonic_with_row(total: Floats, hits: Floats, weight: float, more_hits: float) -> Floats:
    """Return for each bin the isotonic regression there if that bin had one more row of this weight: (n_bins,).

    Isotonic regression is, at b, the largest over i ≤ b of the least over j ≥ b of the share in the bins i to j. All of
    these runs have the further row.
    """
    first, last = np.indices((len(total), len(total)))
    of_run = first <= last
    run_weight, run_hits = (
        np.where(of_run, np.cumsum(part)[last] - np.cumsum(part)[first] + part[first], 0.0) for part in (total, hits)
    )
    shares = (run_hits + more_hits) / (run_weight + weight)
    least = np.minimum.accumulate(shares[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(np.where(of_run, least, -np.inf).max(axis=0))
