"""Local experts: space is cut into cells, and every cell has an online LS-SVM that learns the rows in it.

Divide and conquer is old (Hsieh, Si & Dhillon 2014, "A divide-and-conquer solver for kernel support vector machines",
splits the training set by clusters); here each cell learns in one pass, with a dictionary of bounded size that rows
themselves change, and continues exactly from its state. f jumps where cells meet.
"""

from dataclasses import replace
from functools import reduce
from typing import Self, cast

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers, check_rows, check_targets, check_weights
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError, NumericalBreakdown
from ridgestream.pipeline.features.feature_names import FeatureNames
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.online.diagnostics import Numerics
from ridgestream.pipeline.online.experts.cells import Cells
from ridgestream.pipeline.online.experts.experts_state import ExpertsState
from ridgestream.pipeline.online.experts.packed_cell import N_BASIS, ROWS_SEEN, SWAPS, WEIGHT_SEEN, numerics_of
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM, expand
from ridgestream.pipeline.online.row_strip import Workspace
from ridgestream.pipeline.online.schedule import REFRESH_ROWS
from ridgestream.pipeline.online.selection_rule import Selection
from ridgestream.pipeline.online.settings import OnlineSettings

BUCKET_ROWS = REFRESH_ROWS
"""Rows that are divided among the cells at once, so that one cell's matrices are at hand at a time."""

ROWS_A_VECTOR = 8
"""Learners are refreshed after so many rows of a stream for each basis vector that all cells may have."""


class LocalExperts:
    """Cells around given centres, each with an `OnlineLSSVM` that learns the rows nearest to its centre.

    A row costs O(max_basis²) time, whatever the number of cells, and O(n_cells · n_features) to find its cell; memory
    is O(n_cells · max_basis · (max_basis + n_features)). Cells that get no rows cost nothing. A cell before its first
    row is answered for by the nearest cell that has some. Features should be standardized, or measured by a metric,
    since cells are those of Euclidean distance.

    Args:
        kernel: The kernel of all cells. Distances are measured from a cell's centre.
        centres: The centres of the cells, all different, shape (n_cells, n_features); k-means of some rows serves.
        regularization, max_basis, novelty_threshold, usefulness_threshold: Those of each cell's `OnlineLSSVM`.
        selection: "supervised" or "novelty", as there.

    Raises InputError for a value outside its bounds.

    Each cell is the learner that would have been given its rows alone, bit for bit, and refreshed as often. Splitting a
    stream over several calls at multiples of 32,768 rows after a refresh does not change the bits of the result; other
    splits give the same decisions, and the same values to rounding.

    Attributes:
        parameters: The settings of all cells.
        feature_names_in_: The names of the columns, as those of `OnlineLSSVM`.
        rows_seen: Rows learned so far.

    Example:
        >>> import numpy as np
        >>> from ridgestream import RBF, LocalExperts
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (4000, 1))
        >>> y = np.sin(4 * X[:, 0]) + 0.1 * rng.standard_normal(4000)
        >>> learner = LocalExperts(RBF(gamma=4.0), [[-2.0], [0.0], [2.0]], max_basis=8).partial_fit(X, y)
        >>> learner.predict([[-2.0], [0.4], [2.0]]).round(1).tolist()
        [[-1.0], [1.0], [1.0]]

    """

    def __init__(
        self,
        kernel: Kernel,
        centres: npt.ArrayLike,
        *,
        regularization: float = OnlineSettings.regularization,
        max_basis: int | None = OnlineSettings.max_basis,
        novelty_threshold: float = OnlineSettings.novelty_threshold,
        usefulness_threshold: float = OnlineSettings.usefulness_threshold,
        selection: str = OnlineSettings.selection,
    ) -> None:
        parameters = OnlineSettings(
            kernel=kernel,
            regularization=regularization,
            max_basis=max_basis,
            novelty_threshold=novelty_threshold,
            usefulness_threshold=usefulness_threshold,
            selection=cast("Selection", selection),
        )
        if not (parameters.rule.grows and parameters.max_basis):
            raise InputError("every cell selects its own dictionary: selection is not 'fixed', and max_basis a number")
        self._state: ExpertsState = ExpertsState.begin(parameters, Cells.of(centres))
        self._names, self._workspace = FeatureNames(), Workspace()
        self._learners: dict[int, OnlineLSSVM] = {}
        self._position, self._is_interrupted = 0, False

    @classmethod
    def from_state(cls, state: ExpertsState) -> Self:
        """Return a learner that continues from `state`; raise InputError if the state is damaged."""
        state.check()
        settings = state.parameters
        learner = cls(
            settings.kernel,
            state.cells.centres,
            regularization=settings.regularization,
            max_basis=settings.max_basis,
            novelty_threshold=settings.novelty_threshold,
            usefulness_threshold=settings.usefulness_threshold,
            selection=settings.selection,
        )
        learner._state = state
        return learner

    @property
    def parameters(self) -> OnlineSettings:
        """The settings of all cells."""
        return self._state.parameters

    @property
    def cells(self) -> Cells:
        """The cells."""
        return self._state.cells

    @property
    def feature_names_in_(self) -> tuple[str, ...] | None:
        """The names of the columns, None if the rows learned had none, or since the learner was restored."""
        return self._names.names

    @property
    def n_basis(self) -> int:
        """The number of basis vectors of all cells."""
        return int(self._sum("n_basis", N_BASIS))

    @property
    def rows_seen(self) -> int:
        """Rows learned so far, those of weight zero included."""
        return int(self._sum("rows_seen", ROWS_SEEN))

    @property
    def weight_seen(self) -> float:
        """The sum of their weights."""
        return self._sum("weight_seen", WEIGHT_SEEN)

    @property
    def swaps(self) -> int:
        """How often a basis vector was replaced, in all cells."""
        return int(self._sum("swaps", SWAPS))

    @property
    def numerics(self) -> Numerics:
        """The worst condition and drift of all cells, and the sums of what is counted."""
        kept = (self._state.packed[cell] for cell in self._state.started if cell not in self._learners)
        learning = (learner.numerics for learner in self._learners.values())
        return reduce(Numerics.merge, (*map(numerics_of, kept), *learning), Numerics())

    @property
    def grid_rows(self) -> int:
        """Rows at whose multiples after a refresh a stream may be split without a change of bits."""
        return BUCKET_ROWS

    @property
    def is_refreshed(self) -> bool:
        """Whether a refresh has just been made, so that a state taken now continues bit for bit."""
        return not self._learners

    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn rows X (rows, n_features) and targets y (rows,) or (rows, n_targets); O(max_basis²) per row.

        `sample_weight` and errors are those of `OnlineLSSVM.partial_fit`.
        """
        self.predict_then_learn(X, y, sample_weight)
        return self

    def predict_then_learn(
        self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> Floats:
        """Learn like `partial_fit`; return each row's prediction by its cell from the cell's rows before it.

        Its shape is (rows, n_targets).
        """
        self._check_intact()
        names = self._names.check(X)
        rows = check_rows(X, self.cells.centres.shape[1])
        targets = check_targets(y, len(rows), self._state.n_targets or None)
        weights = check_weights(sample_weight, len(rows))
        self._state, self._names = replace(self._state, n_targets=targets.shape[1]), names
        predictions, start = np.zeros_like(targets), 0
        self._is_interrupted = True
        with one_blas_thread():
            while start < len(rows):
                part = slice(start, min(start + BUCKET_ROWS - self._position % BUCKET_ROWS, len(rows)))
                predictions[part] = self._learn_bucket(rows[part], targets[part], weights[part])
                start = part.stop
        self._is_interrupted = False
        return predictions

    def refresh(self) -> None:
        """Let every cell continue from its exact sums, and start the grid here; O(n_basis³) at a cell's next row.

        Called at every partition's end. A state taken now gives the bits of an uninterrupted run.
        """
        self._state, self._learners, self._position = self.state(), {}, 0

    def widen(self, indices: Integers) -> None:
        """Insert features at these indices, as `numpy.insert` takes them, zero in every row so far.

        Called right after `refresh`, the learner equals one that continues from its widened state.
        """
        if len(indices):
            self.refresh()
            self._state, self._names = self._state.widened(indices), FeatureNames()

    def set_regularization(self, regularization: float) -> None:
        """Change λ for all rows of all cells, past ones too, exactly, and refresh; O(n_basis²) a cell.

        The dictionaries chosen so far stay. Raises InputError unless λ is a positive number.
        """
        self.refresh()
        self._state = self._state.regularized(regularization)

    def predict(self, X: npt.ArrayLike) -> Floats:
        """Return each row's prediction by its cell, shape (rows, n_targets), from published coefficients.

        O(n_basis) a row, of its cell's basis vectors. Where the cell has none yet, the nearest one that has answers.
        """
        self._names.check(X)
        rows, state = check_rows(X, self.cells.centres.shape[1]), self.published_state()
        if not state.n_targets:
            raise InputError("the learner has seen no row yet: call partial_fit first")
        predictions = np.zeros((len(rows), state.n_targets))
        with one_blas_thread():
            for cell, own in self.cells.groups(rows, state.answering):
                vectors, coefficients = state.expansion(cell)
                centre = self.cells.centres[cell]
                predictions[own] = expand(self.parameters.kernel, vectors, centre, coefficients, rows[own])
        return predictions

    def state(self) -> ExpertsState:
        """Return the whole state; taken where `is_refreshed`, it continues bit for bit."""
        self._check_intact()
        return self._learned()

    def published_state(self) -> ExpertsState:
        """Return the state with the published coefficients of every cell; O(n_basis³) a cell with new rows."""
        if self._learners:
            return self.state().published()
        self._state = self._state.published()
        return self._state

    def _learn_bucket(self, rows: Floats, targets: Floats, weights: Floats) -> Floats:
        """Learn rows of one bucket cell by cell; refresh where the schedule says so."""
        predictions, first = np.empty_like(targets), self.rows_seen
        for cell, own in self.cells.groups(rows):
            arguments = rows[own], targets[own], weights[own]
            predictions[own] = self._learner(cell).predict_then_learn(*arguments, row_numbers=first + own)
        self._position += len(rows)
        if self._position % self._refresh_rows == 0:
            self._state, self._learners = self._learned(), {}
        return predictions

    @property
    def _refresh_rows(self) -> int:
        """Rows of a partition between two refreshes: a multiple of BUCKET_ROWS, many for the vectors of all cells."""
        vectors = len(self.cells) * (self.parameters.max_basis or 0)
        return BUCKET_ROWS * max(1, ROWS_A_VECTOR * vectors // BUCKET_ROWS)

    def _learned(self) -> ExpertsState:
        return self._state.with_states((cell, learner.state()) for cell, learner in self._learners.items())

    def _learner(self, cell: int) -> OnlineLSSVM:
        if cell not in self._learners:
            self._learners[cell] = OnlineLSSVM.from_state(self._state.state_of(cell), self._workspace)
        return self._learners[cell]

    def _sum(self, name: str, position: int) -> float:
        """Return the sum of a counter over all cells, in their order."""
        total = 0.0
        for cell, packed in enumerate(self._state.packed):
            learner = self._learners.get(cell)
            kept = float(packed[position]) if len(packed) else 0.0
            total += kept if learner is None else float(getattr(learner, name))
        return total

    def _check_intact(self) -> None:
        """Raise NumericalBreakdown if an error interrupted `predict_then_learn` between two cells."""
        if self._is_interrupted:
            raise NumericalBreakdown(
                "a previous error interrupted this learner in the middle of a block; restore it from a state that was "
                "taken before with LocalExperts.from_state(...)"
            )
