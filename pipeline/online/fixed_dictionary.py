"""The coefficients of a dictionary that no row can change: solved for at each refresh, without an inverse."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.cholesky import cholesky
from ridgestream.pipeline.online.information_form import Information
from ridgestream.pipeline.online.inverses import Condition


@dataclass(frozen=True)
class Solution:
    """The coefficients at a refresh."""

    coefficients: Floats
    """β = P⁻¹z, shape (n_basis, n_targets)."""
    condition: Condition
    """Condition numbers and jitter of the refresh."""

    @classmethod
    def of(cls, information: Information, before: Self | None) -> Self:
        """Solve P β = z; K, which cannot change, is factorized only without a solution `before`; O(n_basis³)."""
        normal = cholesky(information.normal_matrix, "normal matrix P")
        beta = np.ascontiguousarray(normal.solve(information.normal_rhs))
        if before is not None:
            return cls(beta, Condition(normal.condition, before.condition.gram_condition, normal.jitter))
        gram = cholesky(information.gram, "kernel matrix K of the dictionary")
        return cls(beta, Condition(normal.condition, gram.condition, normal.jitter))
