"""The state of local experts: the cells, and each one's learner as a vector; a cell without rows has an empty one."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.online.carried_model import CarriedModel
from ridgestream.pipeline.online.diagnostics import Numerics
from ridgestream.pipeline.online.experts.cells import Cells
from ridgestream.pipeline.online.experts.packed_cell import CellLayout, is_published, n_basis_of, numerics_of
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.online.state import OnlineState


@dataclass(frozen=True)
class ExpertsState:
    """All that is needed to continue learning; what is kept of a cell is never changed, only replaced."""

    parameters: OnlineSettings
    """The settings of every cell."""
    cells: Cells
    """The cells."""
    n_targets: int
    """Targets of a row; 0 before the first row."""
    packed: tuple[Floats, ...]
    """What is kept of each cell, as `CellLayout` says."""

    @classmethod
    def begin(cls, parameters: OnlineSettings, cells: Cells, n_targets: int = 0) -> Self:
        """Return the state before the first row."""
        return cls(parameters, cells, n_targets, (np.empty(0),) * len(cells))

    @property
    def layout(self) -> CellLayout:
        """Where the parts of a cell's state are in its vector."""
        return CellLayout(self.cells.centres.shape[1], self.n_targets)

    @property
    def started(self) -> Iterator[int]:
        """The cells that have learned a row, in ascending order."""
        return (cell for cell, packed in enumerate(self.packed) if len(packed))

    @property
    def answering(self) -> Integers:
        """The cells that have a basis vector, in ascending order."""
        return np.flatnonzero([n_basis_of(packed) > 0 for packed in self.packed])

    @property
    def numerics(self) -> Numerics:
        """The worst condition and rounding error of all cells, and the sums of what is counted."""
        return reduce(Numerics.merge, (numerics_of(self.packed[cell]) for cell in self.started), Numerics())

    def total(self, counter: int) -> float:
        """Return the sum of a counter, one of `packed_cell`, over all cells in their order."""
        return sum((float(self.packed[cell][counter]) for cell in self.started), 0.0)

    def state_of(self, cell: int, *, whole: bool = True) -> OnlineState:
        """Return the state of a cell's learner; unless `whole`, K and P are upper triangles."""
        return self.layout.unpack(self.packed[cell], self.parameters, self.cells.centres[cell], whole=whole)

    def expansion(self, cell: int) -> tuple[Floats, Floats]:
        """Return the dictionary and the published coefficients of a cell of `published`."""
        return self.layout.expansion(self.packed[cell])

    def with_states(self, states: Iterable[tuple[int, OnlineState]]) -> Self:
        """Return the state with these states of cells, by their numbers; one of them is at hand at a time."""
        return self.having({cell: self.layout.pack(state, None) for cell, state in states})

    def without_sums(self) -> Self:
        """Return the same dictionaries before the first row."""

        def bare(cell: int) -> OnlineState:
            own = self.state_of(cell, whole=False)
            sums = {
                name: np.zeros_like(getattr(own, name)) for name in ("normal_matrix", "normal_rhs", "target_square")
            }
            return replace(own, **sums, rows_seen=0, weight_seen=0.0, penalty=0.0)

        return self.with_states((cell, bare(cell)) for cell in self.started)

    def regularized(self, regularization: float) -> Self:
        """Return the state with another λ for all rows of all cells, past ones too: P += (γ′ − γ)K."""
        parameters = replace(self.parameters, regularization=regularization)

        def changed(cell: int) -> OnlineState:
            model = CarriedModel(self.state_of(cell, whole=False), self.cells.centres[cell])
            model.set_regularization(parameters)
            return model.state(whole=False)

        return replace(self, parameters=parameters).with_states((cell, changed(cell)) for cell in self.started)

    def published(self) -> Self:
        """Return the state with the published coefficients of all cells; O(n_basis³) a cell that lacks them."""
        lacking = (cell for cell in self.started if not is_published(self.packed[cell]))
        return self.having({cell: self._published(cell) for cell in lacking})

    def widened(self, indices: Integers) -> Self:
        """Return the state with features inserted at these indices, as `numpy.insert` takes them, zero in every row."""
        states = ((cell, self.state_of(cell, whole=False).widened(indices)) for cell in self.started)
        centres = np.insert(self.cells.centres, indices, 0.0, axis=1)
        return replace(self, cells=Cells(centres)).with_states(states)

    def check(self) -> None:
        """Raise InputError if shapes do not match or a value is not finite."""
        if len(self.packed) != len(self.cells) or not np.isfinite(self.cells.centres).all():
            raise InputError(f"the state has {len(self.cells)} centres and {len(self.packed)} cells: it is damaged")
        for cell in self.started:
            if not np.isfinite(self.packed[cell]).all():
                raise InputError(f"cell {cell} of the state holds a value that is not finite: the state is damaged")
            self.expansion(cell)

    def _published(self, cell: int) -> Floats:
        state = self.state_of(cell, whole=False)
        return self.layout.pack(state, CarriedModel(state, state.centre).published_coefficients())

    def only(self, cells: Iterable[int]) -> Self:
        """Return the state of these cells, with the centres of all: the others have no rows."""
        chosen = set(cells)
        return replace(self, packed=tuple(kept if i in chosen else np.empty(0) for i, kept in enumerate(self.packed)))

    def having(self, packed: Mapping[int, Floats]) -> Self:
        """Return the state with these vectors of cells, by their numbers."""
        return replace(self, packed=tuple(packed.get(cell, kept) for cell, kept in enumerate(self.packed)))
