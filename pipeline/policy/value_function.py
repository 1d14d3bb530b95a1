"""Value functions over a dictionary: sums over transitions, with the coefficients that follow from them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le

from ridgestream.pipeline.base.array_checks import Floats, check_rows, check_targets, check_weights
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.events import STEP_SUM_TRANSITIONS
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_set import ArrayRows, RowSet
from ridgestream.pipeline.sums.temporal_differences import TransitionStatistics, TransitionSumming, sum_transitions

Update = Literal["online", "batch"]
"""How a stream of transitions is learned."""


@dataclass(frozen=True)
class PolicySettings:
    """Policy evaluation by least squares temporal differences."""

    discount: Annotated[float, Ge(0), Le(1)] = 0.99
    """γ: a reward after t further steps counts γᵗ; 1 only if episodes end."""
    update: Update = "online"
    """"online": one pass chooses the dictionary and sums. "batch": efvs chooses it from all transitions of the first
    training, and one more pass sums."""
    selection: Literal["novelty", "supervised"] = "novelty"
    """Online, which states enter the dictionary: novel ones until it is full, or novel ones that are useful for r +
    γV(x′), which then replace the weakest."""

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True)
class LSTDSettings:
    """What a value function is, apart from its dictionary."""

    discount: Annotated[float, Ge(0), Le(1)] = 0.99
    """γ: a reward after t further steps counts γᵗ; 1 only if episodes end."""
    regularization: Annotated[float, Gt(0)] = 1e-5
    """λ per row: the coefficients solve (A + λnK)β = b."""

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True)
class ValueFunction:
    """V(x) = Σ βᵢ k(xᵢ, x) for each reward, from the transitions summed so far."""

    basis: Basis
    """The dictionary."""
    settings: LSTDSettings
    """Discount and regularization."""
    sums: TransitionStatistics
    """The sums over the transitions."""

    @classmethod
    def empty(cls, basis: Basis, settings: LSTDSettings, n_rewards: int) -> Self:
        """Return the value function of no transition, which is zero."""
        return cls(basis, settings, TransitionStatistics.empty(basis.n_functions, n_rewards))

    @property
    def summing(self) -> TransitionSumming:
        """The sums that it is computed from."""
        return TransitionSumming(self.basis, self.settings.discount, self.sums.rhs.shape[1])

    @cached_property
    def coefficients(self) -> Floats:
        """β = (A + λnK)⁻¹b, shape (n_basis, n_rewards), read-only; raises NumericalBreakdown if that is singular."""
        with one_blas_thread():
            solution = self.sums.solve(self.basis.penalty(), self.settings.regularization)
        solution.setflags(write=False)
        return solution

    def checked(self) -> Self:
        """Return the value function; raises InputError if it sums rewards without discount and without an end."""
        if self.settings.discount == 1 and self.sums.weight and not self.sums.ended:
            raise InputError(
                "with discount 1 episodes must end: no transition has done = 1, so that rewards add up without bound; "
                "give done, or a discount below 1"
            )
        return self

    def learn(self, transitions: RowSet) -> Self:
        """Return the value function with these transitions added; one pass of O(n_basis²) a row."""
        return self.merge(transitions.reduce(sum_transitions, self.summing, STEP_SUM_TRANSITIONS))

    def merge(self, sums: TransitionStatistics) -> Self:
        """Return the value function with these sums added."""
        return replace(self, sums=self.sums.merge(sums))

    def predict(self, X: Floats) -> Floats:
        """Return V at rows (rows, n_features), shape (rows, n_rewards); O(n_basis) a row."""
        return self.basis.outputs(X, self.coefficients)


def check_transitions(
    X: npt.ArrayLike,
    reward: npt.ArrayLike,
    X_next: npt.ArrayLike,
    done: npt.ArrayLike | None,
    sample_weight: npt.ArrayLike | None,
    values: ValueFunction | None,
) -> ArrayRows:
    """Return transitions as rows with the features (x, x′, c), as many features and rewards as those of `values`.

    Raises InputError naming an invalid argument.
    """
    rows = check_rows(X, values.basis.vectors.shape[1] if values else None)
    rewards = check_targets(reward, len(rows), values.sums.rhs.shape[1] if values else None, "reward")
    ends = np.zeros(len(rows)) if done is None else check_weights(done, len(rows), "done")
    wrong = np.flatnonzero((ends != 0) & (ends != 1))
    if len(wrong):
        raise InputError(f"done of row {wrong[0]} is {ends[wrong[0]]}; it must be 1 where an episode ends, else 0")
    given = np.asarray(X_next)
    after = np.where(ends[:, np.newaxis] == 1, rows, given) if given.shape == rows.shape else given
    following = check_rows(after, rows.shape[1], "X_next")
    if len(following) != len(rows):
        raise InputError(f"X_next must have one row for each of the {len(rows)} rows of X, it has {len(following)}")
    weights = None if sample_weight is None else check_weights(sample_weight, len(rows))
    return ArrayRows(np.column_stack([rows, following, 1.0 - ends]), rewards, weights)
