"""What decisions need: K⁻¹, P⁻¹ and β, made from the information form and carried on until the next refresh."""

from dataclasses import dataclass

import numpy as np

from ridgestream.pipeline.arrays import Floats
from ridgestream.pipeline.factorization import cholesky, symmetric
from ridgestream.pipeline.learners.information import Information, padded, padded_symmetric


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
    """K⁻¹ and P⁻¹ (lower triangles, Fortran order), P⁻¹'s diagonal q, and β (n_targets, n_basis).

    They have the information's room, and its empty basis vectors.
    """

    def __init__(self, information: Information) -> None:
        normal = cholesky(information.normal_matrix, "normal matrix P")
        gram = cholesky(information.gram, "kernel matrix K of the dictionary")
        self.n_basis = information.n_basis
        self.normal: Floats = normal.inverse()
        self.gram: Floats = gram.inverse()
        self.is_whole = False
        self.beta: Floats = np.ascontiguousarray(normal.solve(information.normal_rhs).T)
        self.diagonal: Floats = np.diagonal(self.normal).copy()
        self.condition = Condition(normal.condition, gram.condition, max(normal.jitter, gram.jitter))

    @property
    def coefficients(self) -> Floats:
        """β as predictions take it, shape (n_basis, n_targets)."""
        return self.beta[:, : self.n_basis].T

    def complete(self) -> None:
        """Fill in the upper triangle of K⁻¹, for swaps to keep up with; O(n_basis²) unless it is there."""
        if not self.is_whole:
            self.gram, self.is_whole = symmetric(self.gram).T, True

    def reserve(self, capacity: int) -> None:
        """Make room for just so many basis vectors; O(capacity²) if it is not there already."""
        if capacity != len(self.gram):
            n = self.n_basis
            self.normal = padded_symmetric(self.normal[:n, :n], capacity)
            self.gram = padded_symmetric(self.gram[:n, :n], capacity)
            self.beta = np.ascontiguousarray(padded(self.beta[:, :n].T, capacity).T)
            self.diagonal, self.is_whole = np.diagonal(self.normal).copy(), False
