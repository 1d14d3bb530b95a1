"""Pruning paths: vectors of the smallest score are removed from a dictionary step by step, without reading rows again.

The normal equations Pβ = z, P = G + λnK, of a part of the basis consist of the corresponding rows and columns. So a
dictionary of n vectors is fitted, the vectors of smallest score are removed, the others are fitted again, and so on:
O(n³) per path if each step removes a share of the vectors, for any number of rows. A constant function for a bias comes
last in the basis and is never removed.

A vector's score is |β|, or the increase of the regularized cost when it is removed and the others are fitted again,
β²/(P⁻¹)ᵢᵢ. With several targets, β² is summed over them.

The order of the vectors by score hardly changes from one step to the next. So P is factorized with the vectors of
smallest score last. Removing vectors leaves the factor's rows before the first of them unchanged; the remaining rows
after it, L₂₂, are replaced by the Cholesky factor of L₂₂L₂₂ᵀ. If these are most of the rows, P is factorized again, in
the current order.
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
"""If more than this share of the factor's rows would be recomputed, all of them are."""


Score = Literal["coefficient", "cost"]
"""The score of a vector: the norm of its coefficients, or the increase of the regularized cost without it."""


@dataclass(frozen=True)
class PrunedModel:
    """One model of a path."""

    kept: Integers
    """The indices of its functions, ascending, the constant one last, shape (n_kept,)."""
    coefficients: Floats
    """β of each, shape (n_kept, n_targets)."""
    jitter: float
    """The amount added to the diagonal of its normal matrix, zero if none was needed."""


def plan_sizes(largest: int, share: float, smallest: int = 1, through: int | None = None) -> list[int]:
    """Return the sizes of a path, descending: each step removes ⌊share · size⌋ vectors, at least one, to `smallest`.

    The size `through` is always included. A dictionary of at most `smallest` vectors is not pruned.
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
    """Yield the model of each size, descending from that of the whole basis, each pruned from the one before.

    `penalty` is K, bordered by zeros if the last function is `constant`; λ is per row. Of equal scores, the first in
    the basis is removed first. At most O(size³) each; by coefficients, O(size²) if the order of the vectors does not
    change. Raises NumericalBreakdown if a normal matrix is not finite.
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
    """L with LLᵀ = P over the remaining functions, in its own order; memory is allocated once."""

    def __init__(self, matrix: Floats, order: Integers) -> None:
        """Factorize the symmetric `matrix` (n, n), its functions in this order."""
        self._matrix, self._rows = matrix, np.empty(matrix.size)
        self._used, self._spare = np.empty(matrix.size), np.empty(matrix.size)
        self._factorize(order)

    @property
    def kept(self) -> Integers:
        """The remaining functions, ascending."""
        return np.sort(self._order)

    def solve(self, rhs: Floats) -> Floats:
        """Return β with P β = z for the remaining functions, ascending, from z of all functions (n, n_targets)."""
        solution, info = lapack.dpotrs(self._lower, rhs[self._order], lower=1)
        check_info("dpotrs", info)
        return np.asarray(solution[np.argsort(self._order)])

    def inverse_diagonal(self) -> Floats:
        """Return the diagonal of P⁻¹ for the remaining functions, ascending; O(n³/3)."""
        inverse, info = lapack.dtrtri(self._lower, lower=1)
        check_info("dtrtri", info)
        return np.asarray(np.einsum("ij,ij->j", inverse, inverse)[np.argsort(self._order)])

    def keep(self, wanted: Integers) -> None:
        """Remove all functions but `wanted`, which are ordered from the last to be removed to the next one."""
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
        """Remove the rows of L that do not stay, from index `first` on; return whether the rest could be factorized."""
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
    """Raise InputError unless `share` is at least zero and below one, and `max_basis` is at least `smallest`."""
    if not 0 <= share < 1:
        raise InputError(f"step must be the share of vectors dropped a step, 0 (one by one) to below 1, it is {share}")
    if smallest < 1:
        raise InputError(f"smallest must be at least 1, it is {smallest}")
    if max_basis is not None and max_basis < smallest:
        raise InputError(f"max_basis = {max_basis} is below smallest = {smallest}, where the path ends")


def squared_norms(coefficients: Floats) -> Floats:
    """Return the squared norm of each row."""
    return np.asarray(np.einsum("ij,ij->i", coefficients, coefficients))


def rank(scores: Floats) -> Integers:
    """Return the indices by descending score; of equal scores, the later first."""
    return np.argsort(scores, kind="stable")[::-1]
