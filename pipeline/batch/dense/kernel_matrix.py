"""Dense systems: a kernel matrix of all rows, for data small enough to hold it.

With W the rows' weights, n their sum and p = λn, the penalized fit Σ w(y − f)² + p‖f − b‖² is

    (K + pW⁻¹)α + 1b = y,  1ᵀα = 0,  f(x) = Σ αᵢ k(xᵢ, x) + b,

without b for kernel ridge regression. From one eigendecomposition of W^½ K W^½ it is solved for any p in O(l²), and so
are the errors of each row when it is left out, αᵢ/Cᵢᵢ with C the inverse of the system (Cawley & Talbot 2004). p stays
that of all rows there.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import LinAlgError, eigh

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import InputError, MemoryRefused, NumericalBreakdown
from ridgestream.pipeline.base.memory_plan import show_bytes
from ridgestream.pipeline.cholesky import check_kernel_sums
from ridgestream.pipeline.sums.row_set import RowSet

_MATRICES = 8
"""l × l matrices alive at the peak: K, its eigenvectors and what LAPACK holds besides them, or the sums of all rows."""


@dataclass(frozen=True)
class PresentRows:
    """The rows of weight above zero, in memory."""

    features: Floats
    """Shape (l, n_features)."""
    targets: Floats
    """Shape (l, n_targets)."""
    weights: Floats
    """Shape (l,)."""
    indices: Integers
    """Their row indices, shape (l,)."""


@dataclass(frozen=True)
class DenseSystem:
    """W^½ K W^½ = V diag(e) Vᵀ, with which a system is solved for any p."""

    eigenvalues: Floats
    """e, at least zero, shape (l,)."""
    vectors: Floats
    """U = W^½ V, so that (K + pW⁻¹)⁻¹ = U diag(1/(e + p)) Uᵀ, shape (l, l)."""
    bias: bool
    """Whether the model has a bias b."""

    @classmethod
    def of(cls, K: Floats, weights: Floats, *, bias: bool) -> Self:
        """Decompose it for K (l, l) and positive weights (l,); O(l³). Raises NumericalBreakdown for an infinite K."""
        check_kernel_sums(K, "kernel matrix of the rows")
        root = np.sqrt(weights)
        try:
            values, vectors = eigh(root[:, np.newaxis] * K * root, overwrite_a=True, check_finite=False, driver="evd")
        except LinAlgError as error:
            raise NumericalBreakdown(f"the kernel matrix of {len(K)} rows has no eigenvalues: {error}") from error
        return cls(np.maximum(values, 0.0), root[:, np.newaxis] * vectors, bias)

    def solve(self, penalty: float, targets: Floats) -> tuple[Floats, Floats]:
        """Return α (l, n_targets) and b (n_targets,), zero where there is none, for p above zero; O(l²) a target."""
        inverse = 1.0 / (self.eigenvalues + penalty)
        alpha = self._apply(inverse, targets)
        if not self.bias:
            return alpha, np.zeros(targets.shape[1])
        ones = self._apply(inverse, np.ones((len(targets), 1)))
        bias = alpha.sum(axis=0) / ones.sum()
        return alpha - ones * bias, bias

    def left_out(self, penalty: float, targets: Floats) -> Floats:
        """Return y − f of each row for the model without it, shape (l, n_targets); at least two rows; O(l²)."""
        inverse = 1.0 / (self.eigenvalues + penalty)
        alpha, _ = self.solve(penalty, targets)
        diagonal = np.einsum("ij,ij,j->i", self.vectors, self.vectors, inverse)
        if self.bias:
            ones = self._apply(inverse, np.ones((len(targets), 1)))[:, 0]
            diagonal -= ones**2 / ones.sum()
        return np.asarray(alpha / diagonal[:, np.newaxis])

    def _apply(self, inverse: Floats, right: Floats) -> Floats:
        return np.asarray(self.vectors @ (inverse[:, np.newaxis] * (self.vectors.T @ right)))


def read_present(rows: RowSet, n_kernels: int, memory_limit_bytes: int) -> PresentRows:
    """Return the rows of weight above zero, in memory.

    Raises MemoryRefused if their matrices cannot fit, before a row is read, and InputError for fewer than two of them.
    """
    check_dense_memory(rows.n_rows, rows.n_features + rows.n_targets, n_kernels, memory_limit_bytes)
    block = rows.take(np.arange(rows.n_rows))
    weights = np.ones(rows.n_rows) if block.weights is None else block.weights
    indices = np.flatnonzero(weights > 0)
    if len(indices) < 2:
        raise InputError(f"a dense method needs at least two rows of weight above zero (n_samples={len(indices)})")
    return PresentRows(block.features[indices], block.targets[indices], weights[indices], indices)


def plan_dense_bytes(n_rows: int, n_columns: int, n_kernels: int) -> int:
    """Return the peak bytes of the matrices of this many rows, with two copies of the rows."""
    return 8 * n_rows * ((_MATRICES + n_kernels - 1) * n_rows + 2 * n_columns)


def check_dense_memory(n_rows: int, n_columns: int, n_kernels: int, limit_bytes: int) -> None:
    """Raise MemoryRefused, with both numbers and a way out, if the matrices of all rows are above the limit."""
    needed = plan_dense_bytes(n_rows, n_columns, n_kernels)
    if needed > limit_bytes:
        raise MemoryRefused(
            f"a dense method holds matrices of {n_rows} × {n_rows} numbers, {show_bytes(needed)} in all, and "
            f"{show_bytes(limit_bytes)} may be used: raise the memory limit, give fewer rows, or take a sparse method"
        )
