"""Orthogonal columns known by their sums alone: K = QU by the Cholesky factor of G = KᵀK.

With G = LLᵀ, the squared lengths of the columns of Q are s_i = L_ii², U = diag(L)⁻¹Lᵀ, and qᵢᵀy/√s_i are the entries of
L⁻¹Kᵀy. The first function is the constant one. A row of weight w counts w times in every product.
"""

import numpy as np
from scipy.linalg import solve_triangular

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.batch.orols.criteria import Directions


class OrthogonalColumns:
    """The factor of a growing set of columns; the last ones can be removed."""

    def __init__(self, weight: float, total: float, square: float) -> None:
        """Start with the constant function, given Σw, Σwy and Σwy²."""
        self.weight, self.square = weight, square
        self._factor = np.zeros((16, 16))
        self._along = np.zeros(16)
        self._factor[0, 0] = np.sqrt(weight)
        self._along[0] = total / np.sqrt(weight)
        self.size = 1

    @property
    def lengths(self) -> Floats:
        """Return s, shape (size,)."""
        return np.asarray(np.diagonal(self._factor)[: self.size] ** 2)

    def project(self, products: Floats) -> Floats:
        """Return L⁻¹Kᵀk of columns, shape (m, n), with the first m columns, from Kᵀk of this shape; O(m²) each."""
        factor = self._factor[: len(products), : len(products)]
        return np.asarray(solve_triangular(factor, products, lower=True, check_finite=False))

    def along(self, size: int) -> Floats:
        """Return qᵀy/√s of the first `size` columns."""
        return self._along[:size]

    def measure(self, products: Floats, size: int) -> tuple[Floats, float]:
        """Return h = L⁻¹Kᵀk and s = kᵀk − hᵀh of a column after the first `size`, from (Kᵀk, kᵀk); O(size²)."""
        half = solve_triangular(self._factor[:size, :size], products[:size], lower=True, check_finite=False)
        return half, float(products[-1] - half @ half)

    def push(self, half: Floats, length: float, product: float) -> None:
        """Append a column with h and s from `measure` and with kᵀy."""
        if self.size == len(self._along):
            self._factor = np.pad(self._factor, (0, self.size))
            self._along = np.pad(self._along, (0, self.size))
        along = product - half @ self._along[: self.size]
        self._factor[self.size, : self.size] = half
        self._factor[self.size, self.size] = np.sqrt(length)
        self._along[self.size] = along / np.sqrt(length)
        self.size += 1

    def shrink(self, size: int) -> None:
        """Remove all columns but the first `size`."""
        self.size = size

    def directions(self) -> Directions:
        """Return the target along the columns."""
        return Directions(self.lengths, self._along[: self.size], self.square, self.weight)

    def coefficients(self, size: int, penalty: float) -> Floats:
        """Return U⁻¹α̃ of the first `size` columns, equations (25) and (26); O(size²)."""
        return solve_orthogonal(self._factor[:size, :size], self._along[:size], penalty)


def solve_orthogonal(factor: Floats, along: Floats, penalty: float) -> Floats:
    """Return U⁻¹α̃ = L⁻ᵀ(s/(λ + s))·(L⁻¹Kᵀy) with L (m, m) as `factor` and L⁻¹Kᵀy, shape (m,) or (m, n); O(m²)."""
    lengths = np.diagonal(factor) ** 2
    shrunk = (along.T * (lengths / (penalty + lengths))).T
    return np.asarray(solve_triangular(factor, shrunk, lower=True, trans="T", check_finite=False))
