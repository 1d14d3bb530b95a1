"""Numerical diagnostics of a stream: condition numbers, rounding error and jitter, stored with the state."""

import sys
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.cholesky import symmetric

if TYPE_CHECKING:
    from ridgestream.pipeline.online.inverses import Condition


@dataclass(frozen=True)
class Numerics:
    """Figures that show how many digits of a model can be trusted; zeros before the first refresh."""

    normal_condition: float = 0.0
    """Estimated condition number of P at the last refresh."""
    gram_condition: float = 0.0
    """Estimated condition number of K at the last refresh."""
    rounding_error: float = 0.0
    """How far carried coefficients were from recomputed ones when last measured: see `rounding_error_of`."""
    largest_rounding_error: float = 0.0
    """The largest so far."""
    largest_jitter: float = 0.0
    """The largest amount added so far to the diagonal of P or K to factorize it; zero if it was never needed."""
    jitter_count: int = 0
    """Number of refreshes at which such an amount was added."""
    refused: int = 0
    """Number of novel and useful rows refused because they would have left P singular within rounding."""

    def after_refusals(self, refused: int) -> Self:
        """Return the figures with this number of further rows refused."""
        return replace(self, refused=self.refused + refused) if refused else self

    def after_refresh(self, condition: "Condition", rounding_error: float | None) -> Self:
        """Return the figures after one more refresh; `rounding_error` is None if there was nothing to compare with."""
        return replace(
            self,
            normal_condition=min(condition.normal_condition, sys.float_info.max),
            gram_condition=min(condition.gram_condition, sys.float_info.max),
            rounding_error=self.rounding_error if rounding_error is None else rounding_error,
            largest_rounding_error=max(self.largest_rounding_error, rounding_error or 0.0),
            largest_jitter=max(self.largest_jitter, condition.jitter),
            jitter_count=self.jitter_count + (condition.jitter > 0),
        )

    def merge(self, other: Self) -> Self:
        """Return the figures of two learners together: the worst of both, and the sums of what is counted."""
        counted = {"jitter_count", "refused"}
        both = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return replace(self, **{name: sum(pair) if name in counted else max(pair) for name, pair in both.items()})


def rounding_error_of(gram: Floats, carried: Floats, fresh: Floats) -> float:
    """Return max|K(β − β′)| / max|Kβ′| for carried β and recomputed β′ (n_basis, n_targets); O(n_basis²).

    That is the error of the predictions at the basis vectors, relative to the largest of them. K (n_basis, n_basis) is
    read from its lower triangle.
    """
    K = symmetric(gram)
    size = float(np.abs(K @ fresh).max(initial=0.0))
    return float(np.abs(K @ (carried - fresh)).max(initial=0.0)) / size if size > 0 else 0.0
