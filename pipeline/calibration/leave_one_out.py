"""Learned rows as if they had not been learned: predictions and error bars without a row, in closed form.

With M = G + γK, β = M⁻¹z, k the values of a row of weight w and h = kᵀM⁻¹k, a fit without the row predicts
y − (y − f)/(1 − wh), and its kᵀM⁻¹k is h/(1 − wh). If the row is basis vector j itself, it leaves the dictionary first:
f falls by (M⁻¹k)_j β_j / (M⁻¹)_jj, h by (M⁻¹k)_j² / (M⁻¹)_jj, and the novelty of the row is 1/(K⁻¹)_jj. All of that is
exact for least squares over the remaining dictionary; how the dictionary was chosen still knows the row.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.cholesky import Cholesky

_LEAST_REMAINDER = 1e-9
"""1 − wh is at least this, within rounding of a row that alone determines its own prediction."""


@dataclass(frozen=True)
class LeftOut:
    """Rows without which the model is fitted, one by one."""

    outputs: Floats
    """The prediction of each, shape (rows, n_outputs)."""
    leverage: Floats
    """kᵀM⁻¹k of each, shape (rows,)."""
    novelty: Floats
    """The squared distance of each from the span of the dictionary in feature space, shape (rows,)."""


@dataclass(frozen=True)
class LeaveOneOut:
    """A model over a dictionary, as far as its rows depend on it."""

    coefficients: Floats
    """β, shape (n_functions, n_outputs)."""
    normal: Cholesky
    """The factor of M, (n_functions, n_functions)."""
    gram: Cholesky
    """The factor of K, (n_basis, n_basis)."""

    def of(self, values: Floats, self_kernel: Floats, targets: Floats, weights: Floats, places: Integers) -> LeftOut:
        """Return the rows with these values (rows, n_functions), k(x, x), targets and weights; O(n_functions²) a row.

        `places` (rows,) is the position of a row in the dictionary, −1 for one that is not in it.
        """
        solved, spanned = self.normal.solve(values.T).T, values[:, : len(self.gram.factor)]
        outputs, leverage = values @ self.coefficients, np.einsum("ij,ij->i", values, solved)
        novelty = self_kernel - np.einsum("ij,ij->i", spanned, self.gram.solve(spanned.T).T)
        own = np.flatnonzero(places >= 0)
        if len(own):
            j = places[own]
            shares = solved[own, j] / self._inverse_diagonals[0][j]
            outputs[own] -= shares[:, np.newaxis] * self.coefficients[j]
            leverage[own] -= shares * solved[own, j]
            novelty[own] = 1 / self._inverse_diagonals[1][j]
        remainder = np.maximum(1 - weights * leverage, _LEAST_REMAINDER)
        errors = (targets - outputs) / remainder[:, np.newaxis]
        return LeftOut(targets - errors, np.maximum(leverage, 0.0) / remainder, np.maximum(novelty, 0.0))

    @cached_property
    def _inverse_diagonals(self) -> tuple[Floats, Floats]:
        """The diagonals of M⁻¹ and K⁻¹; O(n_functions³)."""
        normal, gram = (np.diagonal(factor.inverse()).copy() for factor in (self.normal, self.gram))
        return normal, gram
