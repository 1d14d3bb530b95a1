"""Kernel recursive least squares with approximate linear dependence, in extended precision: a reference for tests.

Y. Engel, S. Mannor and R. Meir, The Kernel Recursive Least-Squares Algorithm (2004), sections 2 and 3. Each row's image
is written as a combination of the dictionary's: a = K^-1 k, kept as a row of A, or the new vector itself if its
novelty k* - k^T a is above the threshold. The coefficients are solved from all of A at once instead of recursively, and
of the regularized cost |W^1/2 (A K c - y)|^2 + lambda n c^T K c, whose normal equations are (A^T W A K + lambda n) c =
A^T W y times K from the left.
"""

import numpy as np
import numpy.typing as npt
from support.references.extended_precision import Array, Kernel, bordered, solve


class KRLS:
    """The dictionary and all of A; at `max_basis` the dictionary stops growing."""

    def __init__(self, kernel: Kernel, threshold: float, max_basis: int | None = None) -> None:
        self.kernel, self.threshold, self.max_basis = kernel, threshold, max_basis
        self.basis_rows: list[int] = []
        self.combinations: list[Array] = []
        self.novelties: list[float] = []
        """delta of each row that was tested."""

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, weights: npt.ArrayLike) -> "KRLS":
        """Choose the dictionary among X (n, d) row by row; y (n, c), weights (n,), none of them zero."""
        self.X, self.y, self.weights = (np.asarray(v, np.longdouble) for v in (X, y, weights))
        for row in range(len(self.X)):
            self._learn(row)
        return self

    def coefficients(self, regularization: float) -> Array:
        """c, shape (m, c): by the symmetric form K A^T W A K + lambda n K."""
        m = len(self.basis_rows)
        A = np.array([np.pad(a, (0, m - len(a))) for a in self.combinations])
        AK = A @ self.gram
        penalty = np.longdouble(regularization) * self.weights.sum()
        return solve(AK.T @ (self.weights[:, None] * AK) + penalty * self.gram, AK.T @ (self.weights[:, None] * self.y))

    def predict(self, X: npt.ArrayLike, regularization: float) -> Array:
        """Outputs (rows, c)."""
        return self.kernel(np.asarray(X, np.longdouble), self.basis) @ self.coefficients(regularization)

    def _learn(self, row: int) -> None:
        x = self.X[row : row + 1]
        if not self.basis_rows:
            self.basis_rows, self.basis, self.gram = [row], x, self.kernel(x, x)
            self.combinations.append(np.ones(1, np.longdouble))
            return
        k, k_self = self.kernel(x, self.basis)[0], self.kernel(x, x)[0, 0]
        a = solve(self.gram, k[:, None])[:, 0]
        novelty = k_self - k @ a
        if self.max_basis is None or len(self.basis_rows) < self.max_basis:
            self.novelties.append(float(novelty))
            if novelty > self.threshold:
                a = np.append(np.zeros_like(k), np.longdouble(1))
                self.basis, self.gram = np.vstack([self.basis, x]), bordered(self.gram, k, k_self)
                self.basis_rows.append(row)
        self.combinations.append(a)
