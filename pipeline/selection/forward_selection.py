"""Forward selection on sums: each step adds the candidate that lowers the regularized cost most.

With P = G + λnK over the candidates and z = Σ w kyᵀ, the cost of the vectors S is Σ w y² − z_SᵀP_SS⁻¹z_S, and adding
candidate j lowers it by Σ_t r_jt²/d_j, with d_j = P_jj − P_jS P_SS⁻¹P_Sj and r_j = z_j − P_jS P_SS⁻¹z_S. This is a
pivoted Cholesky factorization P = LLᵀ whose next pivot has the largest gain: d starts as the diagonal of P, r as z, and
u = L⁻¹z is computed along with it, so that the gain of a pivot is the square of its row of u. It is orthogonal least
squares (Chen, Cowan & Grant 1991) for the regularized cost, on sums; it reads no row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack, solve_triangular

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError, NumericalBreakdown
from ridgestream.pipeline.cholesky import check_info, check_kernel_sums

SAFE_SHARE = 1e-10
"""A candidate whose d_j is at most this share of P_jj is spanned within rounding, and is skipped."""

BLOCK_CHOICES = 64
"""The number of choices after which the Schur complement of P is updated in one operation."""


@dataclass(frozen=True)
class Chosen:
    """Candidates in the order in which they were chosen, with nested models of every size."""

    columns: Integers
    """The indices of their columns of P, those chosen before first, shape (n_chosen,)."""
    factor: Floats
    """L with P = LLᵀ for these columns in this order, lower, zeros above, shape (n_chosen, n_chosen)."""
    half_solution: Floats
    """u = L⁻¹z, shape (n_chosen, n_targets): the first m coefficients alone solve L_mᵀβ = u_m."""
    rounds: Integers
    """The round in which each was chosen, from zero, −1 for those chosen before, shape (n_chosen,)."""

    @property
    def pivots(self) -> Floats:
        """d_j of each when it was chosen, shape (n_chosen,)."""
        return np.asarray(np.diagonal(self.factor) ** 2)

    @property
    def gains(self) -> Floats:
        """The decrease of the cost by each, summed over targets, shape (n_chosen,)."""
        return np.asarray(np.sum(self.half_solution**2, axis=1))


def choose_by_gain(
    normal: Floats,
    rhs: Floats,
    n_wanted: int,
    *,
    n_before: int = 0,
    allowed: Sequence[Integers] | None = None,
    overwrite: bool = False,
) -> Chosen:
    """Choose the candidate with the largest gain in each round, until `n_wanted` are chosen in all or none is left.

    `normal` is P (n, n), symmetric, and `rhs` is z (n, n_targets). The first `n_before` columns were chosen before, in
    their order. `allowed` has the columns of each round's candidates; a round chooses none if all of them are chosen or
    spanned. Without it, every column is a candidate in every round. Of equal gains, the first column wins. `overwrite`
    overwrites P, and needs memory only for L's columns, n·(n_wanted − n_before) numbers.

    O(n²·n_wanted), in blocks of 64 choices, within which only the chosen columns are computed. Raises
    NumericalBreakdown if P is not finite or not positive definite over the columns chosen before, InputError for shapes
    that do not match.
    """
    _check(normal, rhs, n_before)
    with one_blas_thread():
        head, solved, across = _eliminate_chosen(normal, rhs, n_before)
        left = _Left(normal, rhs, across, solved, max(0, n_wanted - n_before), overwrite=overwrite)
        del normal  # with `overwrite`, its memory is free for the result
        left.choose(None if allowed is None else [columns[columns >= n_before] - n_before for columns in allowed])
    return _assemble(head, solved, across, left, n_before)


def _check(normal: Floats, rhs: Floats, n_before: int) -> None:
    n = len(normal)
    if normal.shape != (n, n) or len(rhs) != n or not 0 <= n_before <= n:
        raise InputError(f"P of shape {normal.shape}, z of shape {rhs.shape} and {n_before} chosen before do not fit")
    check_kernel_sums(normal, "normal matrix P")
    check_kernel_sums(rhs, "right side z")


def _eliminate_chosen(normal: Floats, rhs: Floats, n_before: int) -> tuple[Floats, Floats, Floats]:
    """Return L, L⁻¹z of the columns chosen before, and L⁻¹P_SC, their rows of the factor against the others."""
    if not n_before:
        return np.empty((0, 0)), np.empty((0, rhs.shape[1])), np.empty((0, len(normal)))
    head, failed = _lower_factor(normal[:n_before, :n_before])
    if failed:
        raise NumericalBreakdown(
            f"the normal matrix P over the {n_before} vectors chosen so far is not positive definite within rounding; "
            "raise regularization"
        )
    right = np.concatenate([rhs[:n_before], normal[:n_before, n_before:]], axis=1)
    solved = np.asarray(solve_triangular(head, right, lower=True, check_finite=False))
    return head, solved[:, : rhs.shape[1]], solved[:, rhs.shape[1] :]


def _lower_factor(matrix: Floats) -> tuple[Floats, bool]:
    """Return the lower factor, and whether the factorization failed."""
    factor, info = lapack.dpotrf(matrix, lower=1, clean=1)
    check_info("dpotrf", min(info, 0))
    return np.asarray(factor), info > 0


class _Left:
    """The remaining candidates, with the Schur complement of P, its diagonal d, and r."""

    def __init__(
        self, normal: Floats, rhs: Floats, across: Floats, solved: Floats, n_wanted: int, *, overwrite: bool
    ) -> None:
        n_before = len(across)
        own = normal[n_before:, n_before:]
        scale = np.diagonal(own).copy()
        self._products: Floats = own.T if overwrite and own.flags.c_contiguous else np.array(own, order="F")
        if across.size:
            self._products = blas.dsyrk(-1.0, across.T, beta=1.0, c=self._products, lower=1, overwrite_c=1)
        self._rest: Floats = rhs[n_before:] - across.T @ solved
        self._diagonal: Floats = np.diagonal(self._products).copy()
        self._least = SAFE_SHARE * scale
        self._open = np.ones(len(own), dtype=bool)
        self._n_wanted = min(n_wanted, len(own))
        self.factor: Floats = np.empty((len(own), self._n_wanted), order="F")
        self.half_solution: Floats = np.empty((self._n_wanted, rhs.shape[1]))
        self.columns: list[int] = []
        self.rounds: list[int] = []
        self._up_to_date = 0

    def choose(self, allowed: Sequence[Integers] | None) -> None:
        """Choose at most one per round, until enough are chosen or no round is left."""
        number = 0
        while len(self.columns) < self._n_wanted and (allowed is None or number < len(allowed)):
            pivot = self._find(None if allowed is None else allowed[number])
            if pivot is None and allowed is None:
                return
            if pivot is not None:
                self._take(pivot, number)
            number += 1

    def chosen_rows(self, out: Floats) -> None:
        """Copy the rows of the factor that were chosen, (n_chosen, n_chosen); nothing can be chosen any more."""
        self._products = np.empty((0, 0))
        for row, column in enumerate(self.columns):
            out[row] = self.factor[column, : len(self.columns)]

    def _find(self, allowed: Integers | None) -> int | None:
        """Return the allowed column with the largest gain, None if all are chosen or spanned."""
        columns = np.flatnonzero(self._open) if allowed is None else allowed[self._open[allowed]]
        columns = columns[self._diagonal[columns] > self._least[columns]]
        if not len(columns):
            return None
        gains = np.sum(self._rest[columns] ** 2, axis=1) / self._diagonal[columns]
        return int(columns[np.argmax(gains)])

    def _take(self, pivot: int, number: int) -> None:
        """Compute this pivot's column of L, and update d and r."""
        done = len(self.columns)
        if done - self._up_to_date == BLOCK_CHOICES:
            self._catch_up()
        recent = self.factor[:, self._up_to_date : done]
        root = float(np.sqrt(self._diagonal[pivot]))
        column = np.concatenate([self._products[pivot, :pivot], self._products[pivot:, pivot]])
        column -= recent @ recent[pivot]
        column /= root
        column[pivot] = root
        column[self.columns] = 0.0
        self.factor[:, done] = column
        self.half_solution[done] = self._rest[pivot] / root
        self._rest -= np.outer(column, self.half_solution[done])
        self._diagonal -= column**2
        self._open[pivot] = False
        self.columns.append(pivot)
        self.rounds.append(number)

    def _catch_up(self) -> None:
        """Subtract the last block of choices from the Schur complement, as one update of that rank."""
        block = self.factor[:, self._up_to_date : len(self.columns)]
        self._products = blas.dsyrk(-1.0, block, beta=1.0, c=self._products, lower=1, overwrite_c=1)
        self._up_to_date = len(self.columns)


def _assemble(head: Floats, solved: Floats, across: Floats, left: _Left, n_before: int) -> Chosen:
    """Join the columns chosen before and those chosen now."""
    new, n_new = np.array(left.columns, dtype=np.int64), len(left.columns)
    factor = np.zeros((n_before + n_new, n_before + n_new))
    factor[:n_before, :n_before] = head
    factor[n_before:, :n_before] = across[:, new].T
    left.chosen_rows(factor[n_before:, n_before:])
    columns = np.concatenate([np.arange(n_before), n_before + new])
    half_solution = np.concatenate([solved, left.half_solution[:n_new]])
    return Chosen(columns, factor, half_solution, np.array([-1] * n_before + left.rounds, dtype=np.int64))
