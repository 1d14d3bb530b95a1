"""Local experts: space is cut into cells, and every cell has an online LS-SVM that learns the rows in it.

Divide and conquer is old (Hsieh, Si & Dhillon 2014, "A divide-and-conquer solver for kernel support vector machines",
splits the training set by clusters); here each cell learns in one pass, with a dictionary of bounded size that rows
themselves change, and continues exactly from its state. f jumps where cells meet.
"""

from dataclasses import replace
from typing import Self, cast

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers, check_rows
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.features.feature_names import FeatureNames
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.online.diagnostics import Numerics
from ridgestream.pipeline.online.experts.cell_learning import check_block, learn_block, part_rows
from ridgestream.pipeline.online.experts.cells import Cells
from ridgestream.pipeline.online.experts.experts_state import ExpertsState
from ridgestream.pipeline.online.experts.packed_cell import N_BASIS, ROWS_SEEN, SWAPS, WEIGHT_SEEN
from ridgestream.pipeline.online.online_ls_svm import expand
from ridgestream.pipeline.online.selection_rule import Selection
from ridgestream.pipeline.online.settings import OnlineSettings


class LocalExperts:
    """Cells around given centres, each with an `OnlineLSSVM` that learns the rows nearest to its centre.

    A row costs O(max_basis²) time, whatever the number of cells, and O(n_cells · n_features) to find its cell; memory
    is O(n_cells · max_basis · (max_basis + n_features)). Cells that get no rows cost nothing. A cell before its first
    row is answered for by the nearest cell that has some. Features should be standardized, or measured by a metric,
    since cells are those of Euclidean distance.

    Args:
        kernel: The kernel of all cells. Distances are measured from a cell's centre.
        centres: The centres of the cells, all different, shape (n_cells, n_features); k-means of some rows serves.
        regularization, max_basis, novelty_threshold, usefulness_threshold: Those of each cell's `OnlineLSSVM`. Where
            cells do not fill their dictionaries, a tenth of the default thresholds is often better.
        selection: "supervised" or "novelty", as there.
        stream_rows: The rows t of the whole stream, if γ is to be the same in all cells from the first row on: λ times
            the mean t / n_cells of a cell.

    Raises InputError for a value outside its bounds.

    Each cell is the learner that would have been given its rows alone, bit for bit, and refreshed as often: at the end
    of every call, and within one after `grid_rows` rows, which are 131,072, or fewer of many features. A stream may be
    split there without a change of bits; other splits give the same decisions, and the same values to rounding. A call
    costs O(max_basis³) for every cell that has some of its rows: give many at a time. One that raises an error leaves
    the learner as it was.

    Attributes:
        parameters: The settings of all cells.
        feature_names_in_: The names of the columns, as those of `OnlineLSSVM`.
        rows_seen: Rows learned so far.
        threads: The threads of this process that share the cells of a call, 1 unless it is set. No bit depends on it.

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
        stream_rows: int | None = None,
    ) -> None:
        parameters = OnlineSettings(
            kernel=kernel,
            regularization=regularization,
            max_basis=max_basis,
            novelty_threshold=novelty_threshold,
            usefulness_threshold=usefulness_threshold,
            selection=cast("Selection", selection),
            stream_rows=stream_rows,
        )
        if not (parameters.rule.grows and parameters.max_basis):
            raise InputError("every cell selects its own dictionary: selection is not 'fixed', and max_basis a number")
        cells = Cells.of(centres)
        if stream_rows is not None:
            parameters = replace(parameters, stream_rows=-(-stream_rows // len(cells)))
        self.threads = 1  # that cells are shared by; no bit depends on it
        self._state: ExpertsState = ExpertsState.begin(parameters, cells)
        self._names = FeatureNames()

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
        return int(self._state.total(N_BASIS))

    @property
    def rows_seen(self) -> int:
        """Rows learned so far, those of weight zero included."""
        return int(self._state.total(ROWS_SEEN))

    @property
    def weight_seen(self) -> float:
        """The sum of their weights."""
        return self._state.total(WEIGHT_SEEN)

    @property
    def swaps(self) -> int:
        """How often a basis vector was replaced, in all cells."""
        return int(self._state.total(SWAPS))

    @property
    def numerics(self) -> Numerics:
        """The worst condition and rounding error of all cells, and the sums of what is counted."""
        return self._state.numerics

    @property
    def grid_rows(self) -> int:
        """Rows at whose multiples a call may be split without a change of bits."""
        return part_rows(self.cells.centres.shape[1])

    @property
    def is_refreshed(self) -> bool:
        """Whether a state taken now continues bit for bit: always."""
        return True

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
        names = self._names.check(X)
        block = check_block(self._state, X, y, sample_weight, self.rows_seen)
        self._state, _, predictions = learn_block(self._state, block, threads=self.threads)
        self._names = names
        return predictions

    def continue_from(self, state: ExpertsState) -> None:
        """Continue from a state of the same cells that learned more rows."""
        self._state = state

    def refresh(self) -> None:
        """Do nothing: every call ends with a refresh of the cells that it touched."""

    def widen(self, indices: Integers) -> None:
        """Insert features at these indices, as `numpy.insert` takes them, zero in every row so far."""
        if len(indices):
            self._state, self._names = self._state.widened(indices), FeatureNames()

    def set_regularization(self, regularization: float) -> None:
        """Change λ for all rows of all cells, past ones too, exactly; O(n_basis²) a cell.

        The dictionaries chosen so far stay. Raises InputError unless λ is a positive number.
        """
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
        """Return the whole state, which continues bit for bit."""
        return self._state

    def published_state(self) -> ExpertsState:
        """Return the state with the published coefficients of every cell; O(n_basis³) a cell with new rows."""
        self._state = self._state.published()
        return self._state
