"""Methods that the papers compare with, for their tables alone: rows in memory, one target, dense algebra.

SVM and SVR of these tables are scikit-learn's.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from ridgestream.pipeline.kernels import Kernel, gram
from ridgestream.pipeline.selection.candidate_rounds import RULE_OF_59, draw_round

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Expansion:
    """f(x) = bias + Σ βᵢ k(xᵢ, x)."""

    kernel: Kernel
    places: npt.NDArray[np.int64]
    """The rows of the vectors, in the order in which they were chosen."""
    vectors: Array
    """(n_basis, n_features)."""
    coefficients: Array
    """(n_basis,)."""
    bias: float = 0.0

    @classmethod
    def of(cls, kernel: Kernel, X: Array, places: list[int], coefficients: Array, bias: float = 0.0) -> Self:
        """Return the expansion over these rows of X."""
        return cls(kernel, np.array(places, dtype=np.int64), X[places], coefficients, bias)

    def predict(self, X: Array) -> Array:
        """Return f at the rows, shape (rows,)."""
        return np.asarray(self.kernel.block(X, self.vectors, np.zeros(X.shape[1])) @ self.coefficients + self.bias)


def fit_qr(kernel: Kernel, X: Array, y: Array, max_basis: int, patience: int = 10) -> Expansion:
    """Return the model of Nair, Choudhury & Keane (2002): the columns of largest residual, by a QR decomposition.

    The residual is that of plain least squares over the constant and the columns; columns are orthogonalized twice.
    The size is that of least GCV, n‖e‖²/(n − m)², whose path ends `patience` steps after its least.
    """
    n = len(y)
    Q = np.full((n, 1), 1 / np.sqrt(n))
    R, residual, places = np.full((1, 1), np.sqrt(n)), y - y.mean(), list[int]()
    gcv = [n * float(residual @ residual) / (n - 1) ** 2]
    while len(places) < min(max_basis, n - 2) and len(gcv) - 1 - int(np.argmin(gcv)) < patience:
        ranked = np.abs(residual)
        ranked[places] = -1.0
        place = int(np.argmax(ranked))
        column = kernel.block(X, X[[place]], np.zeros(X.shape[1]))[:, 0]
        first = Q.T @ column
        rest = column - Q @ first
        second = Q.T @ rest  # once more, against what rounding left
        rest -= Q @ second
        length = float(np.linalg.norm(rest))
        if length <= 1e-10 * float(np.linalg.norm(column)):
            break
        R = np.block([[R, (first + second)[:, np.newaxis]], [np.zeros((1, len(R))), np.full((1, 1), length)]])
        Q = np.column_stack([Q, rest / length])
        residual = residual - Q[:, -1] * (Q[:, -1] @ residual)
        places.append(place)
        gcv.append(n * float(residual @ residual) / (n - 1 - len(places)) ** 2)
    size = int(np.argmin(gcv))
    solved = solve_triangular(R[: size + 1, : size + 1], Q[:, : size + 1].T @ y)
    return Expansion.of(kernel, X, places[:size], solved[1:], float(solved[0]))


def fit_column_ols(
    kernel: Kernel,
    X: Array,
    y: Array,
    max_basis: int,
    regularization: float,
    candidates: int = RULE_OF_59,
    seed: int = 0,
) -> Expansion:
    """Return the model of OLS-59 as the paper has it, which stores the columns: rows × n_basis numbers.

    Each round computes the columns q of its random rows, and adds the one with the largest (qᵀy − hᵀβ)²/Δ, by the
    Cholesky factor L of P = KᵀK + λn K_SS, to which it adds a row; γ = λn. A round whose rows are all chosen or spanned
    chooses none.
    """
    n, centre = len(y), np.zeros(X.shape[1])
    penalty, places, number = regularization * n, list[int](), 0
    columns = np.empty((n, max_basis), order="F")
    factor, half = np.zeros((max_basis, max_basis)), np.zeros(max_basis)
    while len(places) < max_basis and number < 2 * max_basis + 20:
        m = len(places)
        drawn = np.setdiff1d(draw_round(seed, number, n, candidates), places)
        number += 1
        new = kernel.block(X, X[drawn], centre)
        own = np.einsum("ij,ij->j", new, new) + penalty * kernel.diagonal(X[drawn])
        h = columns[:, :m].T @ new + penalty * kernel.block(X[places], X[drawn], centre)
        solved = solve_triangular(factor[:m, :m], h, lower=True)
        delta = own - np.einsum("ij,ij->j", solved, solved)
        usable = delta > 1e-10 * own
        if not usable.any():
            continue
        steps = (new.T @ y - solved.T @ half[:m]) / np.sqrt(np.where(usable, delta, np.inf))
        best = int(np.argmax(steps**2))
        columns[:, m] = new[:, best]
        factor[m, :m], factor[m, m], half[m] = solved[:, best], np.sqrt(delta[best]), steps[best]
        places.append(int(drawn[best]))
    m = len(places)
    return Expansion.of(kernel, X, places, solve_triangular(factor[:m, :m], half[:m], trans="T", lower=True))


@dataclass(frozen=True)
class RelevanceVectors:
    """A model of the relevance vector machine, with what it was found at."""

    model: Expansion
    precisions: Array
    """α of the functions that are left, the constant first if it is left."""
    noise_precision: float
    """β."""
    functions: npt.NDArray[np.int64]
    """What is left of the functions, 0 for the constant and 1 + i for row i."""


def fit_rvm(kernel: Kernel, X: Array, y: Array, iterations: int = 2000, tolerance: float = 1e-5) -> RelevanceVectors:
    """Return the relevance vector machine of Tipping (2001) for regression, by MacKay's re-estimation.

    w ~ N(0, A⁻¹) over the constant and one function a row, y ~ N(Φw, β⁻¹I); α = g/μ² and β = (n − Σ g)/‖y − Φμ‖² with
    g = 1 − αΣ_ii, functions with α above 10⁹ leave; until no log α changes by more than the tolerance.
    """
    functions = np.column_stack([np.ones(len(y)), gram(kernel, X)])
    left = np.arange(functions.shape[1])
    alpha, beta = np.ones(len(left)), 10 / max(float(np.var(y)), np.finfo(float).tiny)
    for _ in range(iterations):
        Phi = functions[:, left]
        mean, variances = _posterior(Phi, y, alpha, beta)
        g = np.clip(1 - alpha * variances, 1e-12, None)
        new = g / np.maximum(mean**2, 1e-300)
        beta = (len(y) - float(g.sum())) / max(float(np.sum((y - Phi @ mean) ** 2)), 1e-300)
        kept = new < 1e9
        change = np.max(np.abs(np.log(new[kept] / alpha[kept])), initial=0.0)
        left, alpha = left[kept], new[kept]
        if kept.all() and change < tolerance:
            break
    mean, _ = _posterior(functions[:, left], y, alpha, beta)
    rows = left > 0
    bias = 0.0 if rows.all() else float(mean[0])
    return RelevanceVectors(Expansion.of(kernel, X, (left[rows] - 1).tolist(), mean[rows], bias), alpha, beta, left)


def _posterior(Phi: Array, y: Array, alpha: Array, beta: float) -> tuple[Array, Array]:
    """Return μ and the diagonal of Σ = (A + βΦᵀΦ)⁻¹, by a scaled Cholesky factor."""
    scale = 1 / np.sqrt(alpha)
    factor = np.linalg.cholesky(np.eye(len(alpha)) + beta * (scale[:, np.newaxis] * (Phi.T @ Phi) * scale))
    half = solve_triangular(factor, np.diag(scale), lower=True)
    return beta * half.T @ (half @ (Phi.T @ y)), np.sum(half**2, axis=0)
