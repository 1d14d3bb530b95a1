"""Predictive variance of subset of regressors with augmentation: error bars that widen away from the dictionary.

The plain predictive variance, σ²kᵀM⁻¹k, shrinks to zero far from all basis vectors. Adding a basis function at the test
point itself (Rasmussen & Quiñonero Candela 2005; Jung & Polani's slides) gives, with the published γ = λn,

    Var f(x) = (σ̂²/γ)(δ + γ kᵀM⁻¹k),   M = K̃ᵀK̃ + γK,   δ = k* − kᵀK⁻¹k,

which reverts to (σ̂²/γ)k* far away. σ̂² is the residual sum of squares over n − trace of the hat matrix M⁻¹K̃ᵀK̃.
After a refit, and in batch methods, the exact KᵀK of the rows replaces K̃ᵀK̃. A bias is one more function of k and M,
without a penalty, and is not part of K.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import solve_triangular

from ridgestream.pipeline.base.array_checks import Floats, check_rows, check_weights
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.cholesky import Cholesky, cholesky
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.sums.normal_equations import BlockStatistics


@dataclass(frozen=True)
class Uncertainty:
    """Data for error bars: two Cholesky factors and the noise."""

    gram: Cholesky
    """The factor of K, (n_basis, n_basis)."""
    normal: Cholesky
    """The factor of M, (n_functions, n_functions)."""
    penalty: float
    """γ = λn."""
    noise: Floats
    """σ̂² of each target, shape (n_targets,), in squared units of the learner's targets."""

    @classmethod
    def of(cls, state: OnlineState, sums: BlockStatistics | None = None, regularization: float | None = None) -> Self:
        """Compute it from a learner's state, or with other sums over the same rows, and another λ; O(n_basis³)."""
        sums = accumulated_sums(state) if sums is None else sums
        regularization = regularization or state.parameters.published_regularization(state.weight_seen)
        return cls.from_sums(sums, state.gram, state.n_basis, regularization)

    @classmethod
    def from_sums(cls, sums: BlockStatistics, penalty: Floats, n_basis: int, regularization: float) -> Self:
        """Compute it from the sums of n_functions ≥ n_basis functions, their penalty and λ per row; O(n_functions³)."""
        if not regularization > 0:
            raise InputError("error bars need a penalty: unpenalized coefficients have none")
        normal = sums.factorize(penalty, regularization)
        noise = estimate_noise(sums, normal)  # before the next factor takes as much memory
        gram = cholesky(penalty[:n_basis, :n_basis], "kernel matrix K of the dictionary")
        return cls(gram, normal, regularization * sums.weight, noise)

    def variance(self, kernel_rows: Floats, self_kernel: Floats) -> Floats:
        """Return Var f of rows with values (rows, n_functions) and k(x, x) (rows,): (rows, n_targets), at least 0.

        In squared units of the learner's targets; add `noise` for a new observation. O(n_basis²) a row.
        Raises InputError for other shapes, and for values that are not finite numbers.
        """
        kernel_rows = check_rows(kernel_rows, len(self.normal.factor), "kernel_rows")
        self_kernel = check_weights(self_kernel, len(kernel_rows), "self_kernel")
        spanned = _squared_norms(self.gram, kernel_rows[:, : len(self.gram.factor)])
        leverage = _squared_norms(self.normal, kernel_rows)
        novelty = np.maximum(self_kernel - spanned, 0.0)
        return (novelty / self.penalty + leverage)[:, np.newaxis] * self.noise


def accumulated_sums(state: OnlineState) -> BlockStatistics:
    """Return the sums accumulated by a learner, with K̃ᵀK̃ for G."""
    products = state.normal_matrix - state.penalty * state.gram
    return BlockStatistics(products, state.normal_rhs, state.target_square, state.weight_seen, state.rows_seen)


def estimate_noise(sums: BlockStatistics, normal: Cholesky) -> Floats:
    """Return σ̂² of each target: RSS/(n − tr(M⁻¹G)), `normal` the factor of M = G + γK; O(n_basis³).

    If there are no more rows than degrees of freedom, the denominator is one.
    """
    freedom = float(np.trace(normal.solve(sums.products)))
    return np.asarray(sums.squared_error(normal.solve(sums.rhs)) / max(sums.weight - freedom, 1.0))


def _squared_norms(factor: Cholesky, kernel_rows: Floats) -> Floats:
    """Return kᵀA⁻¹k of each row as ‖L⁻¹k‖², which cannot be negative."""
    half = solve_triangular(factor.factor, kernel_rows.T, lower=True, check_finite=False)
    return np.asarray(np.einsum("ij,ij->j", half, half))
