"""Block statistics: for a fixed set of basis vectors, the sums over rows that batch methods are made of.

With k the kernel values of a row against the basis vectors, y its targets and w its weight: G = Σ w kkᵀ, z = Σ w kyᵀ,
Σ w yyᵀ, n = Σ w. Sums over some rows and sums over others add up to the sums over both, so rows may be summed anywhere
and the sums be kept, added and subtracted without the rows. The coefficients of subset of regressors follow from them,
(G + λnK)β = z, with K the kernel matrix of the basis vectors.

Sums are float64 whatever the rows were stored as. Adding is associative to rounding only: who wants the same bits again
cuts the rows the same way and adds by `merge_statistics`, whose tree depends on the number of parts alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import blas

from ridgestream.pipeline.arrays import Floats
from ridgestream.pipeline.errors import InputError
from ridgestream.pipeline.factorization import Cholesky, cholesky, symmetric
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.threads import one_blas_thread

KERNEL_BYTES = 16 * 2**20
"""What the kernel values formed at once may take, unless 256 rows take more."""


@dataclass(frozen=True)
class Basis:
    """A fixed set of basis vectors, S."""

    kernel: Kernel
    """k."""
    vectors: Floats
    """Standardized, shape (n_basis, n_features)."""
    centre: Floats
    """Where a stationary kernel measures from, shape (n_features,)."""

    @property
    def kernel_rows(self) -> int:
        """Rows whose kernel values are formed at once."""
        return plan_kernel_rows(len(self.vectors))


@dataclass(frozen=True)
class RowBlock:
    """Rows ready to be summed."""

    features: Floats
    """Standardized, shape (rows, n_features)."""
    targets: Floats
    """Shape (rows, n_targets)."""
    weights: Floats | None
    """Shape (rows,), None where every row counts once."""


@dataclass(frozen=True)
class BlockStatistics:
    """Sums over rows; a commutative monoid under `merge`, up to rounding."""

    products: Floats
    """G = Σ w kkᵀ, exactly symmetric, shape (n_basis, n_basis)."""
    rhs: Floats
    """z = Σ w kyᵀ, shape (n_basis, n_targets)."""
    target_square: Floats
    """Σ w yyᵀ, shape (n_targets, n_targets)."""
    weight: float
    """n = Σ w."""
    rows: int
    """The number of rows, those of weight zero included."""

    @classmethod
    def empty(cls, n_basis: int, n_targets: int) -> Self:
        """Return the sums over no row."""
        square = np.zeros((n_targets, n_targets))
        return cls(np.zeros((n_basis, n_basis)), np.zeros((n_basis, n_targets)), square, 0.0, 0)

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows; raise InputError if they are of other sizes; O(n_basis²)."""
        if self.rhs.shape != other.rhs.shape:
            raise InputError(f"sums of shapes {self.rhs.shape} and {other.rhs.shape} are not of one basis and targets")
        return type(self)(
            self.products + other.products,
            self.rhs + other.rhs,
            self.target_square + other.target_square,
            self.weight + other.weight,
            self.rows + other.rows,
        )

    def factorize(self, gram: Floats, regularization: float) -> Cholesky:
        """Return the factor of G + λnK, with K (n_basis, n_basis) and λ per row; O(n_basis³).

        Raises NumericalBreakdown if the matrix is not positive definite within rounding.
        """
        return cholesky(self.products + regularization * self.weight * gram, "normal matrix P")


def plan_kernel_rows(n_basis: int) -> int:
    """Return the rows whose kernel values are formed at once, from n_basis alone: a power of two, 256 at least."""
    fitting = max(256, KERNEL_BYTES // (8 * max(1, n_basis)))
    return int(1 << (fitting.bit_length() - 1))


def sum_rows(basis: Basis, blocks: Iterable[RowBlock], n_targets: int) -> BlockStatistics:
    """Return the sums over the rows of all blocks, added in their order; O(n_basis·(n_basis + n_features)) a row.

    A row of weight zero is absent. Memory is that of a block, of `basis.kernel_rows` rows of kernel values and of the
    sums, whatever the rows; BLAS runs on one thread.
    """
    sums = _Sums(basis, n_targets)
    with one_blas_thread():
        for block in blocks:
            sums.add(block)
    return sums.statistics()


def merge_statistics(parts: Iterable[BlockStatistics], empty: BlockStatistics) -> BlockStatistics:
    """Return the sums over all parts, `empty` for none, added in a balanced tree that depends on their number alone.

    Parts are taken one by one; of N taken, the sums of ⌊log₂ N⌋ + 1 subtrees are held at most.
    """
    held: list[tuple[int, BlockStatistics]] = []
    for part in parts:
        level, merged = 0, part
        while held and held[-1][0] == level:
            level, merged = level + 1, held.pop()[1].merge(merged)
        held.append((level, merged))
    if not held:
        return empty
    total = held.pop()[1]
    while held:
        total = held.pop()[1].merge(total)
    return total


class _Sums:
    """The sums while they grow; G in the lower triangle of a Fortran-ordered array, as BLAS updates it."""

    def __init__(self, basis: Basis, n_targets: int) -> None:
        self._basis = basis
        n_basis = len(basis.vectors)
        self._products: Floats = np.zeros((n_basis, n_basis), order="F")
        self._rhs: Floats = np.zeros((n_basis, n_targets))
        self._target_square: Floats = np.zeros((n_targets, n_targets))
        self._weight, self._rows = 0.0, 0

    def add(self, block: RowBlock) -> None:
        self._rows += len(block.features)
        features, targets, weights = block.features, block.targets, block.weights
        if weights is None:
            weights = np.ones(len(features))
        elif not weights.all():
            present = weights > 0
            features, targets, weights = features[present], targets[present], weights[present]
        self._weight += float(weights.sum())
        self._target_square += targets.T @ (targets * weights[:, np.newaxis])
        step = self._basis.kernel_rows
        for start in range(0, len(features) if len(self._basis.vectors) else 0, step):
            part = slice(start, start + step)
            self._add_part(features[part], targets[part], weights[part], weighted=block.weights is not None)

    def _add_part(self, features: Floats, targets: Floats, weights: Floats, *, weighted: bool) -> None:
        values = self._basis.kernel.block(features, self._basis.vectors, self._basis.centre)
        self._rhs += values.T @ (targets * weights[:, np.newaxis])
        if weighted:
            values *= np.sqrt(weights)[:, np.newaxis]
        self._products = blas.dsyrk(1.0, values.T, beta=1.0, c=self._products, lower=1, overwrite_c=1)

    def statistics(self) -> BlockStatistics:
        return BlockStatistics(symmetric(self._products), self._rhs, self._target_square, self._weight, self._rows)
