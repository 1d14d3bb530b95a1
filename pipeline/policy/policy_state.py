"""The state of online policy evaluation: all that is needed to continue learning, besides the settings."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.online.diagnostics import Numerics
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.sums.temporal_differences import TransitionStatistics


@dataclass(frozen=True)
class PolicyState:
    """The sums over transitions, and the state of the online LS-SVM that selects, as `OnlineState` says."""

    basis_vectors: Floats
    """The dictionary, shape (n_basis, n_features)."""
    basis_rows: Integers
    """The number of each vector's transition, shape (n_basis,)."""
    gram: Floats
    """K."""
    normal_matrix: Floats
    """P."""
    normal_rhs: Floats
    """z."""
    target_square: Floats
    """yᵀy."""
    rows_seen: int
    """The transitions that the dictionary was selected from."""
    weight_seen: float
    """Their weight."""
    penalty: float
    """γ."""
    swaps: int
    """How often a vector was replaced."""
    numerics: Numerics
    """Condition, rounding error and jitter so far."""
    sums: TransitionStatistics
    """The sums."""

    @classmethod
    def of(cls, online: OnlineState, sums: TransitionStatistics) -> Self:
        """Return the state of both."""
        return cls(**{name: getattr(online, name) for name in _SELECTING}, sums=sums)

    def online(self, parameters: OnlineSettings) -> OnlineState:
        """Return the state of what selects, with these settings; raises InputError if it is damaged."""
        centre = np.zeros(self.basis_vectors.shape[1])
        own = {name: getattr(self, name) for name in _SELECTING}
        state = OnlineState(parameters=parameters, centre=centre, **own)
        state.check()
        return state


_SELECTING = tuple(item.name for item in fields(PolicyState) if item.name != "sums")
