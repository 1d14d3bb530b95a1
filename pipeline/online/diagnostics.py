"""How well the arithmetic of a stream went: condition, drift and jitter, kept with the state between refreshes."""

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.cholesky import symmetric

if TYPE_CHECKING:
    from ridgestream.pipeline.online.inverses import Condition


@dataclass(frozen=True)
class Numerics:
    """Figures that tell whether a model's digits can be trusted; zeros before the first refresh."""

    normal_condition: float = 0.0
    """Estimated condition number of P at the last refresh."""
    gram_condition: float = 0.0
    """Estimated condition number of K at the last refresh."""
    drift: float = 0.0
    """How far carried coefficients were from fresh ones where last measured: see `measure_drift`."""
    largest_drift: float = 0.0
    """The largest drift so far."""
    largest_jitter: float = 0.0
    """The most that was ever added to the diagonal of P or K to factorize it; zero if nothing was needed."""
    jitter_count: int = 0
    """At how many refreshes something was added."""
    refused: int = 0
    """How many rows were not taken, though novel and useful, since they would have left P singular within rounding."""

    def after_refusals(self, refused: int) -> Self:
        """Return the figures with so many rows more that were refused for P's condition."""
        return replace(self, refused=self.refused + refused) if refused else self

    def after_refresh(self, condition: "Condition", drift: float | None) -> Self:
        """Return the figures after one more refresh; `drift` is None where there was nothing to compare with."""
        return replace(
            self,
            normal_condition=min(condition.normal_condition, sys.float_info.max),
            gram_condition=min(condition.gram_condition, sys.float_info.max),
            drift=self.drift if drift is None else drift,
            largest_drift=max(self.largest_drift, drift or 0.0),
            largest_jitter=max(self.largest_jitter, condition.jitter),
            jitter_count=self.jitter_count + (condition.jitter > 0),
        )


def measure_drift(gram: Floats, carried: Floats, fresh: Floats) -> float:
    """Return max|K(β − β′)| / max|Kβ′| for carried β and fresh β′ (n_basis, n_targets); O(n_basis²).

    That is how far predictions at the basis vectors had moved, relative to the largest of them. K (n_basis, n_basis) is
    read from its lower triangle.
    """
    K = symmetric(gram)
    size = float(np.abs(K @ fresh).max(initial=0.0))
    return float(np.abs(K @ (carried - fresh)).max(initial=0.0)) / size if size > 0 else 0.0
