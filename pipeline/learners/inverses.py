"""What decisions need: K⁻¹, P⁻¹ and β, made from the information form and carried on until the next refresh."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas

from ridgestream.pipeline.arrays import Floats
from ridgestream.pipeline.factorization import cholesky
from ridgestream.pipeline.learners.information import Information, bordered, get_symmetric, set_symmetric


@dataclass(frozen=True)
class Condition:
    """How the last refresh went."""

    normal_condition: float
    """Estimated condition number of P."""
    gram_condition: float
    """Estimated condition number of K."""
    jitter: float
    """The larger of what was added to the diagonals of P and K, zero if nothing was needed."""


@dataclass(frozen=True)
class Swap:
    """A basis vector replaced, seen in the space where the new one has just been appended."""

    index: int
    """Whose place is taken."""
    grown: Floats
    """The vector whose outer product growing adds, without its last entry −1, shape (n_basis,)."""
    scale: float
    """What that outer product is divided by."""
    removed: Floats
    """Column `index` of the grown inverse, without its last entry, shape (n_basis,)."""

    @property
    def removed_last(self) -> float:
        """The last entry of that column."""
        return float(-self.grown[self.index] / self.scale)

    @property
    def removed_diagonal(self) -> float:
        """The entry at `index` of that column."""
        return float(self.removed[self.index])

    @classmethod
    def of(cls, index: int, column: Floats, grown: Floats, scale: float) -> "Swap":
        """Make it from column `index` of the inverse before growing."""
        return cls(index, grown, scale, column + grown * (grown[index] / scale))


class Inverses:
    """K⁻¹ and P⁻¹ (lower triangles, Fortran order) and β (n_basis, n_targets)."""

    def __init__(self, information: Information) -> None:
        normal = cholesky(information.normal_matrix, "normal matrix P")
        gram = cholesky(information.gram, "kernel matrix K of the dictionary")
        self.normal: Floats = normal.inverse()
        self.gram: Floats = gram.inverse()
        self.coefficients: Floats = np.ascontiguousarray(normal.solve(information.normal_rhs))
        self.condition = Condition(normal.condition, gram.condition, max(normal.jitter, gram.jitter))

    def absorb(self, W: Floats, weights: Floats, pivots: Floats) -> None:
        """P⁻¹ −= Σ (w/Δ) W_jW_jᵀ over absorbed rows W (rows, n_basis): equation (9) for all of them at once."""
        scaled = W * np.sqrt(weights / pivots)[:, np.newaxis]
        self.normal = blas.dsyrk(-1.0, scaled.T, beta=1.0, c=self.normal, lower=1, overwrite_c=1)

    def grow(self, a: Floats, novelty: float, w_b: Floats, schur: float, kappa: Floats) -> None:
        """Border K⁻¹, P⁻¹ and β by a new basis vector: equations (10), (12) and (15)."""
        self.gram = _bordered_inverse(self.gram, a, novelty)
        self.normal = _bordered_inverse(self.normal, w_b, schur)
        self.coefficients = np.vstack([self.coefficients - np.outer(w_b, kappa), kappa])

    def normal_column(self, index: int, W: Floats, weights: Floats, pivots: Floats) -> Floats:
        """Return column `index` of P⁻¹ as it is after rows W, which it has not absorbed yet."""
        return get_symmetric(self.normal, index) - (W[:, index] * weights / pivots) @ W

    def gram_column(self, index: int) -> Floats:
        """Return column `index` of K⁻¹."""
        return get_symmetric(self.gram, index)

    def swap(self, gram: Swap, normal: Swap) -> None:
        """Replace a basis vector in K⁻¹ and P⁻¹ by two rank-one changes each: (12), then (17), in place."""
        _swap_inverse(self.gram, gram)
        _swap_inverse(self.normal, normal)


def _bordered_inverse(lower: Floats, vector: Floats, scale: float) -> Floats:
    changed = blas.dsyr(1.0 / scale, vector, lower=1, a=lower, overwrite_a=1)
    return bordered(changed, -vector / scale, 1.0 / scale)


def _swap_inverse(lower: Floats, swap: Swap) -> None:
    grown, removed = -swap.grown, swap.removed.copy()
    grown[swap.index], removed[swap.index] = 1.0, swap.removed_last
    set_symmetric(lower, swap.index, np.zeros_like(grown), 0.0)
    blas.dsyr(1.0 / swap.scale, grown, lower=1, a=lower, overwrite_a=1)
    blas.dsyr(-1.0 / swap.removed_diagonal, removed, lower=1, a=lower, overwrite_a=1)
