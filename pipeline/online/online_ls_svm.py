"""Online LS-SVM with a supervised dictionary: Jung & Polani (2006), "Sequential learning with LS-SVM for large data".

Departures from the paper, each with its reason:

- The state is the information form {D, K, P, z, yᵀy, n, γ}, not P⁻¹: it is exact, and P⁻¹, K⁻¹ and β are recomputed
  from it at fixed row counts, so that they cannot drift over millions of rows.
- Regularization is per row, γ = λ·2^⌊log₂ n⌋ for selection and λn for the published coefficients; the paper's
  γ = t·10⁻⁵ needs the length of the stream beforehand, `stream_rows`.
- Δ_b is the slides' δ²/Δ + γδ: the printed equation (14) is not the Schur complement. In (18) the sign is minus.
- When the dictionary is full, a vector is added and another deleted only where that would not restore the state, and
  then in one step, a swap.
- Rows are processed in blocks by matrix products; the decisions are those of the one-row algorithm. Where a bound shows
  that a row cannot change a full dictionary, K⁻¹k is not computed.
- A vector that would leave P singular within rounding is not taken, however novel.
- Rows may carry weights, and several targets may share the dictionary (their gains are added).
- Supervised selection is one rule of several (`selection_rule`). Where no row can change the dictionary any more, rows
  are only summed, and predictions made before learning use coefficients that are solved for at intervals (`schedule`).
"""

from dataclasses import fields, replace
from typing import Self, cast

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import (
    LARGEST_WHOLE,
    Floats,
    Integers,
    as_floats,
    check_row_numbers,
    check_rows,
    check_targets,
    check_weights,
)
from ridgestream.pipeline.base.errors import InputError, warn_caller
from ridgestream.pipeline.features.feature_names import FeatureNames
from ridgestream.pipeline.kernels import Kernel, are_unrelated
from ridgestream.pipeline.online.carried_model import CarriedModel
from ridgestream.pipeline.online.compiled.swap_criterion import SCANNED, SUSPECTED
from ridgestream.pipeline.online.diagnostics import Numerics
from ridgestream.pipeline.online.information_form import Information
from ridgestream.pipeline.online.inverses import Condition
from ridgestream.pipeline.online.row_strip import Workspace
from ridgestream.pipeline.online.schedule import GRID_ROWS
from ridgestream.pipeline.online.selection_rule import Selection
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.online.stream_learner import StreamLearner
from ridgestream.pipeline.selection.independence import check_given, check_independent, check_indices

PREDICTION_ROWS = 4096
"""Rows whose kernel values are computed at once for predictions."""

_UNRELATED = (
    "the kernel values of half of the dictionary's vectors with all others are nearly zero, and so are most "
    "predictions: standardize the features, or lower the kernel's gamma"
)


class OnlineLSSVM:
    """A kernel expansion f(x) = Σ β_i k(x_i, x) over a small dictionary, learned in one pass over the rows.

    A row costs O(max_basis²) time; memory is O(max_basis² + max_basis · n_features) and does not grow with the rows.
    It does not standardize. Features should be, since all thresholds are in units of the kernel, and since the RBF of
    raw columns may be zero between any two rows: then all predictions are. For classification, learn
    targets −1 and 1, one column per class, and take the sign or the largest.

    Args:
        kernel: The kernel, such as `RBF(gamma=1 / n_features)`, `Polynomial` or `Linear`.
        regularization: λ per row, default 1e-5. After n rows (or a sum of weights n), the coefficients minimize
            Σ w(y − f)² + λn βᵀKβ; KernelRidge's alpha is λn. Higher values give smoother functions.
        max_basis: The largest number of basis vectors, default 500. Time grows with its square. With None the
            dictionary grows as long as rows are novel and useful and, if `memory_limit_bytes` is set, fit into that.
        novelty_threshold: TOL1, default 0.01, in units of k(x, x), which is 1 for RBF. A row enters the dictionary only
            if its squared distance in feature space to the span of the dictionary exceeds this. 0 excludes duplicates
            only; higher values give smaller, better conditioned dictionaries.
        usefulness_threshold: TOL2, default 1e-4, in squared units of the targets times units of k(x, x). A novel row
            enters only if its novelty times the reduction of the cost by it exceeds this.
        selection: "supervised" (default): novel and useful rows enter, and replace the weakest vector when the
            dictionary is full. "novelty": novel rows enter until it is full. "fixed": the dictionary is `dictionary`.
        dictionary: Basis vectors (n_basis, n_features) for `selection="fixed"`, and only for it, linearly independent
            in feature space. They set `max_basis`; a smaller one, other than the default, is refused.
        dictionary_rows: The numbers of these vectors in the stream, whole numbers (n_basis,), if they come from it.
        stream_rows: The rows t of the whole stream, if γ is to be λt from the first row on, as in the paper.
        unpenalized: Whether the published coefficients have no penalty; with `selection="novelty"`, they are those of
            kernel recursive least squares (Engel, Mannor & Meir 2004). Default False.
        centre: Point (n_features,) relative to which a stationary kernel computes distances, default the first row.
            It changes rounding and speed, not values: choose one in the middle of the rows.

    Raises InputError for a value outside its bounds.

    The bits of the result depend on max_basis and on where `refresh` is called, for there the grid of blocks starts.
    Splitting a stream over several calls at multiples of 256 rows after a refresh does not change them; other splits
    give the same decisions, and the same values to rounding. Different threads may use different learners.

    Attributes:
        parameters: The settings.
        feature_names_in_: The names of the columns, if the rows learned first were a table (pandas, polars, Arrow),
            else None. Other tables must have them in the same order. They are not part of the state.
        rows_seen: Rows learned so far, those of weight zero included.
        weight_seen: The sum of their weights.
        swaps: How often a basis vector was replaced.
        numerics: Condition, rounding error and jitter so far.
        memory_limit_bytes: With `max_basis=None`, MemoryRefused is raised before the learner needs more; default None.
            The learner is then in the middle of a block: restore it from a state taken before.

    Example:
        >>> import numpy as np
        >>> from ridgestream import RBF, OnlineLSSVM
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (2000, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(2000)
        >>> learner = OnlineLSSVM(RBF(gamma=0.5), max_basis=20).partial_fit(X[:1000], y[:1000])
        >>> points = np.array([[-1.5], [1.5], [10.0]])
        >>> learner.predict(points[:2]).round(1).tolist()
        [[-1.0], [1.0]]

        Error bars, wide where there were no rows:

        >>> from ridgestream.pipeline.models.uncertainty import Uncertainty
        >>> state = learner.state()
        >>> uncertainty = Uncertainty.of(state)
        >>> kernel = state.parameters.kernel
        >>> values = kernel.block(points, state.basis_vectors, state.centre)
        >>> deviation = np.sqrt(uncertainty.variance(values, kernel.diagonal(points)))
        >>> bool((deviation[:2] < 0.05).all() and deviation[2] > 0.5)
        True

        A learner continues from a state; after a refresh, with the same bits:

        >>> learner.refresh()
        >>> resumed = OnlineLSSVM.from_state(learner.state())
        >>> straight = learner.partial_fit(X[1000:], y[1000:]).predict(points)
        >>> bool((resumed.partial_fit(X[1000:], y[1000:]).predict(points) == straight).all())
        True

    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        regularization: float = OnlineSettings.regularization,
        max_basis: int | None = OnlineSettings.max_basis,
        novelty_threshold: float = OnlineSettings.novelty_threshold,
        usefulness_threshold: float = OnlineSettings.usefulness_threshold,
        selection: str = OnlineSettings.selection,
        dictionary: npt.ArrayLike | None = None,
        dictionary_rows: npt.ArrayLike | None = None,
        stream_rows: int | None = None,
        unpenalized: bool = False,
        centre: npt.ArrayLike | None = None,
    ) -> None:
        self.parameters = OnlineSettings(
            kernel=kernel,
            regularization=regularization,
            max_basis=max_basis,
            novelty_threshold=novelty_threshold,
            usefulness_threshold=usefulness_threshold,
            selection=cast("Selection", selection),
            stream_rows=stream_rows,
            unpenalized=unpenalized,
        )
        if self.parameters.rule.grows == (dictionary is not None):
            raise InputError("a dictionary is given if selection is 'fixed', and only then")
        self._given = None
        if dictionary is not None:
            self._given = check_given(dictionary, None if max_basis == OnlineSettings.max_basis else max_basis)
            self.parameters = replace(self.parameters, max_basis=len(self._given))
        self._given_rows = check_indices(dictionary_rows, self._given)
        self._centre = None if centre is None else as_floats(centre, "centre")
        given_names = FeatureNames.of(dictionary)
        self._names = given_names if given_names.names else FeatureNames()
        self._stream: StreamLearner | None = None
        self._published: Floats | None = None
        self._workspace = Workspace()
        self.memory_limit_bytes: int | None = None

    @property
    def feature_names_in_(self) -> tuple[str, ...] | None:
        """The names of the columns, None if the rows learned had none, or since the learner was restored."""
        return self._names.names

    @property
    def n_basis(self) -> int:
        """The number of basis vectors."""
        return self._stream.model.n_basis if self._stream else 0

    @property
    def rows_seen(self) -> int:
        """Rows learned so far, those of weight zero included."""
        return self._stream.model.rows_seen if self._stream else 0

    @property
    def weight_seen(self) -> float:
        """The sum of their weights."""
        return self._stream.model.weight_seen if self._stream else 0.0

    @property
    def swaps(self) -> int:
        """How often a basis vector was replaced."""
        return self._stream.model.swaps if self._stream else 0

    @property
    def numerics(self) -> Numerics:
        """Condition, rounding error and jitter so far."""
        return self._stream.model.numerics if self._stream else Numerics()

    @property
    def is_refreshed(self) -> bool:
        """Whether a scheduled refresh has just been made, so that a state taken now continues bit for bit."""
        return self._stream is not None and self._stream.is_refreshed

    @property
    def grid_rows(self) -> int:
        """Rows at whose multiples after a refresh a stream may be split without a change of bits."""
        return GRID_ROWS

    @property
    def condition(self) -> Condition | None:
        """The condition numbers at the last refresh; None before the first basis vector."""
        inverses = self._stream.model.inverses if self._stream else None
        return inverses.condition if inverses else None

    @property
    def suspected_share(self) -> float:
        """The share of the rows learned by this object with a full dictionary for which no bound ruled a swap out.

        For these K⁻¹k was computed. 1 if the bounds are not used, 0 before the dictionary is full.
        """
        if self._stream is None:
            return 0.0
        scanned, suspected = (int(self._stream.model.counts[counter]) for counter in (SCANNED, SUSPECTED))
        return suspected / scanned if scanned else 0.0

    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn rows X (rows, n_features) and targets y (rows,) or (rows, n_targets); O(max_basis²) per row.

        `sample_weight` (rows,), default ones, multiplies a row's squared error; a row of weight zero is ignored. Raises
        InputError before anything has changed, and NumericalBreakdown if P or K is no longer positive definite: this
        learner then learns no more; restore it from a state taken before.
        """
        self.predict_then_learn(X, y, sample_weight)
        return self

    def predict_then_learn(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
        *,
        row_numbers: Integers | None = None,
    ) -> Floats:
        """Learn like `partial_fit`; return each row's prediction from the rows before it, shape (rows, n_targets).

        A row of weight zero is predicted as at the start of its block of at most 256 rows. When no row can change the
        dictionary any more, predictions use coefficients that are up to a sixteenth of the rows, at most 8,192, old.
        `row_numbers` (rows,) are what the state calls these rows, by default their numbers among those learned.
        """
        if self._stream is not None:
            self._stream.check_intact()
        names = self._names.check(X)
        information = self._stream.model.information if self._stream else None
        rows = check_rows(X, information.basis_vectors.shape[1] if information else None)
        targets = check_targets(y, len(rows), len(information.target_square) if information else None)
        weights = check_weights(sample_weight, len(rows))
        if self._stream is None:
            state = self._first_state(rows.shape[1], targets.shape[1])
            self._stream = StreamLearner(CarriedModel(state, self._centre, self._workspace))
        self._names, self._published = names, None
        self._stream.model.memory_limit_bytes = self.memory_limit_bytes
        numbers = None if row_numbers is None else check_row_numbers(row_numbers, LARGEST_WHOLE, "row_numbers")
        return self._stream.learn(rows, targets, weights, numbers)

    def refresh(self) -> None:
        """Recompute P⁻¹, K⁻¹ and β from P, K and z, and start the block grid here; O(n_basis³).

        Called at every partition's end. A state taken now gives the bits of an uninterrupted run.
        """
        self._started().refresh()

    def widen(self, indices: Integers) -> None:
        """Insert features at these indices, as `numpy.insert` takes them, zero in every row so far; O(n_basis³).

        Called right after `refresh`, the learner equals one that continues from its widened state.
        """
        if not len(indices):
            return
        self._names = FeatureNames()
        if self._stream is not None:
            self._continue_from(self.state().widened(indices))
            return
        if self._centre is not None:
            self._centre = np.insert(self._centre, indices, 0.0)
        if self._given is not None:
            self._given = np.insert(self._given, indices, 0.0, axis=1)

    def set_regularization(self, regularization: float) -> None:
        """Change λ for all rows, past ones too, exactly: P += (γ′ − γ)K, and refresh; O(n_basis³).

        The dictionary chosen so far stays. Raises InputError unless λ is a positive number.
        """
        self.parameters = replace(self.parameters, regularization=regularization)
        self._published = None
        if self._stream is not None:
            self._stream.model.set_regularization(self.parameters)
            self._stream.refresh()

    def coefficients(self) -> Floats:
        """Return the published β, (P + (λn − γ)K)⁻¹z, shape (n_basis, n_targets); O(n_basis³) after new rows.

        The array is read-only.
        """
        if self._published is None:
            self._published = self._started().model.published_coefficients()
            self._published.setflags(write=False)
        return self._published

    def predict(self, X: npt.ArrayLike) -> Floats:
        """Return f(x) = Σ β_i k(x_i, x), shape (rows, n_targets), from published coefficients; O(n_basis) per row.

        Warns with an InputWarning if the kernel calls half of the dictionary's vectors unlike all others.
        """
        basis_vectors, centre = self._information.basis_vectors, self._started().model.centre
        self._names.check(X)
        rows = check_rows(X, basis_vectors.shape[1])
        if self._published is None and are_unrelated(self.parameters.kernel, basis_vectors, centre):
            warn_caller(_UNRELATED)
        return expand(self.parameters.kernel, basis_vectors, centre, self.coefficients(), rows)

    def cost(self) -> float:
        """Return ξ = Σ_c (y_cᵀy_c − z_cᵀβ_c), the regularized cost at the selection's γ, in squared target units."""
        return self._started().model.cost()

    def state(self) -> OnlineState:
        """Return a copy of the whole state; taken where `is_refreshed`, it continues bit for bit."""
        stream = self._started()
        stream.check_intact()
        return stream.model.state()

    @classmethod
    def from_state(cls, state: OnlineState, workspace: Workspace | None = None) -> Self:
        """Return a learner that continues from `state`; raise InputError if the state is damaged.

        Learners that are used one after another may share a `workspace`, whose contents never outlive a call.
        """
        state.check()
        settings = state.parameters
        own = {item.name: getattr(settings, item.name) for item in fields(settings)}
        learner = cls(**own, dictionary=None if settings.rule.grows else state.basis_vectors)
        learner._workspace = workspace or learner._workspace
        learner._continue_from(state)
        return learner

    @property
    def _information(self) -> Information:
        return self._started().model.information

    def _started(self) -> StreamLearner:
        if self._stream is None:
            raise InputError("the learner has seen no row yet: call partial_fit first")
        return self._stream

    def _continue_from(self, state: OnlineState) -> None:
        self._centre, self._published = state.centre.copy(), None
        self._stream = StreamLearner(CarriedModel(state, self._centre, self._workspace))
        self._stream.refresh()
        self._stream.model.numerics = state.numerics

    def _first_state(self, n_features: int, n_targets: int) -> OnlineState:
        centre = self._centre
        if centre is not None and (centre.shape != (n_features,) or not np.isfinite(centre).all()):
            raise InputError(f"centre must be {n_features} finite numbers, as the rows have features; it is {centre}")
        if self._given is None:
            return OnlineState.empty(self.parameters, n_features, n_targets)
        if self._given.shape[1] != n_features:
            raise InputError(f"the rows have {n_features} features, the dictionary has {self._given.shape[1]}")
        centre = self._given[0] if centre is None else centre
        check_independent(self.parameters.kernel, self._given, centre)
        self._centre = centre.copy()
        rows = np.full(len(self._given), -1) if self._given_rows is None else self._given_rows
        return OnlineState.with_dictionary(self.parameters, self._centre, self._given, rows, n_targets)


def expand(kernel: Kernel, vectors: Floats, centre: Floats | None, coefficients: Floats, rows: Floats) -> Floats:
    """Return Σ β_i k(x_i, x) at rows (rows, n_features), shape (rows, n_targets); O(n_basis) a row."""
    predictions = np.zeros((len(rows), coefficients.shape[1]))
    for start in range(0, len(rows), PREDICTION_ROWS):
        part = slice(start, start + PREDICTION_ROWS)
        predictions[part] = kernel.block(rows[part], vectors, centre) @ coefficients
    return predictions
