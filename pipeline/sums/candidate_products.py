"""Candidate sums: the products of candidates with the basis vectors and with each other, from one pass.

With k the kernel values of a row against the basis vectors, q those against the candidates, y its targets and w its
weight, these are Σ w qkᵀ, Σ w qqᵀ and Σ w qyᵀ. Together with the sums of the basis vectors from earlier passes they are
the normal equations of all of them, from which any subset can be evaluated. Memory: the sums and one block.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import blas

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.cholesky import mirror
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.sums.basis import plan_kernel_rows
from ridgestream.pipeline.sums.normal_equations import BlockStatistics
from ridgestream.pipeline.sums.row_block import RowBlock, drop_absent
from ridgestream.pipeline.unlocked_lapack import add_products


@dataclass(frozen=True)
class CandidateSumming:
    """The sums to form; the argument of a pass."""

    kernel: Kernel
    """k."""
    vectors: Floats
    """The basis vectors, shape (n_basis, n_features)."""
    candidates: Floats
    """Shape (n_candidates, n_features)."""
    n_targets: int
    """Number of targets."""


@dataclass(frozen=True)
class CandidateSums:
    """Sums over rows; a commutative monoid under `merge`, up to rounding."""

    own: Floats
    """Σ w qqᵀ, exactly symmetric, shape (n_candidates, n_candidates)."""
    across: Floats
    """Σ w qkᵀ, shape (n_candidates, n_basis)."""
    rhs: Floats
    """Σ w qyᵀ, shape (n_candidates, n_targets)."""
    target_square: Floats
    """Σ w yyᵀ, shape (n_targets, n_targets)."""
    weight: float
    """Σ w."""
    rows: int
    """The number of rows, those of weight zero included."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows."""
        return type(self)(
            own=self.own + other.own,
            across=self.across + other.across,
            rhs=self.rhs + other.rhs,
            target_square=self.target_square + other.target_square,
            weight=self.weight + other.weight,
            rows=self.rows + other.rows,
        )

    def extend(self, chosen: BlockStatistics) -> BlockStatistics:
        """Return the sums of the basis vectors followed by the candidates, given the sums of the basis vectors."""
        n_basis, n_candidates = len(chosen.rhs), len(self.rhs)
        products = np.empty((n_basis + n_candidates, n_basis + n_candidates))
        products[:n_basis, :n_basis] = chosen.products
        products[n_basis:, :n_basis] = self.across
        products[:n_basis, n_basis:] = self.across.T
        products[n_basis:, n_basis:] = self.own
        rhs = np.concatenate([chosen.rhs, self.rhs])
        return BlockStatistics(products, rhs, self.target_square, self.weight, self.rows)


@named_pass("ridgestream.pipeline.candidate_sums", "sum_candidates")
def sum_candidates(summing: CandidateSumming, blocks: Iterable[RowBlock]) -> CandidateSums:
    """Return the sums over the rows of all blocks, added in order.

    Costs n_basis + n_candidates kernel values and n_candidates·(2·n_basis + n_candidates) flops a row, for one matrix
    product and one symmetric update. Rows of weight zero are skipped; BLAS runs on one thread.
    """
    accumulator = _Accumulator(summing)
    with one_blas_thread():
        for block in blocks:
            accumulator.add(block)
    return accumulator.sums()


class KernelValues:
    """Computes kernel values against the basis vectors and against candidates, in reused buffers."""

    def __init__(self, kernel: Kernel, vectors: Floats, candidates: Floats) -> None:
        self._kernel, self._vectors, self._candidates = kernel, vectors, candidates
        self._centre = np.zeros(candidates.shape[1])
        self.rows = plan_kernel_rows(len(vectors) + len(candidates))
        self._k: Floats = np.empty((0, len(vectors)))
        self._q: Floats = np.empty((0, len(candidates)))

    def of(self, features: Floats) -> tuple[Floats, Floats]:
        """Return k (rows, n_basis) and q (rows, n_candidates); the next call overwrites them."""
        if len(self._k) < len(features):
            self._k = np.empty((len(features), len(self._vectors)))
            self._q = np.empty((len(features), len(self._candidates)))
        k = self._kernel.block(features, self._vectors, self._centre, self._k[: len(features)])
        q = self._kernel.block(features, self._candidates, self._centre, self._q[: len(features)])
        return k, q


class _Accumulator:
    """Accumulates candidate sums; Σ w qqᵀ in the lower triangle of a Fortran-ordered array, as BLAS updates it."""

    def __init__(self, summing: CandidateSumming) -> None:
        n_basis, n_candidates, n_targets = len(summing.vectors), len(summing.candidates), summing.n_targets
        self._values = KernelValues(summing.kernel, summing.vectors, summing.candidates)
        self._own: Floats = np.zeros((n_candidates, n_candidates), order="F")
        self._across: Floats = np.zeros((n_candidates, n_basis), order="F")
        self._rhs: Floats = np.zeros((n_candidates, n_targets))
        self._target_square: Floats = np.zeros((n_targets, n_targets))
        self._weight, self._rows = 0.0, 0

    def add(self, block: RowBlock) -> None:
        self._rows += len(block.features)
        block = drop_absent(block)
        weights = np.ones(len(block.features)) if block.weights is None else block.weights
        self._weight += float(weights.sum())
        self._target_square += block.targets.T @ (block.targets * weights[:, np.newaxis])
        for start in range(0, len(block.features), self._values.rows):
            part = slice(start, start + self._values.rows)
            self._add_part(block.features[part], block.targets[part], None if block.weights is None else weights[part])

    def _add_part(self, features: Floats, targets: Floats, weights: Floats | None) -> None:
        k, q = self._values.of(features)
        if weights is not None:
            roots = np.sqrt(weights)[:, np.newaxis]
            k, q, targets = np.multiply(k, roots, out=k), np.multiply(q, roots, out=q), targets * roots
        self._rhs += q.T @ targets
        add_products(q, self._own)
        if k.size:
            self._across = blas.dgemm(1.0, q.T, k.T, beta=1.0, c=self._across, trans_b=1, overwrite_c=1)

    def sums(self) -> CandidateSums:
        """Return the sums, which share the accumulator's memory: add nothing after this."""
        across = np.ascontiguousarray(self._across)
        return CandidateSums(mirror(self._own), across, self._rhs, self._target_square, self._weight, self._rows)
