"""The state of one cell's learner as one vector of numbers: what is kept of a cell that is not being learned.

Counters, the dictionary, K and P as triangles, z, yᵀy, and the published coefficients, where they are known.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.cholesky import pack, unpack
from ridgestream.pipeline.online.diagnostics import Numerics
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.online.state import OnlineState

N_BASIS, IS_PUBLISHED, ROWS_SEEN, WEIGHT_SEEN, PENALTY, SWAPS = range(6)
"""The positions of counters; numerics follow them."""

_NUMERICS = 6
_COUNTERS = _NUMERICS + len(fields(Numerics))


@dataclass(frozen=True)
class CellLayout:
    """Where the parts of a cell's state are in its vector."""

    n_features: int
    """Features of a row."""
    n_targets: int
    """Targets of a row."""

    def size(self, n_basis: int) -> int:
        """Return the length of the vector of a cell with this many basis vectors."""
        return sum(self._sizes(n_basis).values())

    def pack(self, state: OnlineState, coefficients: Floats | None) -> Floats:
        """Return the vector of a state, with published coefficients (n_basis, n_targets) if they are known."""
        m, numerics = state.n_basis, vars(state.numerics).values()
        is_published = float(coefficients is not None)
        counters = [m, is_published, state.rows_seen, state.weight_seen, state.penalty, state.swaps, *numerics]
        parts = {
            "counters": np.array(counters),
            "basis_vectors": state.basis_vectors,
            "basis_rows": state.basis_rows,
            "gram": pack(state.gram),
            "normal_matrix": pack(state.normal_matrix),
            "normal_rhs": state.normal_rhs,
            "target_square": state.target_square,
            "coefficients": np.zeros_like(state.normal_rhs) if coefficients is None else coefficients,
        }
        return np.concatenate([np.ravel(parts[name]) for name in self._sizes(m)])

    def unpack(self, packed: Floats, parameters: OnlineSettings, centre: Floats, *, whole: bool = True) -> OnlineState:
        """Return the state of a vector, which may be longer; an empty one is that of a cell without rows.

        Unless `whole`, K and P are upper triangles, which are enough to continue learning.
        Raises InputError for a vector that is too short for what it says of itself.
        """
        if not len(packed):
            return _empty(parameters, centre, self.n_targets)
        parts, m = self._parts(packed), n_basis_of(packed)
        return OnlineState(
            parameters=parameters,
            centre=centre,
            basis_vectors=parts["basis_vectors"].reshape(m, self.n_features),
            basis_rows=parts["basis_rows"].astype(np.int64),
            gram=unpack(parts["gram"], whole=whole),
            normal_matrix=unpack(parts["normal_matrix"], whole=whole),
            normal_rhs=parts["normal_rhs"].reshape(m, self.n_targets),
            target_square=parts["target_square"].reshape(self.n_targets, self.n_targets),
            rows_seen=rows_seen_of(packed),
            weight_seen=float(packed[WEIGHT_SEEN]),
            penalty=float(packed[PENALTY]),
            swaps=int(packed[SWAPS]),
            numerics=numerics_of(packed),
        )

    def expansion(self, packed: Floats) -> tuple[Floats, Floats]:
        """Return dictionary (n_basis, n_features) and published coefficients (n_basis, n_targets) of a vector."""
        parts, m = self._parts(packed), n_basis_of(packed)
        return parts["basis_vectors"].reshape(m, self.n_features), parts["coefficients"].reshape(m, self.n_targets)

    def _parts(self, packed: Floats) -> dict[str, Floats]:
        m = n_basis_of(packed)
        if m < 0 or len(packed) < self.size(m):
            raise InputError(f"a cell of {m} basis vectors has {len(packed)} numbers: its state is damaged")
        sizes = self._sizes(m)
        ends = np.cumsum([*sizes.values()]).tolist()
        return {name: packed[end - sizes[name] : end] for name, end in zip(sizes, ends, strict=True)}

    def _sizes(self, m: int) -> dict[str, int]:
        triangle, outputs = m * (m + 1) // 2, m * self.n_targets
        return {
            "counters": _COUNTERS,
            "basis_vectors": m * self.n_features,
            "basis_rows": m,
            "gram": triangle,
            "normal_matrix": triangle,
            "normal_rhs": outputs,
            "target_square": self.n_targets**2,
            "coefficients": outputs,
        }


def n_basis_of(packed: Floats) -> int:
    """Return the number of basis vectors of a cell."""
    return int(packed[N_BASIS]) if len(packed) else 0


def rows_seen_of(packed: Floats) -> int:
    """Return the number of rows that a cell has learned."""
    return int(packed[ROWS_SEEN]) if len(packed) else 0


def numerics_of(packed: Floats) -> Numerics:
    """Return the numerics of a cell."""
    numerics = Numerics(*packed[_NUMERICS:_COUNTERS].tolist())
    return replace(numerics, jitter_count=int(numerics.jitter_count), refused=int(numerics.refused))


def is_published(packed: Floats) -> bool:
    """Return whether the vector has the coefficients that follow from its sums; a cell without vectors needs none."""
    return not n_basis_of(packed) or bool(packed[IS_PUBLISHED])


def _empty(parameters: OnlineSettings, centre: Floats, n_targets: int) -> OnlineState:
    return replace(OnlineState.empty(parameters, len(centre), n_targets), centre=centre)
