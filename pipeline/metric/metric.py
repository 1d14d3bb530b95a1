"""A metric: the symmetric linear map R after which a kernel measures distances, ‖R(u − u′)‖.

Of a learned one, RRᵀ is proportional to the mean outer product of a model's gradients (AGOP): Radhakrishnan,
Beaglehole, Pandit & Belkin, "Mechanism for feature learning in neural networks and backpropagation-free machine
learning models", Science 2024.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import eigh

from ridgestream.pipeline.base.array_checks import Floats, Integers, check_finite
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError


@dataclass(frozen=True)
class Direction:
    """A direction of the feature space that the metric measures by."""

    share: float
    """Its share of the sum of all squared weights."""
    axis: Floats
    """The unit vector, shape (n_features,); its largest entry is positive."""


@dataclass(frozen=True)
class Metric:
    """The linear map R of standardized features."""

    root: Floats
    """R: one weight a feature, shape (n_features,), or a symmetric matrix (n_features, n_features)."""

    def __post_init__(self) -> None:
        root = self.root
        if root.ndim not in (1, 2) or root.shape != root.shape[:1] * root.ndim:
            raise InputError(f"a metric is one weight a feature, or a square matrix; its shape is {root.shape}")
        check_finite(np.atleast_2d(root), "metric")

    @classmethod
    def standardized(cls, n_features: int) -> Self:
        """Return the metric of the standardized features themselves."""
        return cls(np.ones(n_features))

    @classmethod
    def of_gradients(cls, products: Floats, *, diagonal: bool) -> Self:
        """Return R = (M d / tr M)^½ of the gradients' mean outer product M (d, d), up to a factor; O(d³) or O(d).

        Along features whose gradient is zero everywhere nothing is known: each is an axis of weight one. Negative
        eigenvalues, which are rounding, are zero.
        """
        seen = np.diagonal(products) > 0
        if diagonal or not seen.any():
            return cls.of_weights(np.diagonal(products))
        scale = seen.sum() / np.where(seen, np.diagonal(products), 0.0).sum()
        root = np.diag((~seen).astype(np.float64))
        root[np.ix_(seen, seen)] = _square_root(products[np.ix_(seen, seen)] * scale)
        return cls(root)

    @classmethod
    def of_weights(cls, weights: Floats) -> Self:
        """Return R of squared weights (n_features,), up to a factor; a feature without one is an axis of weight one."""
        seen = weights > 0
        if not seen.any():
            return cls.standardized(len(weights))
        positive = np.where(seen, weights, 0.0)
        return cls(np.where(seen, np.sqrt(positive * (seen.sum() / positive.sum())), 1.0))

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.root)

    @property
    def is_standardized(self) -> bool:
        """Whether it is that of the standardized features themselves."""
        return self.is_diagonal and bool(np.all(self.root == 1.0))

    @property
    def is_diagonal(self) -> bool:
        """Whether it weighs each feature by itself."""
        return self.root.ndim == 1

    def apply(self, features: Floats) -> Floats:
        """Return Ru for each row u of `features` (rows, n_features); O(n_features²) a row, or O(n_features)."""
        if self.is_diagonal:
            return np.asarray(features * self.root)
        with one_blas_thread():
            return np.asarray(features @ self.root)

    def scaled(self, factor: float) -> Self:
        """Return the metric of distances that are longer by this factor."""
        return type(self)(self.root * factor)

    def importance(self) -> Floats:
        """Return each feature's share of the squared gradients, diag(RRᵀ)/tr(RRᵀ), shape (n_features,)."""
        squares = self.root**2 if self.is_diagonal else np.einsum("ij,ij->i", self.root, self.root)
        return np.asarray(squares / squares.sum())

    def directions(self, count: int) -> tuple[Direction, ...]:
        """Return the `count` leading eigenvectors of RRᵀ, by descending share; O(n_features³)."""
        values, axes = eigh(np.diag(self.root) if self.is_diagonal else self.root)
        shares = values**2 / np.sum(values**2)
        leading = np.argsort(-shares, kind="stable")[:count]
        return tuple(Direction(float(shares[i]), _oriented(axes[:, i])) for i in leading)

    def extended(self, positions: Integers | Sequence[int]) -> Self:
        """Return the metric with further features, each an axis of average weight; positions as for `numpy.insert`."""
        if not len(positions):
            return self
        average = float(np.sqrt(np.sum(self.root**2) / self.n_features))
        if self.is_diagonal:
            return type(self)(np.insert(self.root, positions, average))
        root = self.root
        for axis in (0, 1):
            root = np.insert(root, positions, 0.0, axis=axis)
        added = np.insert(np.zeros(self.n_features), positions, average)
        return type(self)(root + np.diag(added))


def _square_root(matrix: Floats) -> Floats:
    """Return the symmetric square root of a positive semidefinite matrix."""
    values, vectors = eigh(matrix)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return np.asarray((root + root.T) / 2)


def _oriented(axis: Floats) -> Floats:
    return axis if axis[np.argmax(np.abs(axis))] > 0 else -axis
