"""Matrices in 80-bit extended precision, for which LAPACK has no routines: kernels, factors and the direct solve.

Nothing here is fast or shared with the tested code. m basis vectors, d features, c outputs in the docstrings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Real = np.floating[Any]
Number = type[Real]
Array = npt.NDArray[Real]
Kernel = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class GaussianKernel:
    """exp(-gamma |a - b|^2) from explicit differences, which do not cancel."""

    gamma: float
    dtype: Number = np.longdouble

    def __call__(self, A: Array, B: Array) -> Array:
        """Kernel matrix (len(A), len(B))."""
        difference = A.astype(self.dtype)[:, None, :] - B.astype(self.dtype)[None, :, :]
        matrix: Array = np.exp(-self.dtype(self.gamma) * (difference**2).sum(axis=2))
        return matrix


def cholesky(A: Array) -> Array:
    """Lower L (m, m) with L L^T = A, column by column, in the precision of A."""
    L = np.zeros_like(A)
    for j in range(len(A)):
        column = A[j:, j] - L[j:, :j] @ L[j, :j]
        if not column[0] > 0:
            raise ArithmeticError(f"not positive definite: pivot {j} of {len(A)} is {column[0]}")
        L[j:, j] = column / np.sqrt(column[0])
    return L


def inverse_factor(A: Array) -> Array:
    """Lower S (m, m) with S^T S = A^-1, row by row from S L = 1.

    Products with S lose half the digits that products with A^-1 lose: |S|^2 is 1 / the smallest eigenvalue.
    """
    L = cholesky(A)
    S = np.zeros_like(A)
    for i in range(len(A)):
        S[i, :i] = -(L[i, :i] @ S[:i, :i]) / L[i, i]
        S[i, i] = 1 / L[i, i]
    return S


def solve(A: Array, B: Array) -> Array:
    """A^-1 B for a positive definite A (m, m) and B (m, c)."""
    S = inverse_factor(A)
    return S.T @ (S @ B)


def direct_coefficients(kernel: Kernel, basis: Array, X: Array, Y: Array, W: Array, lambda_n: float) -> Array:
    """(K_tm^T W K_tm + lambda_n K_mm)^-1 K_tm^T W Y, shape (m, c), for a fixed dictionary and all rows at once.

    Least squares on the stacked rows [W^1/2 K_tm ; lambda_n^1/2 L^T] with L L^T = K_mm, by modified Gram-Schmidt on
    the rows with their targets appended: the normal equations, whose condition is the square, are never formed.
    """
    K_mm = kernel(basis, basis)
    m, scale = len(basis), np.sqrt(W.astype(K_mm.dtype))[:, None]
    penalty_rows = np.sqrt(K_mm.dtype.type(lambda_n)) * cholesky(K_mm).T
    design = np.vstack([scale * kernel(X, basis), penalty_rows])
    targets = np.vstack([scale * Y, np.zeros((m, Y.shape[1]), K_mm.dtype)])
    rest, R = np.hstack([design, targets]), np.zeros((m, m + Y.shape[1]), K_mm.dtype)
    for j in range(m):
        length = np.sqrt(rest[:, j] @ rest[:, j])
        R[j] = (rest[:, j] / length) @ rest
        rest = rest - np.outer(rest[:, j] / length, R[j])
    return back_substitute(R[:, :m], R[:, m:])


def back_substitute(R: Array, B: Array) -> Array:
    """R^-1 B for an upper triangular R (m, m) and B (m, c)."""
    X = np.zeros_like(B)
    for i in reversed(range(len(R))):
        X[i] = (B[i] - R[i, i + 1 :] @ X[i + 1 :]) / R[i, i]
    return X


def bordered(A: Array, border: Array, corner: Real) -> Array:
    """[[A, b], [b^T, corner]], shape (m + 1, m + 1)."""
    return np.block([[A, border[:, None]], [border[None, :], np.full((1, 1), corner, A.dtype)]])
