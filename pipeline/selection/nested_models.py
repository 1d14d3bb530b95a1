"""Nested models: from one Cholesky factor, the models of the first m functions of a basis for every m, with errors.

With P = G + λnK = LLᵀ and u = L⁻¹z, the coefficients of the first m functions solve L_mᵀβ = u_m, for L⁻¹ of the leading
part is the leading part of L⁻¹. On the sums of any rows, those of a fold left out say, G~ = L⁻¹G_f L⁻ᵀ and z~ = L⁻¹z_f
give the squared error of every size at once, yy − 2u_mᵀz~_m + u_mᵀG~_mm u_m, as cumulative sums; the effective number
of parameters of every size, tr(P_m⁻¹G_m), is a cumulative sum of the diagonal of L⁻¹GL⁻ᵀ.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import lapack, solve_triangular

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.cholesky import check_info
from ridgestream.pipeline.sums.normal_equations import BlockStatistics


@dataclass(frozen=True)
class NestedModels:
    """The models of the first m functions of a basis, for every m."""

    factor: Floats
    """L with P = LLᵀ, lower, zeros above, shape (n, n)."""
    half_solution: Floats
    """u = L⁻¹z, shape (n, n_targets)."""

    @classmethod
    def of(cls, sums: BlockStatistics, penalty: Floats, regularization: float) -> Self:
        """Return the models fitted to the rows of `sums`, with K (n, n) as `penalty` and λ per row; O(n³).

        Raises NumericalBreakdown if P is not positive definite within rounding.
        """
        factor = np.tril(sums.factorize(penalty, regularization).factor)
        return cls(factor, _solve_lower(factor, sums.rhs))

    def __len__(self) -> int:
        """Return the largest size, n."""
        return len(self.factor)

    def coefficients(self, size: int) -> Floats:
        """Return β of the first `size` functions, shape (size, n_targets); O(size²)."""
        if not size:
            return np.empty((0, self.half_solution.shape[1]))
        half = self.half_solution[:size]
        solution = solve_triangular(self.factor[:size, :size], half, lower=True, trans="T", check_finite=False)
        return np.asarray(solution)

    def squared_errors(self, sums: BlockStatistics, *, overwrite: bool = False) -> Floats:
        """Return Σ w (y − f(x))² of every size on the rows of `sums`, at least zero, shape (n + 1, n_targets).

        The sums are of the same basis, over any rows; entry m is for the first m functions. O(n³) in BLAS. `overwrite`
        overwrites their products, and needs no further memory.
        """
        return self._errors(sums, self._rotated(sums.products, overwrite=overwrite))

    def freedoms(self, sums: BlockStatistics) -> Floats:
        """Return tr(P_m⁻¹G_m) of every size, G the products of the rows fitted to, shape (n + 1,); O(n³) in BLAS."""
        return _from_zero(np.diagonal(self._rotated(sums.products)))

    def gcv(self, sums: BlockStatistics, *, overwrite: bool = False) -> Floats:
        """Return generalized cross-validation of every size, for the rows fitted to, shape (n + 1,); O(n³) in BLAS.

        The mean squared error, summed over targets, over (1 − tr(P_m⁻¹G_m)/n)² with n = Σ w; infinite where there are
        as many parameters as rows. `overwrite` is that of `squared_errors`.
        """
        rotated = self._rotated(sums.products, overwrite=overwrite)
        freedoms = _from_zero(np.diagonal(rotated))
        return gcv_of(self._errors(sums, rotated), freedoms, sums.weight)

    def after(self, n_before: int, sums: BlockStatistics) -> tuple[Floats, Floats]:
        """Return the squared errors of the sizes after `n_before`, and the increase of tr(P_m⁻¹G_m) at each of them.

        Shapes (n − n_before, n_targets) and (n − n_before,), for the rows fitted to; O(n²) a size and target.
        """
        n, n_targets = self.half_solution.shape
        new = np.arange(n_before, n)
        rows = self._solve_transposed((np.arange(n)[:, np.newaxis] == new).astype(np.float64))
        growth = np.einsum("ij,ij->j", rows, sums.products @ rows)
        shown = np.where(np.arange(n)[:, np.newaxis] <= new, self.half_solution.T[:, :, np.newaxis], 0.0)
        beta = self._solve_transposed(np.concatenate([*shown], axis=1)).reshape(n, n_targets, len(new))
        z = sums.rhs[:, :, np.newaxis]
        fitted = (sums.products @ beta.reshape(n, -1)).reshape(beta.shape)
        errors = np.diagonal(sums.target_square)[:, np.newaxis] + np.sum(beta * (fitted - 2 * z), axis=0)
        return np.maximum(errors.T, 0.0), growth

    def _solve_transposed(self, right: Floats) -> Floats:
        """Return L⁻ᵀ right."""
        if not len(right):
            return right
        return np.asarray(solve_triangular(self.factor, right, lower=True, trans="T", check_finite=False))

    def _rotated(self, products: Floats, *, overwrite: bool = False) -> Floats:
        """Return L⁻¹GL⁻ᵀ in the lower triangle; above the diagonal there is no information."""
        if not len(products):
            return products
        rotated, info = lapack.dsygst(  # of transposes, in Fortran order
            products.T, self.factor.T, itype=1, lower=0, overwrite_a=overwrite
        )
        check_info("dsygst", info)
        return np.asarray(rotated.T)

    def _errors(self, sums: BlockStatistics, rotated: Floats) -> Floats:
        """Return the squared errors from L⁻¹GL⁻ᵀ, which is overwritten."""
        u, diagonal = self.half_solution, np.diagonal(rotated).copy()
        for row, values in enumerate(rotated):
            values[row:] = 0.0
        steps = u * (2.0 * (rotated @ u) + diagonal[:, np.newaxis] * u - 2.0 * _solve_lower(self.factor, sums.rhs))
        return np.maximum(np.diagonal(sums.target_square) + _from_zero(steps), 0.0)


def gcv_of(squared_errors: Floats, freedoms: Floats, weight: float) -> Floats:
    """Return generalized cross-validation from errors (sizes, n_targets) and tr(P⁻¹G) of each size, (sizes,)."""
    left = 1.0 - freedoms / weight
    errors = squared_errors.sum(axis=1) / weight
    return np.where(left > 0, errors / np.where(left > 0, left, 1.0) ** 2, np.inf)


def _solve_lower(factor: Floats, right: Floats) -> Floats:
    if not len(factor):
        return right
    return np.asarray(solve_triangular(factor, right, lower=True, check_finite=False))


def _from_zero(steps: Floats) -> Floats:
    """Return the sums of the first m steps, for every m from zero."""
    return np.concatenate([np.zeros((1, *steps.shape[1:])), np.cumsum(steps, axis=0)])
