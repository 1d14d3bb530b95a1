"""The state of local experts as arrays and counters of a model's record, and back."""

from dataclasses import asdict, replace
from typing import cast

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.online.experts.cells import Cells
from ridgestream.pipeline.online.experts.experts_state import ExpertsState
from ridgestream.pipeline.online.experts.packed_cell import (
    N_BASIS,
    ROWS_SEEN,
    SWAPS,
    WEIGHT_SEEN,
    CellLayout,
    n_basis_of,
    rows_seen_of,
)
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.stores.catalog.models import CELLS, REFIT_CELLS, ModelRecord
from ridgestream.stores.errors.exceptions import ModelError

CENTRES = "cell_centres"
"""The array of a model of local experts with the centres of its cells, (n_cells, n_features)."""

_COUNTERS = {"n_basis": N_BASIS, "rows_seen": ROWS_SEEN, "weight_seen": WEIGHT_SEEN, "swaps": SWAPS}
_N_TARGETS = "n_targets"


def is_local(record: ModelRecord) -> bool:
    """Return whether the record, read with its arrays, is one of local experts."""
    return CELLS in record.arrays


def with_experts(record: ModelRecord, state: ExpertsState) -> ModelRecord:
    """Return the record with the state of its cells, each in a row as long as the largest dictionary needs.

    The room that a cell may still need keeps the rows of all others where they are in the store.
    """
    cells = _rows_of(state)
    counters = {name: state.total(counter) for name, counter in _COUNTERS.items()} | asdict(state.numerics)
    arrays = record.arrays | {CELLS: cells, CENTRES: state.cells.centres}
    return replace(record, arrays=arrays, counters=counters | {_N_TARGETS: state.n_targets})


def experts_of(record: ModelRecord) -> ExpertsState:
    """Return the state of a record's cells; damaged records raise one of several errors."""
    cells, centres = (_matrix(record, name) for name in (CELLS, CENTRES))
    layout = CellLayout(centres.shape[1], int(record.counters[_N_TARGETS]))
    parameters = OnlineSettings.from_dict(record.parameters["learner"])
    state = ExpertsState(parameters, Cells.of(centres), layout.n_targets, tuple(_trimmed(row, layout) for row in cells))
    state.check()
    return state


def with_refitted_experts(record: ModelRecord, state: ExpertsState) -> ModelRecord:
    """Return the record with other published cells, which further training removes; the learner's are unchanged."""
    return replace(record, arrays=record.arrays | {REFIT_CELLS: _rows_of(state)})


def served_experts_of(record: ModelRecord) -> ExpertsState:
    """Return the cells that predict: those of a refit if there was one; damaged records raise one of several errors."""
    state = experts_of(record)
    if REFIT_CELLS not in record.arrays:
        return state
    refitted = replace(state, packed=tuple(_trimmed(row, state.layout) for row in _matrix(record, REFIT_CELLS)))
    refitted.check()
    return refitted


def _rows_of(state: ExpertsState) -> Floats:
    size = max(state.layout.size(state.parameters.max_basis or 0), *(len(packed) for packed in state.packed))
    cells = np.zeros((len(state.packed), size))
    for row, packed in zip(cells, state.packed, strict=True):
        row[: len(packed)] = packed
    return cells


def _matrix(record: ModelRecord, name: str) -> Floats:
    array = record.arrays.get(name)
    if array is None or array.ndim != 2 or array.dtype != np.float64:
        raise ModelError(f"the model {record.name!r} has no matrix of float64 {name}: its record is damaged")
    return cast("Floats", array)


def _trimmed(row: Floats, layout: CellLayout) -> Floats:
    """Return what is kept of a cell without the room that follows; it is empty for a cell without rows."""
    return row[: layout.size(n_basis_of(row))] if rows_seen_of(row) else np.empty(0)
