"""Cuts a stream of rows into blocks, learns them, and refreshes on a fixed schedule."""

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.online.carried_model import CarriedModel
from ridgestream.pipeline.online.row_block import RowBlock
from ridgestream.pipeline.online.schedule import GRID_ROWS, REFRESH_ROWS, next_cut


class StreamLearner:
    """A carried model, the position on the block grid, and whether an error interrupted a block."""

    def __init__(self, model: CarriedModel) -> None:
        self.model = model
        self._position = 0
        self._is_interrupted = False

    @property
    def is_refreshed(self) -> bool:
        """Whether a scheduled refresh has just been made."""
        return self._position % REFRESH_ROWS == 0

    def refresh(self) -> None:
        """Recompute inverses and β, and start the block grid here; O(n_basis³)."""
        with one_blas_thread():
            self.model.refresh()
        self._position = 0

    def learn(self, X: Floats, targets: Floats, weights: Floats, numbers: Integers | None = None) -> Floats:
        """Learn checked rows; return each one's prediction from the rows before it, shape (rows, n_targets).

        `numbers` (rows,) are their numbers in the stream, by default those after the rows seen.
        """
        numbers = self.model.rows_seen + np.arange(len(X)) if numbers is None else numbers
        predictions, start = np.zeros_like(targets), 0
        self._is_interrupted = True
        with one_blas_thread():
            while start < len(X):
                model = self.model
                rows, weight_seen = next_cut(weights[start:], self._position, model.weight_seen, model.n_basis)
                part = slice(start, start + rows)
                predictions[part] = self._learn_block(X[part], targets[part], weights[part], numbers[part])
                self._count(rows, weight_seen)
                start += rows
        self._is_interrupted = False
        return predictions

    def check_intact(self) -> None:
        """Raise NumericalBreakdown if an error interrupted `learn`, which leaves part of a block in the model."""
        if self._is_interrupted:
            raise NumericalBreakdown(
                "a previous error interrupted this learner in the middle of a block; restore it from a state that was "
                "taken before with OnlineLSSVM.from_state(...)"
            )

    def _learn_block(self, X: Floats, targets: Floats, weights: Floats, numbers: Integers) -> Floats:
        present = np.flatnonzero(weights)
        if len(present) == len(X):
            return self.model.learn(RowBlock(X, targets, weights, numbers))
        predictions = self.model.predict_before(X)
        if len(present):
            block = RowBlock(X[present], targets[present], weights[present], numbers[present])
            predictions[present] = self.model.learn(block)
        return predictions

    def _count(self, rows: int, weight_seen: float) -> None:
        """Count a block's rows and refresh where the schedule says so."""
        self._position += rows
        self.model.count(rows, weight_seen)
        is_solution_due = self._position % GRID_ROWS == 0 and self.model.needs_solution
        if self.is_refreshed or is_solution_due:
            self.model.refresh()
