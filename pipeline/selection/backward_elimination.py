"""Pruning paths: a dictionary shrinks by its vectors of least score, with no row read again.

With the sums of block statistics, Pβ = z, P = G + λnK, holds for any part of the basis when the rows and columns of
that part are taken. So a dictionary of n vectors is fitted, those of least score are dropped, the rest is fitted again,
and so on: O(n³) a path for steps of a given share, whatever the number of rows. A constant function for a bias comes
last in the basis and is never dropped.

A vector's score is |β|, or what the regularized cost rises by when it goes and the rest is fitted again, β²/(P⁻¹)ᵢᵢ.
With several targets, β² is summed over them.

The order of the vectors by score hardly changes from one step to the next. So P is factorized with the least last, and
where these go, the factor's rows before the first one to go stand as they are and only those after it are recomputed,
from themselves: with L₂₂ what is left of their rows, by the Cholesky factor of L₂₂L₂₂ᵀ. Where that is most of them, P
is factorized again, in the current order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.cholesky import check_info, cholesky
from ridgestream.pipeline.sums.normal_equations import BlockStatistics

RENEWED_SHARE = 0.5
"""Where more of the factor's rows than this share would be recomputed, all of them are."""


Score = Literal["coefficient", "cost"]
"""What a vector is kept for: the size of its coefficients, or what the regularized cost would rise by without it."""


@dataclass(frozen=True)
class PrunedModel:
    """One model of a path."""

    kept: Integers
    """The functions that it has, ascending, the constant one last, shape (n_kept,)."""
    coefficients: Floats
    """β of each, shape (n_kept, n_targets)."""
    jitter: float
    """What was added to the diagonal of its normal matrix, zero if nothing was needed."""


def plan_sizes(largest: int, share: float, smallest: int = 1, through: int | None = None) -> list[int]:
    """Return the sizes of a path, descending: each drops ⌊share · size⌋ vectors, one at least, down to `smallest`.

    A size `through` that the steps would jump over is gone through too. A dictionary that is no larger than `smallest`
    is left as it is.
    """
    sizes = [largest]
    while sizes[-1] > smallest:
        following = max(sizes[-1] - max(1, int(share * sizes[-1])), smallest)
        if through is not None and following < through < sizes[-1]:
            following = through
        sizes.append(following)
    return sizes


def walk(
    sums: BlockStatistics,
    penalty: Floats,
    regularization: float,
    sizes: Sequence[int],
    *,
    constant: bool,
    score: Score = "coefficient",
) -> Iterator[PrunedModel]:
    """Yield the model of each size, descending from that of the whole basis, pruned from the one before.

    `penalty` is K, bordered by zeros where the last function is `constant`; λ is per row. The first in the basis goes
    first where scores tie. O(size³) each at most; by coefficients, O(size²) where the order of the vectors stays.
    Raises NumericalBreakdown where a normal matrix is not finite.
    """
    normal = sums.products + (regularization * sums.weight) * penalty
    fixed = np.arange(len(normal) - constant, len(normal))
    factor = _ShrinkingFactor(normal, np.concatenate([fixed, np.arange(len(normal) - constant)]))
    coefficients = factor.solve(sums.rhs)
    for index, size in enumerate(sizes):
        if index:
            vectors = factor.kept[: len(factor.kept) - constant]
            scores = squared_norms(coefficients) / (factor.inverse_diagonal() if score == "cost" else 1.0)
            factor.keep(np.concatenate([fixed, vectors[rank(scores[: len(vectors)])[:size]]]))
            coefficients = factor.solve(sums.rhs)
        yield PrunedModel(factor.kept, coefficients, factor.jitter)


class _ShrinkingFactor:
    """L with LLᵀ = P over the functions that are left, in an order of its own; its memory is taken once."""

    def __init__(self, matrix: Floats, order: Integers) -> None:
        """Factorize the symmetric `matrix` (n, n), its functions in this order."""
        self._matrix, self._rows = matrix, np.empty(matrix.size)
        self._used, self._spare = np.empty(matrix.size), np.empty(matrix.size)
        self._factorize(order)

    @property
    def kept(self) -> Integers:
        """The functions left, ascending."""
        return np.sort(self._order)

    def solve(self, rhs: Floats) -> Floats:
        """Return β with P β = z for the functions left, ascending, from z of all (n, n_targets)."""
        solution, info = lapack.dpotrs(self._lower, rhs[self._order], lower=1)
        check_info("dpotrs", info)
        return np.asarray(solution[np.argsort(self._order)])

    def inverse_diagonal(self) -> Floats:
        """Return the diagonal of P⁻¹ for the functions left, ascending; O(n³/3)."""
        inverse, info = lapack.dtrtri(self._lower, lower=1)
        check_info("dtrtri", info)
        return np.asarray(np.einsum("ij,ij->j", inverse, inverse)[np.argsort(self._order)])

    def keep(self, wanted: Integers) -> None:
        """Drop all functions but these, which are given from the one likely to stay longest to the next to go."""
        staying = np.isin(self._order, wanted)
        first = int(np.argmin(staying))
        renewed = len(wanted) - first
        if self.jitter or renewed > RENEWED_SHARE * len(wanted) or not self._cut(staying, first):
            self._factorize(wanted)

    def _factorize(self, order: Integers) -> None:
        n, m = len(self._matrix), len(order)
        rows, square = self._rows[: m * n].reshape(m, n), self._used[: m * m].reshape(m, m)
        np.take(self._matrix, order, axis=0, out=rows, mode="clip")
        np.take(rows, order, axis=1, out=square, mode="clip")
        self._order, self.jitter = order, 0.0
        self._lower, info = lapack.dpotrf(square.T, lower=1, clean=1, overwrite_a=1)
        if info:
            factorized = cholesky(self._matrix[np.ix_(order, order)], "normal matrix P")
            self._lower, self.jitter = np.asfortranarray(np.tril(factorized.factor)), factorized.jitter

    def _cut(self, staying: npt.NDArray[np.bool_], first: int) -> bool:
        """Take the rows that do not stay out of L, the first of them number `first`; return whether that succeeded."""
        after = first + np.flatnonzero(staying[first:])
        m = first + len(after)
        lower = self._spare[: m * m].reshape((m, m), order="F")
        lower[:first, :first] = self._lower[:first, :first]
        lower[:first, first:] = 0.0
        if len(after):
            lower[first:, :first] = self._lower[after, :first]
            products = blas.dsyrk(1.0, self._lower[after, first:], lower=1)
            lower[first:, first:], info = lapack.dpotrf(products, lower=1, clean=1, overwrite_a=1)
            if info:
                return False
        self._order, self._lower = self._order[staying], lower
        self._used, self._spare = self._spare, self._used
        return True


def check_path(share: float, smallest: int, max_basis: int | None) -> None:
    """Raise InputError unless `share` is a share below one, or zero for one by one, and the sizes leave a model."""
    if not 0 <= share < 1:
        raise InputError(f"step must be the share of vectors dropped a step, 0 (one by one) to below 1, it is {share}")
    if smallest < 1:
        raise InputError(f"smallest must be at least 1, it is {smallest}")
    if max_basis is not None and max_basis < smallest:
        raise InputError(f"max_basis = {max_basis} is below smallest = {smallest}, where the path ends")


def squared_norms(coefficients: Floats) -> Floats:
    """Return that of each row."""
    return np.asarray(np.einsum("ij,ij->i", coefficients, coefficients))


def rank(scores: Floats) -> Integers:
    """Return positions from the largest score to the smallest; of equal ones, the later first."""
    return np.argsort(scores, kind="stable")[::-1]
