"""Orthogonal columns known by their sums alone: K = QU by the Cholesky factor of G = KᵀK, and the λ of least GCV.

With G = LLᵀ, the squared lengths of the columns of Q are s_i = L_ii², U = diag(L)⁻¹Lᵀ, and qᵢᵀy/√s_i are the entries of
L⁻¹Kᵀy. The first function is the constant one. A row of weight w counts w times in every product.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from ridgestream.pipeline.base.array_checks import Floats

SMALLEST_SHARE, LARGEST_SHARE = 1e-6, 1e6
"""λ other than zero lies between these shares of the smallest and the largest squared length of a column: below, the
model is practically that of λ = 0, and above it is practically zero."""

GRID_A_DECADE = 4
"""Values of λ per power of ten between which minima are sought; s/(λ + s) falls over two powers of ten."""

BISECTIONS = 18
"""Halvings of a grid step of log λ; the slope is linear in what is left of it, but for a share below 1e-10."""


@dataclass(frozen=True)
class CrossValidation:
    """GCV (27) of one model as a function of λ; each value costs O(m)."""

    lengths: Floats
    """s, shape (m,)."""
    along: Floats
    """qᵀy/√s, shape (m,)."""
    square: float
    """yᵀy."""
    weight: float
    """M, above m, so that the trace of P̃ is above zero."""

    def least(self) -> tuple[float, float]:
        """Return the λ of least GCV, with that GCV: zero, the largest λ, or the best of the minima between."""
        low, high = SMALLEST_SHARE * float(self.lengths.min()), LARGEST_SHARE * float(self.lengths.max())
        grid = np.geomspace(low, high, 2 + round(GRID_A_DECADE * np.log10(high / low)))
        penalties = np.array([0.0, *self._minima(grid), high])
        values = self.values(penalties)
        best = int(np.argmin(values))
        return float(penalties[best]), float(values[best])

    def values(self, penalties: Floats) -> Floats:
        """Return GCV at each λ."""
        error, trace = self._error_and_trace(self._shrinkage(penalties))
        return np.asarray(self.weight * error / trace**2)

    def slopes(self, penalties: Floats) -> Floats:
        """Return at each λ the left side of (28) less the right one, times λ: the sign of GCV's derivative."""
        shrinkage = self._shrinkage(penalties)
        error, trace = self._error_and_trace(shrinkage)
        falling = shrinkage * (1 - shrinkage)
        return np.asarray((falling * shrinkage) @ self.along**2 * trace - falling.sum(axis=-1) * error)

    def _minima(self, grid: Floats) -> Floats:
        """Return every λ at which GCV turns from falling to rising between values of the grid: the roots of (28)."""
        falls = self.slopes(grid) < 0
        turns = np.flatnonzero(falls[:-1] & ~falls[1:])
        low, high = np.log(grid[turns]), np.log(grid[turns + 1])
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            falls = self.slopes(np.exp(middle)) < 0
            low, high = np.where(falls, middle, low), np.where(falls, high, middle)
        below, above = self.slopes(np.exp(low)), self.slopes(np.exp(high))
        return np.asarray(np.exp(low + (high - low) * below / (below - above)))

    def _shrinkage(self, penalties: Floats) -> Floats:
        """Return λ/(λ + s), shape (n_penalties, m): what P̃ leaves of each direction."""
        return np.asarray(penalties[:, np.newaxis] / (penalties[:, np.newaxis] + self.lengths))

    def _error_and_trace(self, shrinkage: Floats) -> tuple[Floats, Floats]:
        """Return yᵀP̃²y = ‖y − Qα̃‖² and the trace of P̃."""
        beyond = max(self.square - float(np.sum(self.along**2)), 0.0)
        return beyond + shrinkage**2 @ self.along**2, self.weight - (1 - shrinkage).sum(axis=-1)


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

    def least_gcv(self) -> tuple[float, float]:
        """Return the λ of least GCV and that GCV; O(size) for each λ looked at, some hundred."""
        return CrossValidation(self.lengths, self._along[: self.size], self.square, self.weight).least()

    def coefficients(self, size: int, penalty: float) -> Floats:
        """Return U⁻¹α̃ of the first `size` columns, equations (25) and (26); O(size²)."""
        return solve_orthogonal(self._factor[:size, :size], self._along[:size], penalty)


def solve_orthogonal(factor: Floats, along: Floats, penalty: float) -> Floats:
    """Return U⁻¹α̃ = L⁻ᵀ(s/(λ + s))·(L⁻¹Kᵀy) with L (m, m) as `factor` and L⁻¹Kᵀy, shape (m,) or (m, n); O(m²)."""
    lengths = np.diagonal(factor) ** 2
    shrunk = (along.T * (lengths / (penalty + lengths))).T
    return np.asarray(solve_triangular(factor, shrunk, lower=True, trans="T", check_finite=False))
