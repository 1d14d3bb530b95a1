"""What decisions need: K⁻¹, P⁻¹ and β, made from the information form and carried on until the next refresh."""

from dataclasses import dataclass

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.cholesky import cholesky
from ridgestream.pipeline.online.information_form import Information, padded, padded_symmetric


@dataclass(frozen=True)
class Condition:
    """How the last refresh went."""

    normal_condition: float
    """Estimated condition number of P."""
    gram_condition: float
    """Estimated condition number of K."""
    jitter: float
    """The larger of what was added to the diagonals of P and K, zero if nothing was needed."""


class Inverses:
    """K⁻¹ and P⁻¹ (lower triangles, Fortran order), their diagonals (P⁻¹'s is q) and K's, and β (n_targets, n_basis).

    They have the information's room, and its empty basis vectors.
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
        self.condition = Condition(normal.condition, gram.condition, max(normal.jitter, gram.jitter))

    @property
    def coefficients(self) -> Floats:
        """β as predictions take it, shape (n_basis, n_targets)."""
        return self.beta[:, : self.n_basis].T

    def reserve(self, capacity: int) -> None:
        """Make room for just so many basis vectors; O(capacity²) if it is not there already."""
        if capacity != len(self.gram):
            n = self.n_basis
            self.normal = padded_symmetric(self.normal[:n, :n], capacity)
            self.gram = padded_symmetric(self.gram[:n, :n], capacity)
            self.beta = np.ascontiguousarray(padded(self.beta[:, :n].T, capacity).T)
            self.diagonal, self.gram_diagonal = np.diagonal(self.normal).copy(), np.diagonal(self.gram).copy()
            self.self_kernel = np.append(self.self_kernel[:n], np.ones(capacity - n))
