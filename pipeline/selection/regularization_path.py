"""λ by generalized cross-validation, for every λ from one factorization of the sums over rows.

With P₀ = G + λ₀nK = LLᵀ and L⁻¹KL⁻ᵀ = QSQᵀ, where n = Σ w, P = L Q(I + (λ − λ₀)nS)QᵀLᵀ is diagonal for every λ. With
g = 1 − λ₀nS, the eigenvalues of G relative to P₀, and u = QᵀL⁻¹z, the coefficients are c = u/(g + λnS), the squared
error is yy − 2uᵀc + cᵀgc, and the effective number of parameters, tr(P⁻¹G), is Σ g/(g + λnS).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import eigh, lapack

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.cholesky import check_info
from ridgestream.pipeline.selection.nested_models import gcv_of
from ridgestream.pipeline.sums.normal_equations import BlockStatistics

STEP = 10.0**0.5
"""The ratio of neighbouring λ on the path."""

DECADES = 8
"""The path goes at most so many decades away from where it starts."""


@dataclass(frozen=True)
class RegularizationPath:
    """GCV of the models of one dictionary for every λ."""

    products: Floats
    """g, the eigenvalues of G relative to P₀, shape (n,)."""
    penalties: Floats
    """nS, those of nK, shape (n,)."""
    half_solution: Floats
    """u, shape (n, n_targets)."""
    target_squares: Floats
    """yy of each target, shape (n_targets,)."""
    weight: float
    """n = Σ w."""

    @classmethod
    def of(cls, sums: BlockStatistics, penalty: Floats, regularization: float) -> Self:
        """Return the path through λ₀ = `regularization`, with K (n, n) as `penalty`; O(n³).

        Raises NumericalBreakdown if P₀ is not positive definite within rounding.
        """
        normal = sums.factorize(penalty, regularization)
        lower = np.tril(normal.factor)
        rotated, info = lapack.dsygst(penalty, lower, itype=1, lower=1)
        check_info("dsygst", info)
        eigenvalues, vectors = eigh(rotated, lower=True, check_finite=False)
        relative = np.clip(eigenvalues * sums.weight, 0.0, 1.0 / regularization)
        half, info = lapack.dtrtrs(lower, sums.rhs, lower=1)
        check_info("dtrtrs", info)
        return cls(
            1.0 - regularization * relative,
            relative,
            vectors.T @ half,
            np.diagonal(sums.target_square).copy(),
            sums.weight,
        )

    def gcv(self, regularization: float) -> float:
        """Return GCV with this λ per row; O(n · n_targets)."""
        g = self.products[:, np.newaxis]
        shrunk = g + regularization * self.penalties[:, np.newaxis]
        u = self.half_solution
        coefficients = u / shrunk
        errors = self.target_squares + np.sum(coefficients * (g * coefficients - 2.0 * u), axis=0)
        freedom = float(np.sum(g / shrunk))
        return float(gcv_of(np.maximum(errors, 0.0)[np.newaxis], np.array([freedom]), self.weight)[0])

    def best(self, start: float) -> float:
        """Return the λ of least GCV, from `start` downhill by half decades as long as it falls."""
        best, least = start, self.gcv(start)
        for ratio in (STEP, 1.0 / STEP):
            for power in range(1, 2 * DECADES + 1):
                value = self.gcv(start * ratio**power)
                if value >= least:
                    break
                best, least = start * ratio**power, value
        return best


def choose_regularization(sums: BlockStatistics, penalty: Floats, start: float) -> float:
    """Return the λ per row of least GCV for the rows of `sums`, found from `start` on; O(n³).

    It needs exact sums: those that the online learner accumulates understate the products of earlier rows with later
    vectors, and GCV takes the difference for signal. Raises NumericalBreakdown if G + λnK is not positive definite.
    """
    return RegularizationPath.of(sums, penalty, start).best(start)
