"""Learns a part of a stream cell by cell, so that one cell's matrices are at hand at a time.

A cell's learner is made from its state, refreshed, given its rows of the part in their order, and put away again: what
a part leaves behind is a state that continues bit for bit, whoever learns the next one.
"""

from collections.abc import Iterator

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.online.carried_model import CarriedModel
from ridgestream.pipeline.online.experts.experts_state import ExpertsState
from ridgestream.pipeline.online.row_block import RowBlock
from ridgestream.pipeline.online.row_strip import Workspace
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.online.stream_learner import StreamLearner

PART_ROWS = 2**17
"""The most rows that are divided among the cells at once: a cell costs a refresh whenever it has some of them."""

PART_BYTES = 64 * 2**20
"""The most bytes of their features, unless the fewest rows need more."""

FEWEST_ROWS = 4096


def part_rows(n_features: int) -> int:
    """Return the most rows of a part, a power of two."""
    fitting = PART_BYTES // (8 * max(1, n_features))
    return min(PART_ROWS, max(FEWEST_ROWS, 1 << max(fitting.bit_length() - 1, 0)))


def learn_part(state: ExpertsState, rows: RowBlock) -> tuple[ExpertsState, Floats]:
    """Return the state after these rows, some of weight zero, and each one's prediction before it was learned."""
    workspace, predictions = Workspace(), np.zeros_like(rows.targets)

    def learned() -> Iterator[tuple[int, OnlineState]]:
        for cell, own in state.cells.groups(rows.X):
            after, predictions[own] = _learn_cell(state.state_of(cell, whole=False), rows, own, workspace)
            yield cell, after

    return state.with_states(learned()), predictions


def _learn_cell(state: OnlineState, rows: RowBlock, own: Integers, workspace: Workspace) -> tuple[OnlineState, Floats]:
    model = CarriedModel(state, state.centre, workspace)
    stream = StreamLearner(model)
    stream.refresh()
    model.numerics = state.numerics
    predictions = stream.learn(rows.X[own], rows.targets[own], rows.weights[own], rows.row_numbers[own])
    return model.state(whole=False), predictions
