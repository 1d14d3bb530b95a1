"""Least squares temporal differences from stored kernel values: A and b straight from their definition.

`StoredTransitions` carries the kernel values of all past transitions; those of new basis vectors are projections.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def dense_lstd(K: Array, values: Array, ahead: Array, rewards: Array, ridge: float) -> Array:
    """Solve Σ φ(φ − γφ′)ᵀβ + ridge·Kβ = Σ φr, with γφ′ given as `ahead`, zero where an episode ends."""
    A = sum((np.outer(now, now - then) for now, then in zip(values, ahead, strict=True)), start=ridge * K)
    return np.asarray(np.linalg.solve(A, values.T @ rewards))


@dataclass
class StoredTransitions:
    """Transitions over a dictionary that changes."""

    kernel: Any
    discount: float
    vectors: Array
    values: Array
    ahead: Array
    rewards: Array

    @classmethod
    def empty(cls, kernel: Any, discount: float, n_features: int) -> "StoredTransitions":
        nothing = np.empty((0, 0))
        return cls(kernel, discount, np.empty((0, n_features)), nothing, nothing, np.empty((0, 1)))

    def change(self, vectors: Array) -> None:
        """Replace the kernel values of new vectors by projections, value by value."""
        combinations = np.zeros((len(vectors), len(self.vectors)))
        for i, vector in enumerate(vectors):
            same = [j for j, old in enumerate(self.vectors) if np.array_equal(old, vector)]
            if same:
                combinations[i, same[0]] = 1.0
            elif len(self.vectors):
                K = self.kernel.block(self.vectors, self.vectors)
                combinations[i] = np.linalg.solve(K, self.kernel.block(self.vectors, vector[np.newaxis])[:, 0])
        self.vectors, self.values, self.ahead = vectors, self.values @ combinations.T, self.ahead @ combinations.T

    def add(self, X: Array, rewards: Array, X_next: Array, done: Array) -> None:
        going = self.discount * (1.0 - done[:, np.newaxis])
        self.values = np.vstack([self.values, self.kernel.block(X, self.vectors)])
        self.ahead = np.vstack([self.ahead, going * self.kernel.block(X_next, self.vectors)])
        self.rewards = np.vstack([self.rewards, rewards])

    def coefficients(self, regularization: float) -> Array:
        K = self.kernel.block(self.vectors, self.vectors)
        return dense_lstd(K, self.values, self.ahead, self.rewards, regularization * len(self.rewards))
