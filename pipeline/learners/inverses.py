"""What decisions need: K⁻¹, P⁻¹ and β, made from the information form and carried on until the next refresh."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas

from ridgestream.pipeline.arrays import Floats
from ridgestream.pipeline.factorization import cholesky, symmetric
from ridgestream.pipeline.learners.information import Information, bordered


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
    """K⁻¹ (whole) and P⁻¹ (lower triangle) in Fortran order, P⁻¹'s, its diagonal q, and β (n_targets, n_basis)."""

    def __init__(self, information: Information) -> None:
        normal = cholesky(information.normal_matrix, "normal matrix P")
        gram = cholesky(information.gram, "kernel matrix K of the dictionary")
        self.normal: Floats = normal.inverse()
        self.gram: Floats = symmetric(gram.inverse()).T
        self.beta: Floats = np.ascontiguousarray(normal.solve(information.normal_rhs).T)
        self.diagonal: Floats = np.diagonal(self.normal).copy()
        self.condition = Condition(normal.condition, gram.condition, max(normal.jitter, gram.jitter))

    @property
    def coefficients(self) -> Floats:
        """β as predictions take it, shape (n_basis, n_targets)."""
        return self.beta.T

    def grow(self, a: Floats, novelty: float, w_b: Floats, schur: float, kappa: Floats) -> None:
        """Border K⁻¹, P⁻¹ and β by a new basis vector: equations (10), (12) and (15)."""
        self.gram = symmetric(_bordered_inverse(self.gram, a, novelty)).T
        self.normal = _bordered_inverse(self.normal, w_b, schur)
        self.beta = np.hstack([self.beta - np.outer(kappa, w_b), kappa[:, np.newaxis]])
        self.diagonal = np.diagonal(self.normal).copy()


def _bordered_inverse(inverse: Floats, vector: Floats, scale: float) -> Floats:
    changed = blas.dsyr(1.0 / scale, vector, lower=1, a=inverse)
    return bordered(changed, -vector / scale, 1.0 / scale)
