"""OLS the slow way: every kernel value at once, the normal matrix of all rows, and a fit for every candidate."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from support.references.forward_selection import Choices, choose_slowly

from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.candidate_rounds import draw_round

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DenseOLS:
    """The rows, their kernel matrix and the regularized cost."""

    X: Array
    """(rows, n_features)."""
    Y: Array
    """(rows, n_targets)."""
    weights: Array
    """(rows,)."""
    kernel: Kernel
    regularization: float

    @cached_property
    def kernel_matrix(self) -> Array:
        return self.kernel.block(self.X, self.X)

    @cached_property
    def normal(self) -> Array:
        K = self.kernel_matrix
        return np.asarray(K.T @ np.diag(self.weights) @ K + self.regularization * self.weights.sum() * K)

    @cached_property
    def rhs(self) -> Array:
        return np.asarray(self.kernel_matrix.T @ (self.weights[:, np.newaxis] * self.Y))

    def choose(self, max_basis: int, candidates: int | None, seed: int, rounds: int) -> Choices:
        """Choose among all rows of weight each round, or among `candidates` drawn ones."""
        n_rows = len(self.X)
        drawn = [draw_round(seed, number, n_rows, candidates or n_rows) for number in range(rounds)]
        allowed = [[place for place in places.tolist() if self.weights[place] > 0] for places in drawn]
        return choose_slowly(self.normal, self.rhs, allowed, max_basis)

    def coefficients(self, places: list[int]) -> Array:
        """β of a dictionary of these rows."""
        return np.asarray(np.linalg.solve(self.normal[np.ix_(places, places)], self.rhs[places]))

    def gcv(self, places: list[int]) -> float:
        """Mean squared error, summed over targets, over (1 − effective parameters/n)²."""
        K, n = self.kernel_matrix[:, places], self.weights.sum()
        hat = K @ np.linalg.solve(self.normal[np.ix_(places, places)], K.T @ np.diag(self.weights))
        errors = self.weights @ (self.Y - K @ self.coefficients(places)) ** 2
        return float(errors.sum() / n / (1 - np.trace(hat) / n) ** 2)
