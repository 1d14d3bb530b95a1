"""Online policy evaluation: least squares temporal differences over the dictionary of the online LS-SVM.

Paper: Jung & Polani (2006), "Sequential learning with LS-SVM for large-scale data sets", whose slides apply the learner
to policy evaluation. The sums A = Σ w k(x)(k(x) − γk(x′))ᵀ and b = Σ w k(x)r are carried, not inverses: A is not
symmetric, and P⁻¹'s updates do not hold for it.

Transitions are learned in blocks. The online LS-SVM first learns the block's rows, which may change the dictionary from
D to D′. The functions of new vectors are then replaced, for past transitions, by their projections on the span of D,
k(d′, x) ≈ k(d′, D)K⁻¹k(D, x), as in the paper's growing step: with T the matrix of these combinations, one row per
vector of D′, A becomes TATᵀ, and b becomes Tb. Then the block's transitions are added, exactly.

Departures from the paper's regression, each with its reason:

- Rows enter by novelty by default: a reward says little of a value, which sums many.
- With "supervised", usefulness is judged for the targets r + γV(x′), to which V is fitted, with the V of the blocks
  before, whose coefficients are solved for once a block.
- Once no row can change the dictionary, its transitions are only summed.
"""

from dataclasses import replace
from typing import Literal, Self, cast

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers, check_rows
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.cholesky import cholesky
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.online.carried_model import CarriedModel
from ridgestream.pipeline.online.schedule import GRID_ROWS
from ridgestream.pipeline.online.selection_rule import Selection
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.online.stream_learner import StreamLearner
from ridgestream.pipeline.policy.policy_state import PolicyState
from ridgestream.pipeline.policy.value_function import LSTDSettings, ValueFunction, check_transitions
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import ArrayRows
from ridgestream.pipeline.sums.temporal_differences import sum_transitions


class OnlineLSTD:
    """The value function V(x) = Σ βᵢ k(xᵢ, x) of a policy, learned in one pass over its transitions.

    What V is, `KernelLSTD` says; here the dictionary grows while transitions come. A transition costs O(max_basis²);
    memory is O(max_basis² + max_basis · n_features) and does not grow with the transitions.

    Args:
        kernel: The kernel, such as `RBF(gamma=1 / n_features)`.
        discount: γ, default 0.99, from 0 to 1; 1 only if episodes end.
        regularization: λ per row, default 1e-5; higher values give smoother functions.
        max_basis: The largest number of basis vectors, default 500.
        novelty_threshold: TOL1 of `OnlineLSSVM`, default 0.01: a row enters the dictionary only if its squared
            distance in feature space to the span of the dictionary exceeds this.
        usefulness_threshold: TOL2 of `OnlineLSSVM`, default 1e-4, in squared units of the rewards.
        selection: "novelty" (default): novel rows enter until the dictionary is full. "supervised": rows that are
            novel and useful enter, and replace the weakest vector when the dictionary is full.

    Bits depend on the cuts into calls, and not if all but the last call have a multiple of 256 transitions. A copy, or
    one that was pickled, continues with the same bits.

    Example:
        >>> import numpy as np
        >>> from ridgestream import RBF, OnlineLSTD
        >>> position = np.random.default_rng(0).uniform(0, 1, 2000)
        >>> then = position + 0.1
        >>> learner = OnlineLSTD(RBF(gamma=10.0), discount=1.0)
        >>> values = learner.partial_fit(position[:, None], np.ones(2000), then[:, None], then > 1)
        >>> values.predict(np.array([[0.35]])).round().tolist()  # seven steps to the end
        [[7.0]]

    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        discount: float = LSTDSettings.discount,
        regularization: float = LSTDSettings.regularization,
        max_basis: int = 500,
        novelty_threshold: float = OnlineSettings.novelty_threshold,
        usefulness_threshold: float = OnlineSettings.usefulness_threshold,
        selection: Literal["novelty", "supervised"] = "novelty",
    ) -> None:
        self._settings = LSTDSettings(discount, regularization)
        self._parameters = OnlineSettings(
            kernel=kernel,
            regularization=regularization,
            max_basis=max_basis,
            novelty_threshold=novelty_threshold,
            usefulness_threshold=usefulness_threshold,
            selection=cast("Selection", selection),
        )
        if not self._parameters.rule.grows:
            raise InputError("OnlineLSTD chooses its dictionary; for a given one, use KernelLSTD(dictionary=...)")
        self._stream: StreamLearner | None = None
        self._values: ValueFunction | None = None
        self._basis_rows: Integers = np.empty(0, dtype=np.int64)

    @property
    def basis_vectors(self) -> Floats:
        """The dictionary, shape (n_basis, n_features)."""
        return self._started().basis.vectors

    @property
    def basis_rows(self) -> Integers:
        """The number of each basis vector's transition, from zero, shape (n_basis,)."""
        return self._basis_rows

    @property
    def n_basis(self) -> int:
        """The number of basis vectors."""
        return len(self._basis_rows)

    @property
    def rows_seen(self) -> int:
        """The transitions learned so far, those of weight zero included."""
        return self._values.sums.rows if self._values else 0

    def partial_fit(
        self,
        X: npt.ArrayLike,
        reward: npt.ArrayLike,
        X_next: npt.ArrayLike,
        done: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Self:
        """Learn transitions from rows X to X_next, with the arguments of `KernelLSTD.partial_fit`.

        Raises InputError before anything has changed, and NumericalBreakdown if a matrix is singular within rounding:
        this learner then learns no more.
        """
        transitions = check_transitions(X, reward, X_next, done, sample_weight, self._values)
        self.learn(transitions)
        return self

    def learn(self, transitions: ArrayRows) -> None:
        """Learn checked transitions, rows with the features (x, x′, c), as `partial_fit` does."""
        if self._stream is None or self._values is None:
            self._stream, self._values = self._start(transitions.n_features // 2, transitions.n_targets)
        self._stream.check_intact()
        for start in range(0, transitions.n_rows, GRID_ROWS):
            block = transitions.take(np.arange(start, min(start + GRID_ROWS, transitions.n_rows)))
            self._values = self._learn(self._stream, self._values, block)

    def refresh(self) -> None:
        """Start the grid of 256 transitions here, where the dictionary may still change; O(n_basis³).

        A state taken now continues with the bits of a run without interruption.
        """
        if self._stream is not None and not self._stream.model.is_closed:
            self._stream.refresh()

    @property
    def is_refreshed(self) -> bool:
        """Whether a state taken now continues bit for bit."""
        return self._stream is not None and (self._stream.model.is_closed or self._stream.is_refreshed)

    @property
    def swaps(self) -> int:
        """How often a basis vector was replaced."""
        return self._stream.model.swaps if self._stream else 0

    @property
    def values(self) -> ValueFunction:
        """The value function as it is; raises InputError before the first transition."""
        return self._started()

    def state(self) -> PolicyState:
        """Return a copy of the whole state, but for the settings; taken where `is_refreshed`, it continues exactly."""
        return PolicyState.of(self.online_state(), self._started().sums)

    def online_state(self) -> OnlineState:
        """Return a copy of the state of what selects."""
        self._started()
        assert self._stream is not None  # noqa: S101 (started)
        self._stream.check_intact()
        return self._stream.model.state()

    def continue_from(self, state: PolicyState) -> Self:
        """Continue from a state of a learner with the same settings; raises InputError if it is damaged."""
        online = state.online(self._parameters)
        self._stream = StreamLearner(CarriedModel(online, online.centre))
        self._stream.refresh()
        self._stream.model.numerics = online.numerics
        self._basis_rows = online.basis_rows.copy()
        basis = Basis(self._parameters.kernel, online.basis_vectors.copy(), online.centre)
        self._values = ValueFunction(basis, self._settings, state.sums)
        return self

    def coefficients(self) -> Floats:
        """Return β, shape (n_basis, n_rewards), read-only; O(n_basis³) after new transitions.

        Raises NumericalBreakdown if A + λnK is singular within rounding, and InputError if the discount is 1 and no
        transition learned has ended an episode.
        """
        return self._started().checked().coefficients

    def predict(self, X: npt.ArrayLike) -> Floats:
        """Return V at rows X (rows, n_features), shape (rows, n_rewards); raises as `coefficients` does."""
        values = self._started().checked()
        return values.predict(check_rows(X, values.basis.vectors.shape[1]))

    def _started(self) -> ValueFunction:
        if self._values is None:
            raise InputError("the learner has seen no transition yet: call partial_fit first")
        return self._values

    def _start(self, n_features: int, n_rewards: int) -> tuple[StreamLearner, ValueFunction]:
        """Return the learner that chooses the dictionary, and the value function of no transition."""
        centre = np.zeros(n_features)
        stream = StreamLearner(CarriedModel(OnlineState.empty(self._parameters, n_features, n_rewards), centre))
        basis = Basis(self._parameters.kernel, np.empty((0, n_features)), centre)
        return stream, ValueFunction.empty(basis, self._settings, n_rewards)

    def _learn(self, stream: StreamLearner, values: ValueFunction, block: RowBlock) -> ValueFunction:
        """Return the value function after a block, having let its rows change the dictionary."""
        if not stream.model.is_closed:
            self._select(stream, values, block)
            values = self._carry(stream, values)
        return values.merge(sum_transitions(values.summing, [block]))

    def _select(self, stream: StreamLearner, values: ValueFunction, block: RowBlock) -> None:
        """Let the rows of a block change the dictionary."""
        n_rows, n_features = len(block.features), block.features.shape[1] // 2
        targets = block.targets
        if self._parameters.rule.tests_usefulness:
            ahead = values.predict(block.features[:, n_features:-1])
            targets = targets + self._settings.discount * block.features[:, -1:] * ahead
        weights = np.ones(n_rows) if block.weights is None else block.weights
        X = np.ascontiguousarray(block.features[:, :n_features])
        stream.learn(X, targets, weights, values.sums.rows + np.arange(n_rows))

    def _carry(self, stream: StreamLearner, values: ValueFunction) -> ValueFunction:
        """Return the value function over the dictionary as it is now, past transitions projected."""
        information, before = stream.model.information, self._basis_rows
        if np.array_equal(information.basis_rows, before):
            return values
        self._basis_rows = information.basis_rows.copy()
        basis = replace(values.basis, vectors=information.basis_vectors.copy())
        combinations = (self._basis_rows[:, np.newaxis] == before).astype(np.float64)
        new = ~combinations.any(axis=1)
        kernel_rows = basis.kernel.block(values.basis.vectors, basis.vectors[new], basis.centre)
        combinations[new] = cholesky(values.basis.penalty(), "kernel matrix K of the dictionary").solve(kernel_rows).T
        return replace(values, basis=basis, sums=values.sums.project(combinations))
