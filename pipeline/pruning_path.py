"""Pruning paths: a dictionary shrinks by its vectors of least weight, with no row read again.

With the sums of block statistics, (G + λnK)β = z holds for any part of the basis when the rows and columns of that part
are taken. So a dictionary of n vectors is fitted, those with the smallest |β| are dropped, the rest is fitted anew, and
so on: O(n³) a path for steps of a given share, whatever the number of rows. With several targets, |β| is the norm of a
vector's coefficients. A constant function for a bias comes last and is never dropped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from ridgestream.pipeline.arrays import Floats, Integers
from ridgestream.pipeline.block_statistics import BlockStatistics
from ridgestream.pipeline.errors import InputError
from ridgestream.pipeline.factorization import check_info, cholesky


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
    sums: BlockStatistics, penalty: Floats, regularization: float, sizes: Sequence[int], *, constant: bool
) -> Iterator[PrunedModel]:
    """Yield the model of each size, descending from that of the whole basis, pruned from the one before; O(size³) each.

    `penalty` is K, bordered by zeros where the last function is `constant`; λ is per row. The first in the basis goes
    first where coefficients tie. Raises NumericalBreakdown where a normal matrix is not finite.
    """
    normal = sums.products + (regularization * sums.weight) * penalty
    solver = _SubmatrixSolver(normal)
    kept = np.arange(len(normal))
    model = PrunedModel(kept, sums.rhs, 0.0)
    for place, size in enumerate(sizes):
        if place:
            vectors = len(kept) - constant
            kept = np.concatenate([kept[largest(model.coefficients[:vectors], size)], kept[vectors:]])
        coefficients, jitter = solver.solve(kept, sums.rhs[kept])
        model = PrunedModel(kept, coefficients, jitter)
        yield model


class _SubmatrixSolver:
    """Solves with principal submatrices of a symmetric matrix, in memory that is taken once."""

    def __init__(self, matrix: Floats) -> None:
        self._matrix = matrix
        self._rows, self._square = np.empty(matrix.size), np.empty(matrix.size)

    def solve(self, kept: Integers, rhs: Floats) -> tuple[Floats, float]:
        """Return β with P β = rhs, P the rows and columns `kept` (n,), and the jitter that it took; O(n³/3)."""
        factor, info = lapack.dpotrf(self._gather(kept).T, lower=1, clean=0, overwrite_a=1)
        if info:
            factorized = cholesky(self._gather(kept), "normal matrix P")
            return factorized.solve(rhs), factorized.jitter
        coefficients, info = lapack.dpotrs(factor, rhs, lower=1)
        check_info("dpotrs", info)
        return np.asarray(coefficients), 0.0

    def _gather(self, kept: Integers) -> Floats:
        """Return the rows and columns `kept`, C order, where the last ones were."""
        n, m = len(self._matrix), len(kept)
        rows, square = self._rows[: m * n].reshape(m, n), self._square[: m * m].reshape(m, m)
        np.take(self._matrix, kept, axis=0, out=rows, mode="clip")
        return np.take(rows, kept, axis=1, out=square, mode="clip")


def check_path(share: float, smallest: int, max_basis: int | None) -> None:
    """Raise InputError unless `share` is a share below one, or zero for one by one, and the sizes leave a model."""
    if not 0 <= share < 1:
        raise InputError(f"step must be the share of vectors dropped a step, 0 (one by one) to below 1, it is {share}")
    if smallest < 1:
        raise InputError(f"smallest must be at least 1, it is {smallest}")
    if max_basis is not None and max_basis < smallest:
        raise InputError(f"max_basis = {max_basis} is below smallest = {smallest}, where the path ends")


def largest(coefficients: Floats, size: int) -> Integers:
    """Return the positions, ascending, of the `size` rows of largest norm; of equal ones, the later."""
    order = np.argsort(np.einsum("ij,ij->i", coefficients, coefficients), kind="stable")
    return np.sort(order[len(order) - size :])
