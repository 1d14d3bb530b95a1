"""Residual sums: what vectors in feature space would reconstruct of all rows that the chosen ones do not.

With S the chosen vectors, E_c(x) = k(x, x_c) − k_S(x)ᵀK_SS⁻¹k_S(x_c) is what is left of candidate c's kernel function.
A pass sums Σ w E_c E_c′/k(x, x) over all pairs of candidates. E is formed block by block: that costs no more than the
products of candidates with chosen vectors would, and the small sums are not differences of large ones.
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
from ridgestream.pipeline.sums.normal_equations import RowBlock, drop_absent


@dataclass(frozen=True)
class ResidualSumming:
    """What is to be summed; the argument of a pass."""

    kernel: Kernel
    """k."""
    vectors: Floats
    """The chosen ones, S, shape (n_basis, n_features)."""
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
    """Σ w over the rows that the sums are over."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows."""
        return type(self)(self.own + other.own, self.weight + other.weight)


@named_pass("ridgestream.pipeline.residual_sums", "sum_residuals")
def sum_residuals(summing: ResidualSumming, blocks: Iterable[RowBlock]) -> ResidualSums:
    """Return the sums over the rows of all blocks, added in their order.

    A row costs n_basis + n_candidates kernel values and n_candidates·(2·n_basis + n_candidates) flops. A row of weight
    zero is absent, and so is one with k(x, x) = 0, of which nothing is left to reconstruct; BLAS runs on one thread.
    """
    values = KernelValues(summing.kernel, summing.vectors, summing.candidates)
    projection: Floats = np.asfortranarray(summing.projection)
    own: Floats = np.zeros((len(summing.candidates),) * 2, order="F")
    weight = 0.0
    with one_blas_thread():
        for block in blocks:
            for features, weights, lengths in _parts(summing.kernel, block, values.rows):
                weight += float(weights.sum())
                left = form_residuals(*values.of(features), projection)
                left *= np.sqrt(weights / lengths)[:, np.newaxis]
                own = blas.dsyrk(1.0, left.T, beta=1.0, c=own, lower=1, overwrite_c=1)
        return ResidualSums(mirror(own), weight)


def form_residuals(k: Floats, q: Floats, projection: Floats) -> Floats:
    """Return E (rows, n_candidates) in the place of `q`, the kernel values against candidates, in C order."""
    if not k.size:
        return q
    return np.asarray(blas.dgemm(-1.0, projection, k.T, beta=1.0, c=q.T, trans_a=1, overwrite_c=1)).T


def _parts(kernel: Kernel, block: RowBlock, step: int) -> Iterable[tuple[Floats, Floats, Floats]]:
    """Yield rows whose kernel values are formed at once, with w and k(x, x) of each."""
    block = drop_absent(block)
    lengths = kernel.diagonal(block.features)
    weights = np.ones(len(lengths)) if block.weights is None else block.weights
    present = np.flatnonzero(lengths > 0)
    features = block.features if len(present) == len(lengths) else block.features[present]
    weights, lengths = weights[present], lengths[present]
    for start in range(0, len(features), step):
        part = slice(start, start + step)
        yield features[part], weights[part], lengths[part]
