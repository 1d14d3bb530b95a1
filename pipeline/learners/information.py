"""The information form: sums that absorb a row, and borders that add or replace a basis vector without past rows.

Jung & Polani (2006) propagate P⁻¹; here P, K and z themselves are carried, so that nothing drifts and P⁻¹ can be had
anew at any time. Symmetric matrices are kept in the lower triangle of Fortran-ordered arrays, as BLAS updates them.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas

from ridgestream.pipeline.arrays import Floats, Integers
from ridgestream.pipeline.factorization import symmetric
from ridgestream.pipeline.learners.online_state import OnlineState


@dataclass(frozen=True)
class Border:
    """What P, K and z gain with a new basis vector."""

    normal: Floats
    """P a + wδk, shape (n_basis,)."""
    corner: float
    """aᵀPa + γ(k* − aᵀk) + 2wδ aᵀk + wδ²."""
    rhs: Floats
    """aᵀz + wδy, shape (n_targets,)."""
    kernel: Floats
    """k, shape (n_basis,)."""
    self_kernel: float
    """k*."""


class Information:
    """D, K, P, z and yᵀy while they change; `n_basis` is their common size."""

    def __init__(self, state: OnlineState) -> None:
        self.basis_vectors: Floats = state.basis_vectors.copy()
        self.basis_rows: Integers = state.basis_rows.copy()
        self.gram: Floats = np.array(state.gram, order="F")
        self.normal_matrix: Floats = np.array(state.normal_matrix, order="F")
        self.normal_rhs: Floats = state.normal_rhs.copy()
        self.target_square: Floats = state.target_square.copy()
        self.penalty: float = state.penalty

    @property
    def n_basis(self) -> int:
        """The number of basis vectors."""
        return len(self.basis_vectors)

    def absorb(self, kernel_rows: Floats, targets: Floats, weights: Floats) -> None:
        """P += Σ w kkᵀ, z += Σ w kyᵀ for rows of kernel values (rows, n_basis): equation (11); O(n_basis²) a row."""
        scaled = kernel_rows * np.sqrt(weights)[:, np.newaxis]
        self.normal_matrix = blas.dsyrk(1.0, scaled.T, beta=1.0, c=self.normal_matrix, lower=1, overwrite_c=1)
        self.normal_rhs += kernel_rows.T @ (targets * weights[:, np.newaxis])

    def absorb_targets(self, targets: Floats, weights: Floats) -> None:
        """yᵀy += Σ w yyᵀ."""
        self.target_square += targets.T @ (targets * weights[:, np.newaxis])

    def grow(self, border: Border, x: Floats, row: int) -> None:
        """Append the row x, number `row` of the stream, as a basis vector."""
        self.gram = bordered(self.gram, border.kernel, border.self_kernel)
        self.normal_matrix = bordered(self.normal_matrix, border.normal, border.corner)
        self.normal_rhs = np.vstack([self.normal_rhs, border.rhs])
        self.basis_vectors = np.vstack([self.basis_vectors, x])
        self.basis_rows = np.append(self.basis_rows, row)

    def set_penalty(self, penalty: float) -> None:
        """P += (γ′ − γ)K: the regularization changes exactly."""
        self.normal_matrix += (penalty - self.penalty) * self.gram
        self.penalty = penalty

    def symmetric_matrices(self) -> tuple[Floats, Floats]:
        """Return K and P in full."""
        return symmetric(self.gram), symmetric(self.normal_matrix)


def bordered(lower: Floats, border: Floats, corner: float) -> Floats:
    """Return the (m + 1, m + 1) matrix with a new last row; lower triangles, Fortran order."""
    m = len(lower)
    grown = np.zeros((m + 1, m + 1), order="F")
    grown[:m, :m] = lower
    grown[m, :m] = border
    grown[m, m] = corner
    return grown
