"""Local experts that are tried on a pilot's first rows: a pass that workers share by cells."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import FOLDS, LATER, LEARNED, LEFT_OUT, Split
from ridgestream.pipeline.online.experts.cell_learning import check_block, learn_block
from ridgestream.pipeline.online.experts.cells import Cells
from ridgestream.pipeline.online.experts.experts_state import ExpertsState
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.row_block import RowBlock, choose_rows, drop_absent
from ridgestream.pipeline.training.online.shared_cells import divide_cells


@dataclass(frozen=True)
class TrialRows:
    """The first rows of a pilot, by which settings are tried."""

    metric: Metric
    """What measures them."""
    count: int
    """Their number, those of weight zero included."""
    is_sorted: bool = False
    """Whether they are sorted by target."""
    leaves_out: bool = False
    """Whether rows left out at random judge, besides the last ones."""
    fold: int | None = None
    """Which of FOLDS folds judges instead; None for none."""

    def of(self, rows: RowBlock) -> RowBlock:
        """Return those of these rows, all of them, that have a weight above zero, measured."""
        present = drop_absent(rows)
        return replace(present, features=self.metric.apply(present.features))

    def group(self, rows: RowBlock, group: int) -> RowBlock:
        """Return those of the measured rows that belong to a group: they are learned, or judge."""
        return choose_rows(rows, np.flatnonzero(self._groups(len(rows.features)) == group))

    def _groups(self, n_rows: int) -> Integers:
        if self.fold is not None:
            return np.where(deal_folds(0, n_rows, FOLDS, 0) == self.fold, LEFT_OUT, LEARNED)
        groups = Split(n_rows, is_sorted=self.is_sorted).groups(0, n_rows)
        return groups if self.leaves_out else np.where(groups == LATER, LATER, LEARNED)


@dataclass(frozen=True)
class CellTrial:
    """Cells to be learned; the argument of a pass over a pilot's rows in one part."""

    rows: TrialRows
    """The rows."""
    settings: OnlineSettings
    """The learners' settings."""
    centres: Floats
    """The centres of the cells."""
    routed: Integers
    """The cell of each row that is learned, which is the same for all settings."""
    cells: Integers
    """The cells that are learned, in ascending order."""
    number: int = 0
    """The number of a share, from zero on."""
    of: int = 1
    """The number of shares."""

    @property
    def state(self) -> ExpertsState:
        """The state before the first row."""
        return ExpertsState.begin(self.settings, Cells.of(self.centres))

    def shares(self, count: int) -> tuple[Self, ...]:
        """Return the shares of as many workers, no more than there are cells."""
        most = min(count, len(self.cells))
        return tuple(replace(self, number=number, of=most) for number in range(most))

    @property
    def own_cells(self) -> Integers:
        """The cells of this share, which have about as many of the rows as those of another."""
        rows = np.bincount(self.routed, minlength=len(self.centres))[self.cells]
        return self.cells[divide_cells(rows.tolist(), self.of)[self.number]]


@dataclass(frozen=True)
class TriedCells:
    """What cells have learned."""

    packed: tuple[Floats, ...]
    """The state of each cell; an empty one for a cell without rows, or of another share."""

    def merge(self, other: Self) -> Self:
        """Return the cells of two shares."""
        return type(self)(
            tuple(own if len(own) else others for own, others in zip(self.packed, other.packed, strict=True))
        )


@named_pass("online", "try_cells")
def try_cells(trial: CellTrial, blocks: Iterable[RowBlock]) -> TriedCells:
    """Learn those of the first rows that do not judge; O(max_basis²) a row."""
    rows = trial.rows.group(trial.rows.of(_first(blocks, trial.rows.count)), LEARNED)
    with one_blas_thread():
        block = check_block(trial.state, rows.features, rows.targets, rows.weights, 0)
        learned, _, _ = learn_block(trial.state, block, trial.own_cells, routed=trial.routed)
    return TriedCells(learned.packed)


def _first(blocks: Iterable[RowBlock], count: int) -> RowBlock:
    """Return the first rows of all blocks together."""
    some = [choose_rows(block, np.arange(min(len(block.features), max(count - block.first, 0)))) for block in blocks]
    weights = [block.weights for block in some if block.weights is not None]
    features, targets = (np.concatenate([getattr(block, name) for block in some]) for name in ("features", "targets"))
    return RowBlock(features, targets, np.concatenate(weights) if weights else None)
