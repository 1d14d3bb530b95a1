"""Gradients of a kernel expansion: the sum over rows of their outer products, from one pass.

With v = Ru, f(u) = Σ β_i k(v, v_i) has the gradient ∇f = 2R Σ β_i s_i (v − v_i) for a stationary kernel, and
R Σ β_i s_i v_i for one of the inner product, where s_i is the slope of the kernel's formula in what it measures.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import LEARNED, Split
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_block import RowBlock


@dataclass(frozen=True)
class Expansion:
    """A model over the standardized features: a kernel expansion after a metric."""

    metric: Metric
    """R."""
    basis: Basis
    """The kernel and the basis vectors, R applied."""
    coefficients: Floats
    """β, shape (n_basis, n_targets)."""

    def gradients(self, features: Floats) -> Iterator[Floats]:
        """Yield, target by target, the gradient at each row of `features` (rows, n_features), of the same shape."""
        kernel, vectors = self.basis.kernel, self.basis.vectors
        rows = self.metric.apply(features)
        slopes = kernel.slopes(rows, vectors)
        for coefficients in self.coefficients.T:
            weights = slopes * coefficients
            drawn = weights @ vectors
            if kernel.is_stationary:
                drawn = 2.0 * (rows * weights.sum(axis=1)[:, np.newaxis] - drawn)
            yield self.metric.apply(drawn)


@dataclass(frozen=True)
class GradientTask:
    """The model and the rows; the argument of a pass."""

    model: Expansion
    """The model."""
    split: Split
    """The groups of the rows, of which those that judge are left out."""


@dataclass(frozen=True)
class GradientSums:
    """Sums over rows; a commutative monoid under `merge`, up to rounding."""

    products: Floats
    """Σ w ∇f∇fᵀ over rows and targets, shape (n_features, n_features)."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows."""
        return type(self)(self.products + other.products)


@named_pass("metric", "sum_gradients")
def sum_gradients(task: GradientTask, blocks: Iterable[RowBlock]) -> GradientSums:
    """Return Σ w ∇f∇fᵀ over the rows of all blocks that are learned from, of weight above zero.

    O(n_targets · n_features · (n_basis + n_features)) a row.
    """
    model, n_features = task.model, task.model.metric.n_features
    products = np.zeros((n_features, n_features))
    with one_blas_thread():
        for group, rows in chain.from_iterable(map(task.split.parts, blocks)):
            if group != LEARNED:
                continue
            for start in range(0, len(rows.features), model.basis.kernel_rows):
                part = slice(start, start + model.basis.kernel_rows)
                for gradients in model.gradients(rows.features[part]):
                    weighted = gradients if rows.weights is None else gradients * rows.weights[part, np.newaxis]
                    products += weighted.T @ gradients
    return GradientSums((products + products.T) / 2)
