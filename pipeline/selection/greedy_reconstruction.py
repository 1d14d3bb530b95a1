"""Greedy reconstruction: each round adds the candidate that lowers the reconstruction error of all rows most.

With E_c the residual of candidate c's kernel function (`residual_products.py`), M = Σ w E Eᵀ/k(x, x) and H the Schur
complement of the candidates' kernel matrix, choosing c lowers the reconstruction error by M_cc/H_cc. Then E_j becomes
E_j − a_j E_c with a = H_·c/H_cc, so M becomes M − abᵀ − baᵀ with b = M_·c − a·M_cc/2, and H becomes H − H_cc·aaᵀ. Later
choices need only their own columns of these.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers


@dataclass(frozen=True)
class Reconstructing:
    """Candidates in the order in which they were chosen."""

    columns: Integers
    """Their indices, shape (n_chosen,)."""
    gains: Floats
    """The decrease of Σ w (relative reconstruction error) by each, shape (n_chosen,)."""
    rounds: Integers
    """The round in which each was chosen, from zero, shape (n_chosen,)."""


def choose_by_reconstruction(
    residual_products: Floats,
    left: Floats,
    lengths: Floats,
    threshold: float,
    rounds: Sequence[Integers],
    per_round: int | None = None,
) -> Reconstructing:
    """Choose in each round, among its candidates `rounds`, the one that lowers the reconstruction error most.

    With `per_round`, only so many of a round count, the first that are not chosen yet; −1 stands for none.
    `residual_products` is M and `left` is H, (n, n); `lengths` has k(c, c). A candidate with H_cc of at most
    `threshold`·k(c, c) is spanned, and skipped. Of equal ones, the first wins. O(n·n_chosen) per round.
    """
    remaining = _Remaining(residual_products, left, len(rounds))
    for number, drawn in enumerate(rounds):
        allowed = drawn if per_round is None else _first_unchosen(drawn, remaining.columns, per_round)
        best = best_candidate(allowed, remaining.explained, remaining.left, lengths, threshold)
        if best is not None:
            remaining.take(best, number)
    n = len(remaining.columns)
    return Reconstructing(
        np.array(remaining.columns, dtype=np.int64), remaining.gains[:n], np.array(remaining.rounds, dtype=np.int64)
    )


def _first_unchosen(drawn: Integers, chosen: Sequence[int], per_round: int) -> Integers:
    first = drawn[~np.isin(drawn, chosen)][:per_round]
    return np.sort(first[first >= 0])


def best_candidate(allowed: Integers, explained: Floats, left: Floats, lengths: Floats, threshold: float) -> int | None:
    """Return the candidate with the largest explained/left among those that are allowed and not spanned, or None."""
    columns = allowed[left[allowed] > threshold * lengths[allowed]]
    if not len(columns):
        return None
    return int(columns[np.argmax(explained[columns] / left[columns])])


class _Remaining:
    """The diagonals of M and H after the choices so far, and the vectors a and b of these."""

    def __init__(self, residual_products: Floats, left: Floats, most: int) -> None:
        self._M, self._H = residual_products, left
        self.explained, self.left = np.diagonal(residual_products).copy(), np.diagonal(left).copy()
        self._a, self._b = np.empty((len(left), most)), np.empty((len(left), most))
        self._pivots, self.gains = np.empty(most), np.empty(most)
        self.columns: list[int] = []
        self.rounds: list[int] = []

    def take(self, best: int, number: int) -> None:
        done, pivot = len(self.columns), float(self.left[best])
        a, b, pivots = self._a[:, :done], self._b[:, :done], self._pivots[:done]
        new_a = (self._H[:, best] - a @ (pivots * a[best])) / pivot
        new_b = self._M[:, best] - a @ b[best] - b @ a[best] - new_a * (self.explained[best] / 2)
        self.gains[done] = self.explained[best] / pivot
        self._a[:, done], self._b[:, done], self._pivots[done] = new_a, new_b, pivot
        self.explained = np.maximum(self.explained - 2 * new_a * new_b, 0.0)
        self.left = self.left - pivot * new_a**2
        self.left[best] = 0.0
        self.columns.append(best)
        self.rounds.append(number)
