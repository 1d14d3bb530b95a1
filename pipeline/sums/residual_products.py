"""Residual sums: how much of all rows each candidate would reconstruct beyond the basis vectors, in feature space.

With S the basis vectors, E_c(x) = k(x, x_c) − k_S(x)ᵀK_SS⁻¹k_S(x_c) is the residual of candidate c's kernel function.
A pass sums Σ w E_c E_c′/k(x, x) over all pairs of candidates. E is formed block by block: this costs no more than the
products of candidates with basis vectors, and avoids small differences of large sums.
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
from ridgestream.pipeline.sums.candidate_products import KernelValues
from ridgestream.pipeline.sums.row_block import RowBlock, drop_absent
from ridgestream.pipeline.unlocked_lapack import add_products


@dataclass(frozen=True)
class ResidualSumming:
    """The sums to form; the argument of a pass."""

    kernel: Kernel
    """k."""
    vectors: Floats
    """The basis vectors, S, shape (n_basis, n_features)."""
    candidates: Floats
    """Shape (n_candidates, n_features)."""
    projection: Floats
    """K_SS⁻¹k_S(x_c) of each candidate, shape (n_basis, n_candidates)."""


@dataclass(frozen=True)
class ResidualSums:
    """Sums over rows; a commutative monoid under `merge`, up to rounding."""

    own: Floats
    """Σ w E Eᵀ/k(x, x), exactly symmetric, shape (n_candidates, n_candidates)."""
    weight: float
    """Σ w over the summed rows."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows."""
        return type(self)(self.own + other.own, self.weight + other.weight)


@named_pass("ridgestream.pipeline.residual_sums", "sum_residuals")
def sum_residuals(summing: ResidualSumming, blocks: Iterable[RowBlock]) -> ResidualSums:
    """Return the sums over the rows of all blocks, added in order.

    Costs n_basis + n_candidates kernel values and n_candidates·(2·n_basis + n_candidates) flops a row. Rows of weight
    zero and rows with k(x, x) = 0, which need no reconstruction, are skipped; BLAS runs on one thread.
    """
    values = KernelValues(summing.kernel, summing.vectors, summing.candidates)
    projection: Floats = np.asfortranarray(summing.projection)
    own: Floats = np.zeros((len(summing.candidates),) * 2, order="F")
    weight = 0.0
    with one_blas_thread():
        for block in blocks:
            for features, weights, lengths in _parts(summing.kernel, block, values.rows):
                weight += float(weights.sum())
                residuals = form_residuals(*values.of(features), projection)
                residuals *= np.sqrt(weights / lengths)[:, np.newaxis]
                add_products(residuals, own)
        return ResidualSums(mirror(own), weight)


def form_residuals(k: Floats, q: Floats, projection: Floats) -> Floats:
    """Return E (rows, n_candidates), overwriting `q`, the C-ordered kernel values against candidates."""
    if not k.size:
        return q
    return np.asarray(blas.dgemm(-1.0, projection, k.T, beta=1.0, c=q.T, trans_a=1, overwrite_c=1)).T


def _parts(kernel: Kernel, block: RowBlock, step: int) -> Iterable[tuple[Floats, Floats, Floats]]:
    """Yield parts of the rows whose kernel values are formed at a time, with w and k(x, x) of each row."""
    block = drop_absent(block)
    lengths = kernel.diagonal(block.features)
    weights = np.ones(len(lengths)) if block.weights is None else block.weights
    present = np.flatnonzero(lengths > 0)
    features = block.features if len(present) == len(lengths) else block.features[present]
    weights, lengths = weights[present], lengths[present]
    for start in range(0, len(features), step):
        part = slice(start, start + step)
        yield features[part], weights[part], lengths[part]
