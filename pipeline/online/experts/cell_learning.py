"""Learns a part of a stream cell by cell, so that one cell's matrices are at hand at a time.

A cell's learner is made from its state, refreshed, given its rows of the part in their order, and put away again: what
a part leaves behind is a state that continues bit for bit, whoever learns the next one.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers, check_rows, check_targets, check_weights
from ridgestream.pipeline.base.blas_threads import map_in_threads, one_blas_thread
from ridgestream.pipeline.online.carried_model import CarriedModel
from ridgestream.pipeline.online.experts.cells import group
from ridgestream.pipeline.online.experts.experts_state import ExpertsState
from ridgestream.pipeline.online.information_form import Information
from ridgestream.pipeline.online.row_block import RowBlock
from ridgestream.pipeline.online.row_strip import Workspace
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.online.stream_learner import StreamLearner

PART_ROWS = 2**17
"""The most rows that are divided among the cells at once: a cell costs a refresh whenever it has some of them."""

PART_BYTES = 64 * 2**20
"""The most bytes of their features, unless the fewest rows need more."""

FEWEST_ROWS = 4096

Step = Callable[[OnlineState, RowBlock, Workspace], tuple[OnlineState, Floats]]
"""What a cell does with its rows of a part."""


def part_rows(n_features: int) -> int:
    """Return the most rows of a part, a power of two."""
    fitting = PART_BYTES // (8 * max(1, n_features))
    return min(PART_ROWS, max(FEWEST_ROWS, 1 << max(fitting.bit_length() - 1, 0)))


def check_block(
    state: ExpertsState, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None, first: int
) -> RowBlock:
    """Return the rows that follow `first` rows of the stream; raises InputError unless the state can learn them."""
    rows = check_rows(X, state.cells.centres.shape[1])
    targets = check_targets(y, len(rows), state.n_targets or None)
    weights = check_weights(sample_weight, len(rows))
    return RowBlock(rows, targets, weights, first + np.arange(len(rows)))


def learn_cell(state: OnlineState, rows: RowBlock, workspace: Workspace) -> tuple[OnlineState, Floats]:
    """Return a cell's state after its rows, some of weight zero, and what it predicted before each."""
    model = CarriedModel(state, state.centre, workspace)
    stream = StreamLearner(model)
    stream.refresh()
    model.numerics = state.numerics
    predictions = stream.learn(rows.X, rows.targets, rows.weights, rows.row_numbers)
    return model.state(whole=False), predictions


def sum_cell(state: OnlineState, rows: RowBlock, workspace: Workspace) -> tuple[OnlineState, Floats]:  # noqa: ARG001
    """Return a cell's state with the exact sums of its rows added, its dictionary as it is; nothing is predicted."""
    information, seen = Information(state), state.rows_seen + len(rows)
    if state.n_basis:
        values = state.parameters.kernel.block(rows.X, state.basis_vectors, state.centre)
        information.absorb(values, rows.targets, rows.weights)
    information.absorb_targets(rows.targets, rows.weights)
    summed = replace(
        state,
        normal_matrix=information.matrices(whole=False)[1],
        normal_rhs=information.normal_rhs,
        target_square=information.target_square,
        rows_seen=seen,
        weight_seen=state.weight_seen + float(rows.weights.sum()),
    )
    return summed, np.zeros_like(rows.targets)


def learn_block(
    state: ExpertsState,
    block: RowBlock,
    cells: Integers | None = None,
    step: Step = learn_cell,
    routed: Integers | None = None,
    threads: int = 1,
) -> tuple[ExpertsState, Integers, Floats]:
    """Return the state after the rows of these cells, default all, which rows they are, and their predictions before.

    Rows of weight zero are among them. Predictions have the shape (rows, n_targets). `step` takes a cell's rows, and
    `routed` is the cell of each row, where that is known. Cells are shared by `threads`, which change no bit.
    """
    state, n_targets = replace(state, n_targets=block.targets.shape[1]), block.targets.shape[1]
    places, predictions, most = [np.empty(0, np.int64)], [np.empty((0, n_targets))], part_rows(block.X.shape[1])
    with one_blas_thread():
        for first, part in zip(count(step=most), block.parts(most)):
            nearest = state.cells.nearest(part.X, threads) if routed is None else routed[first : first + most]
            own = np.arange(len(part)) if cells is None else np.flatnonzero(np.isin(nearest, cells))
            rows = part if cells is None else part.select(own)
            state, before = _learn_part(state, rows, nearest[own], step, threads)
            places.append(first + own)
            predictions.append(before)
    return state, np.concatenate(places), np.concatenate(predictions)


def _learn_part(
    state: ExpertsState, rows: RowBlock, routed: Integers, step: Step, threads: int
) -> tuple[ExpertsState, Floats]:
    predictions, workspaces = np.zeros_like(rows.targets), SimpleQueue[Workspace]()
    for _ in range(threads):
        workspaces.put(Workspace())

    def learned(cell_rows: tuple[int, Integers]) -> tuple[int, Floats]:
        (cell, own), workspace = cell_rows, workspaces.get()
        try:
            after, predictions[own] = step(state.state_of(cell, whole=False), rows.select(own), workspace)
        finally:
            workspaces.put(workspace)
        return cell, state.layout.pack(after, None)

    return state.having(dict(map_in_threads(learned, group(routed), threads))), predictions
