"""Sums over transitions, from which least squares temporal differences are computed for a fixed set of basis functions.

A transition is a row x, the reward r on leaving it, the row x′ after it, and whether an episode ended in between, after
which there is no further reward: c = 0 then, else c = 1. With k the values of the basis functions, γ the discount and
w the transition's weight, the sums are

    A = Σ w k(x)(k(x) − γc k(x′))ᵀ, which is not symmetric,  b = Σ w k(x) rᵀ,  n = Σ w,

and the value function V(x) = k(x)ᵀβ solves (A + λnK)β = b, with K the kernel matrix of the basis vectors (Bradtke &
Barto 1996, "Linear least-squares algorithms for temporal difference learning"; Jung & Polani 2006 for the
dictionary). Sums over disjoint transitions add up, so they can be formed anywhere, and merged.

As rows of a row set, transitions have the features (x, x′, c), 2·n_features + 1 numbers, and their rewards as targets.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.linalg import lapack

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError, NumericalBreakdown
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.cholesky import JITTERS, check_kernel_sums
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_block import RowBlock, drop_absent

_LEAST_RECIPROCAL = float(np.finfo(np.float64).eps)
"""A matrix whose reciprocal condition number is not above this is singular within rounding."""


@dataclass(frozen=True)
class TransitionStatistics:
    """Sums over transitions; a commutative monoid under `merge`, up to rounding."""

    products: Floats
    """A = Σ w k(x)(k(x) − γc k(x′))ᵀ, shape (n_basis, n_basis)."""
    rhs: Floats
    """b = Σ w k(x) rᵀ, shape (n_basis, n_rewards)."""
    weight: float
    """n = Σ w."""
    rows: int
    """The number of transitions, those of weight zero included."""
    ended: float = 0.0
    """The weight of those after which an episode ended."""

    @classmethod
    def empty(cls, n_basis: int, n_rewards: int) -> Self:
        """Return the sums over no transition."""
        return cls(np.zeros((n_basis, n_basis)), np.zeros((n_basis, n_rewards)), 0.0, 0)

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of transitions; raises InputError if their shapes differ; O(n_basis²)."""
        if self.rhs.shape != other.rhs.shape:
            raise InputError(f"sums of shapes {self.rhs.shape} and {other.rhs.shape} are not of one basis and rewards")
        return type(self)(
            self.products + other.products,
            self.rhs + other.rhs,
            self.weight + other.weight,
            self.rows + other.rows,
            self.ended + other.ended,
        )

    def project(self, combinations: Floats) -> Self:
        """Return the sums of basis functions that are combinations (n_new, n_basis) of these."""
        products = combinations @ self.products @ combinations.T
        return replace(self, products=products, rhs=combinations @ self.rhs)

    def solve(self, penalty: Floats, regularization: float) -> Floats:
        """Return β = (A + λnK)⁻¹b, shape (n_basis, n_rewards), with K as `penalty` and λ per row; O(n_basis³).

        Raises NumericalBreakdown if it is singular within rounding, with 10⁻¹⁰ of its largest entry on the diagonal.
        """
        if not self.rhs.size or not self.weight:
            return np.zeros_like(self.rhs)
        matrix = self.products + regularization * self.weight * penalty
        check_kernel_sums(matrix, "matrix A + λnK of the value function")
        largest = float(np.abs(np.diagonal(matrix)).max())
        for relative in JITTERS:
            solution = _solve_safely(matrix + relative * largest * np.eye(len(matrix)), self.rhs)
            if solution is not None:
                return solution
        raise NumericalBreakdown(
            f"the matrix A + λnK ({len(matrix)} × {len(matrix)}) of the value function is singular within rounding, "
            f"even with {JITTERS[-1]:g} of its largest entry added to the diagonal; raise regularization, or lower "
            "discount"
        )


def _solve_safely(matrix: Floats, right: Floats) -> Floats | None:
    """Return the solution of a square system by LU factors, None if the matrix is singular within rounding."""
    norm = float(np.abs(matrix).sum(axis=0).max())
    factors, pivots, info = lapack.dgetrf(matrix)
    reciprocal = lapack.dgecon(factors, norm)[0] if info == 0 else 0.0
    if not reciprocal > _LEAST_RECIPROCAL:
        return None
    return np.asarray(lapack.dgetrs(factors, pivots, right)[0])


@dataclass(frozen=True)
class TransitionSumming:
    """The sums to form; the argument of a pass."""

    basis: Basis
    """The basis functions."""
    discount: float
    """γ."""
    n_rewards: int = 1
    """The number of rewards, each with a value function."""


@named_pass("ridgestream.pipeline.sums.temporal_differences", "sum_transitions")
def sum_transitions(summing: TransitionSumming, blocks: Iterable[RowBlock]) -> TransitionStatistics:
    """Return the sums over the transitions of all blocks, added in order; O(n_basis·(n_basis + n_features)) per row.

    Transitions of weight zero are skipped. Memory: one block, kernel values of `basis.kernel_rows` rows, and the sums;
    BLAS runs on one thread.
    """
    sums = TransitionStatistics.empty(summing.basis.n_functions, summing.n_rewards)
    with one_blas_thread():
        for block in blocks:
            present, step = drop_absent(block), summing.basis.kernel_rows
            for start in range(0, len(present.features), step):
                sums = sums.merge(_sum_part(summing, present, slice(start, start + step)))
            sums = replace(sums, rows=sums.rows + len(block.features))
    return sums


def _sum_part(summing: TransitionSumming, block: RowBlock, part: slice) -> TransitionStatistics:
    """Return the sums over some transitions of a block, not counted."""
    n_features = block.features.shape[1] // 2
    rows = block.features[part]
    values, ahead = (summing.basis.values(rows[:, :n_features]), summing.basis.values(rows[:, n_features:-1]))
    ahead *= -summing.discount * rows[:, -1:]
    ahead += values
    weights = np.ones(len(rows)) if block.weights is None else block.weights[part]
    values *= weights[:, np.newaxis]
    ended = float(weights @ (1.0 - rows[:, -1]))
    return TransitionStatistics(values.T @ ahead, values.T @ block.targets[part], float(weights.sum()), 0, ended)
