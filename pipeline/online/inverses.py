"""What a refresh computes from the information form: K⁻¹, P⁻¹ and β, or β alone if no row can change the dictionary.

Inverses are updated row by row until the next refresh; the coefficients of a fixed dictionary stay as they are.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.cholesky import cholesky
from ridgestream.pipeline.online.information_form import Information, padded, padded_symmetric


@dataclass(frozen=True)
class Condition:
    """Condition numbers and jitter of a refresh."""

    normal_condition: float
    """Condition number of P, estimated where there is no inverse."""
    gram_condition: float
    """Condition number of K."""
    jitter: float
    """The larger of the amounts added to the diagonals of P and K; zero if both factorized without."""


class Inverses:
    """K⁻¹ and P⁻¹ (lower triangles, Fortran order), their diagonals (P⁻¹'s is q) and K's, and β (n_targets, n_basis).

    `reserve` resizes them like the information form's arrays, with the same empty basis vectors.
    """

    def __init__(self, information: Information) -> None:
        normal = cholesky(information.normal_matrix, "normal matrix P")
        gram = cholesky(information.gram, "kernel matrix K of the dictionary")
        self.n_basis = information.n_basis
        self.normal: Floats = normal.inverse()
        self.gram: Floats = gram.inverse()
        self.beta: Floats = np.ascontiguousarray(normal.solve(information.normal_rhs).T)
        self.diagonal: Floats = np.diagonal(self.normal).copy()
        self.gram_diagonal: Floats = np.diagonal(self.gram).copy()
        self.self_kernel: Floats = np.diagonal(information.gram).copy()
        conditions = normal.condition_of(self.normal), gram.condition_of(self.gram)
        self.condition = Condition(*conditions, max(normal.jitter, gram.jitter))

    @property
    def coefficients(self) -> Floats:
        """βᵀ as predictions need it, shape (n_basis, n_targets)."""
        return self.beta[:, : self.n_basis].T

    def reserve(self, capacity: int) -> None:
        """Resize the arrays to this number of basis vectors; O(capacity²) unless they have it already."""
        if capacity != len(self.gram):
            n = self.n_basis
            self.normal = padded_symmetric(self.normal[:n, :n], capacity)
            self.gram = padded_symmetric(self.gram[:n, :n], capacity)
            self.beta = np.ascontiguousarray(padded(self.beta[:, :n].T, capacity).T)
            self.diagonal, self.gram_diagonal = np.diagonal(self.normal).copy(), np.diagonal(self.gram).copy()
            self.self_kernel = np.append(self.self_kernel[:n], np.ones(capacity - n))


@dataclass(frozen=True)
class Solution:
    """The coefficients of a fixed dictionary at a refresh, solved for without an inverse."""

    coefficients: Floats
    """β = P⁻¹z, shape (n_basis, n_targets)."""
    condition: Condition
    """Condition numbers and jitter of the refresh."""

    @classmethod
    def of(cls, information: Information, before: Self | None) -> Self:
        """Solve P β = z; K, which cannot change, is factorized only without a solution `before`; O(n_basis³)."""
        normal = cholesky(information.normal_matrix, "normal matrix P")
        beta = np.ascontiguousarray(normal.solve(information.normal_rhs))
        if before is not None:
            return cls(beta, Condition(normal.condition, before.condition.gram_condition, normal.jitter))
        gram = cholesky(information.gram, "kernel matrix K of the dictionary")
        return cls(beta, Condition(normal.condition, gram.condition, normal.jitter))
