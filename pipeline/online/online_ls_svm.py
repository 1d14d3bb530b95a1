"""Online LS-SVM with a supervised dictionary: Jung & Polani (2006), "Sequential learning with LS-SVM for large data".

Departures from the paper, each with its reason:

- The state is the information form {D, K, P, z, yᵀy, n, γ}, not P⁻¹: it is exact, and P⁻¹, K⁻¹ and β are made from it
  afresh at fixed row counts, so that they cannot drift over millions of rows.
- Regularization is per row, γ = λ·2^⌊log₂ n⌋ for selection and λn for the published coefficients; the paper's
  γ = t·10⁻⁵ needs the length of the stream beforehand.
- Δ_b is the slides' δ²/Δ + γδ: the printed equation (14) is not the Schur complement. In (18) the sign is minus.
- At the cap, growing and pruning is done only where it would not restore the state, and then in place.
- Rows are processed in blocks by matrix products; the decisions are those of the one-row algorithm. Where a bound shows
  that a row cannot change a full dictionary, K⁻¹k is not computed.
- A vector that would leave P singular within rounding is not taken, however novel.
- Rows may carry weights, and several targets may share the dictionary (their gains are added).
- Selection is one rule of several (`selection`). Where no row can change the dictionary any more, rows are absorbed by
  sums alone, and what is predicted before learning uses coefficients that all but the last few rows have made.
"""

import math
from dataclasses import replace
from typing import Self, cast

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers, as_floats, check_rows, check_targets, check_weights
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError, NumericalBreakdown
from ridgestream.pipeline.base.memory_plan import check_growth, fits_growth
from ridgestream.pipeline.cholesky import cholesky
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.online.compiled.scan import GROW, REFUSED, SCANNED, SUSPECTED, UNSAFE
from ridgestream.pipeline.online.diagnostics import Numerics, measure_drift
from ridgestream.pipeline.online.fixed_dictionary import Solution
from ridgestream.pipeline.online.information_form import Information
from ridgestream.pipeline.online.inverses import Condition, Inverses
from ridgestream.pipeline.online.row_strip import RowBlock, Strip, Workspace
from ridgestream.pipeline.online.selection_rule import Selection
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.selection.independence import check_given, check_independent, check_places

REFRESH_ROWS = 32768
"""Rows of a partition between two refreshes; a multiple of every block size.

What is carried drifts by the condition of P rather than by the rows: no more over so many than over a fourth of them.
"""

SCREEN_BASIS, SCREEN_ROWS = 256, 200
"""Bounds on swaps pay from so many basis vectors on, and after so many rows for each of them."""

SOLVED_SHARE, SOLVED_ROWS = 16, 8192
"""A dictionary that no row can change has its coefficients made anew after one row in so many of those seen, and after
so many at the latest, for what is predicted before learning.
"""

GRID_ROWS = 256
"""Rows whose kernel values are formed at once: blocks divide them."""

MORE_BASIS = 16
"""Room is made for so many more basis vectors at least: the cost of a row is that of the room."""

PREDICTION_ROWS = 4096
"""Rows whose kernel values are formed at once for predictions."""


class OnlineLSSVM:
    """A kernel expansion over a small dictionary, learned in one pass; O(max_basis²) a row and memory free of the rows.

    The block grid, and so the bits, depend on max_basis and on where `refresh` was called: blocks start at a refresh
    and are cut at the powers of two of the weight seen. Calls of `partial_fit` that split a stream at multiples of
    `GRID_ROWS` after a refresh leave no trace; other splits give the same decisions and values to rounding. `centre`
    (n_features,) is where a stationary kernel measures its distances from, the first row unless given: somewhere amid
    the rows, for speed. `selection` names the rule that chooses the dictionary; `fixed` takes it from `dictionary`
    (n_basis, n_features), which sets max_basis (one that is smaller, other than the default, is refused);
    `dictionary_rows` (n_basis,) are its row numbers in the stream, if it has any.
    With max_basis None, a dictionary that would need more than `memory_limit_bytes` (None until set) is refused as it
    grows: MemoryRefused is raised in the midst of a block, and the state taken before is the one to go on from.
    Several threads may each have a learner; one learner is for one thread at a time.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        regularization: float = 1e-5,
        max_basis: int | None = 500,
        novelty_threshold: float = 1e-2,
        usefulness_threshold: float = 1e-4,
        selection: str = "supervised",
        dictionary: npt.ArrayLike | None = None,
        dictionary_rows: npt.ArrayLike | None = None,
        centre: npt.ArrayLike | None = None,
    ) -> None:
        self.parameters = OnlineSettings(
            kernel, regularization, max_basis, novelty_threshold, usefulness_threshold, cast("Selection", selection)
        )
        if self.parameters.rule.grows == (dictionary is not None):
            raise InputError("a dictionary is given if selection is 'fixed', and only then")
        self._given = None
        if dictionary is not None:
            self._given = check_given(dictionary, None if max_basis == OnlineSettings.max_basis else max_basis)
            self.parameters = replace(self.parameters, max_basis=len(self._given))
        self._given_rows = check_places(dictionary_rows, self._given)
        self._information: Information | None = None
        self._inverses: Inverses | Solution | None = None
        self._published: Floats | None = None
        self._centre = None if centre is None else as_floats(centre, "centre")
        self.rows_seen = 0
        self.weight_seen = 0.0
        self.swaps = 0
        self._position = self._solved_at = 0
        self._counts: Integers = np.zeros(3, dtype=np.int64)
        self._room = Workspace()
        self._behind = self._is_cut_off = False
        self._solved_penalty = 0.0
        self.numerics = Numerics()
        self.memory_limit_bytes: int | None = None

    @property
    def n_basis(self) -> int:
        """The number of basis vectors now."""
        return self._information.n_basis if self._information else 0

    @property
    def is_refreshed(self) -> bool:
        """Whether there is a state and a scheduled refresh has just come: a state taken now goes on bit for bit."""
        return self._information is not None and self._position % REFRESH_ROWS == 0

    @property
    def condition(self) -> Condition | None:
        """How the last refresh went; None before the first basis vector."""
        return self._inverses.condition if self._inverses else None

    @property
    def suspected_share(self) -> float:
        """The share of rows met with a full dictionary, by this object, for which no bound ruled a swap out.

        For these K⁻¹k was needed. One where bounds do not pay, zero before the dictionary is full.
        """
        scanned, suspected = int(self._counts[SCANNED]), int(self._counts[SUSPECTED])
        return suspected / scanned if scanned else 0.0

    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn rows X (rows, n_features) and targets y (rows,) or (rows, n_targets); O(max_basis²) a row.

        A row of weight zero is absent. Raises InputError before anything has changed, NumericalBreakdown if P or K lose
        their positive definiteness: this learner then learns no more, and a state taken before is to go on from.
        """
        self.predict_then_learn(X, y, sample_weight)
        return self

    def predict_then_learn(
        self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> Floats:
        """Learn like `partial_fit`; return each row's prediction from the rows before it, shape (rows, n_targets).

        A row of weight zero is predicted as at the start of its block of at most `GRID_ROWS`; where no row can change
        the dictionary any more, a row by the coefficients of up to `SOLVED_ROWS` rows before, one in `SOLVED_SHARE`.
        """
        self._check_whole()
        rows = check_rows(X, self._information.basis_vectors.shape[1] if self._information else None)
        n_targets = self._information.target_square.shape[0] if self._information else None
        targets = check_targets(y, len(rows), n_targets)
        weights = check_weights(sample_weight, len(rows))
        if self._information is None:
            self._information = Information(self._first_state(rows.shape[1], targets.shape[1]))
        predictions, start = np.zeros_like(targets), 0
        self._is_cut_off = True
        with one_blas_thread():
            while start < len(rows):
                stop, reached = self._next_cut(start, weights)
                part = slice(start, stop)
                predictions[part] = self._learn_block(rows[part], targets[part], weights[part], reached)
                start = stop
        self._is_cut_off = False
        return predictions

    def refresh(self) -> None:
        """Make P⁻¹, K⁻¹ and β anew from P, K and z, and begin the block grid here; O(n_basis³).

        Called at every partition's end. A state taken now and learned on gives the bits of going straight on.
        """
        with one_blas_thread():
            self._refresh()
        self._position = 0

    def widen(self, places: Integers) -> None:
        """Make room for further features at these places, as `numpy.insert` takes them, which no row so far had.

        Called right after `refresh`, it leaves the learner as one that goes on from its widened state. O(n_basis³).
        """
        if not len(places):
            return
        if self._information is not None:
            memory_limit_bytes = self.memory_limit_bytes
            vars(self).update(vars(self.from_state(self.state().widened(places))))
            self.memory_limit_bytes = memory_limit_bytes
            return
        if self._centre is not None:
            self._centre = np.insert(self._centre, places, 0.0)
        if self._given is not None:
            self._given = np.insert(self._given, places, 0.0, axis=1)

    def set_regularization(self, regularization: float) -> None:
        """Go on with another λ, exactly: P += (γ′ − γ)K. A refresh, where the block grid begins; O(n_basis³).

        What was decided stays decided; all rows, past ones too, count with the new λ from now on. Raises InputError
        unless λ is a positive number.
        """
        self.parameters = replace(self.parameters, regularization=regularization)
        self._published = None
        if self._information is None:
            return
        if self.weight_seen > 0:
            self._information.set_penalty(self._penalty(self.weight_seen))
        self.refresh()

    def coefficients(self) -> Floats:
        """Return the published β = (P + (λn − γ)K)⁻¹z, shape (n_basis, n_targets); O(n_basis³) after new rows.

        The array cannot be written to.
        """
        if self._published is None:
            information = self._begun()
            if not (self.n_basis and self.weight_seen > 0):
                return np.zeros_like(information.normal_rhs)
            excess = self.parameters.regularization * self.weight_seen - information.penalty
            with one_blas_thread():
                matrix = information.normal_matrix + excess * information.gram
                self._published = cholesky(matrix, "normal matrix P").solve(information.normal_rhs)
            self._published.setflags(write=False)
        return self._published

    def predict(self, X: npt.ArrayLike) -> Floats:
        """Return f(x) = Σ β_i k(x_i, x), shape (rows, n_targets), with the published coefficients; block by block."""
        information = self._begun()
        rows = check_rows(X, information.basis_vectors.shape[1])
        beta = self.coefficients()
        predictions = np.zeros((len(rows), beta.shape[1]))
        for start in range(0, len(rows), PREDICTION_ROWS):
            part = slice(start, start + PREDICTION_ROWS)
            values = self.parameters.kernel.block(rows[part], information.basis_vectors, self._centre)
            predictions[part] = values @ beta
        return predictions

    def cost(self) -> float:
        """Return ξ = Σ_c (y_cᵀy_c − z_cᵀβ_c), the regularized cost at the selection's γ, in squared target units."""
        information = self._begun()
        fitted = 0.0
        if self._inverses is not None:
            solved = self._solved() if self._behind else self._inverses
            fitted = float(np.sum(information.normal_rhs * solved.coefficients))
        return float(np.trace(information.target_square)) - fitted

    def state(self) -> OnlineState:
        """Return a copy of the whole state; taken where `is_refreshed`, it goes on bit for bit."""
        self._check_whole()
        information = self._begun()
        gram, normal_matrix = information.symmetric_matrices()
        return OnlineState(
            parameters=self.parameters,
            centre=np.zeros(information.basis_vectors.shape[1]) if self._centre is None else self._centre.copy(),
            basis_vectors=information.basis_vectors.copy(),
            basis_rows=information.basis_rows.copy(),
            gram=gram,
            normal_matrix=normal_matrix,
            normal_rhs=information.normal_rhs.copy(),
            target_square=information.target_square.copy(),
            rows_seen=self.rows_seen,
            weight_seen=self.weight_seen,
            penalty=information.penalty,
            swaps=self.swaps,
            numerics=self.numerics,
        )

    @classmethod
    def from_state(cls, state: OnlineState) -> Self:
        """Make a learner that goes on from `state`; raise InputError if the state is damaged."""
        state.check()
        p = state.parameters
        learner = cls(
            p.kernel,
            regularization=p.regularization,
            max_basis=p.max_basis,
            novelty_threshold=p.novelty_threshold,
            usefulness_threshold=p.usefulness_threshold,
            selection=p.selection,
            dictionary=None if p.rule.grows else state.basis_vectors,
        )
        learner._information = Information(state)
        learner._centre = state.centre.copy()
        learner.rows_seen, learner.weight_seen, learner.swaps = state.rows_seen, state.weight_seen, state.swaps
        learner.refresh()
        learner.numerics = state.numerics
        return learner

    def _begun(self) -> Information:
        if self._information is None:
            raise InputError("the learner has seen no row yet: call partial_fit first")
        return self._information

    def _first_state(self, n_features: int, n_targets: int) -> OnlineState:
        if self._centre is not None and (self._centre.shape != (n_features,) or not np.isfinite(self._centre).all()):
            raise InputError(
                f"centre must be {n_features} finite numbers, as the rows have features; it is {self._centre}"
            )
        if self._given is None:
            return OnlineState.empty(self.parameters, n_features, n_targets)
        if self._given.shape[1] != n_features:
            raise InputError(f"the rows have {n_features} features, the dictionary has {self._given.shape[1]}")
        centre = self._given[0] if self._centre is None else self._centre
        check_independent(self.parameters.kernel, self._given, centre)
        self._centre = centre.copy()
        rows = np.full(len(self._given), -1) if self._given_rows is None else self._given_rows
        return OnlineState.with_dictionary(self.parameters, self._centre, self._given, rows, n_targets)

    def _next_cut(self, start: int, weights: Floats) -> tuple[int, float]:
        """Return where the block that begins at `start` ends, and the weight that is seen then.

        It ends where the grid does, or at the row that reaches a power of two.
        """
        stop = min(start + GRID_ROWS - self._position % GRID_ROWS, len(weights))
        sums = np.cumsum(np.concatenate([[self.weight_seen], weights[start:stop]]))
        if self.n_basis and _octave(float(sums[-1])) == _octave(self.weight_seen):
            return stop, float(sums[-1])
        crossed = np.frexp(sums[1:])[1] - 1 != _octave(self.weight_seen)
        cuts = (sums[1:] > self.weight_seen) & (crossed | (self.n_basis == 0))
        rows = int(np.argmax(cuts)) + 1 if cuts.any() else stop - start
        return start + rows, float(sums[rows])

    def _learn_block(self, X: Floats, targets: Floats, weights: Floats, reached: float) -> Floats:
        information = self._begun()
        present = np.flatnonzero(weights)
        numbers = self.rows_seen + present
        if len(present) == len(X):
            information.absorb_targets(targets, weights)
            predictions = self._learn_rows(X, targets, weights, numbers)
        else:
            predictions = self._predict_before(X)
            if len(present):
                chosen = X[present], targets[present], weights[present]
                information.absorb_targets(chosen[1], chosen[2])
                predictions[present] = self._learn_rows(*chosen, numbers)
        self._published = None
        self.rows_seen += len(X)
        self._position += len(X)
        self._count(reached)
        if self._position % REFRESH_ROWS == 0 or self._wants_solution():
            self._refresh()
        return predictions

    def _wants_solution(self) -> bool:
        """Tell whether so many rows were absorbed by sums alone that coefficients are due; on the block grid."""
        rows = min(self.rows_seen // SOLVED_SHARE, SOLVED_ROWS)
        return self._behind and self._position % GRID_ROWS == 0 and self.rows_seen - self._solved_at >= rows

    def _check_whole(self) -> None:
        if self._is_cut_off:
            raise NumericalBreakdown(
                "the learner was stopped amid its rows, by an error before this one, and holds a part of them; go on "
                "from a state that was taken before (OnlineLSSVM.from_state)"
            )

    def _predict_before(self, X: Floats) -> Floats:
        information = self._begun()
        if self._inverses is None:
            return np.zeros((len(X), information.target_square.shape[0]))
        values = self.parameters.kernel.block(X, information.basis_vectors, self._centre)
        return np.asarray(values @ self._inverses.coefficients)

    def _count(self, reached: float) -> None:
        """Go on to the weight `reached`; at a power of two γ changes exactly, and with it every inverse."""
        before, self.weight_seen = _octave(self.weight_seen), reached
        if self.weight_seen > 0 and _octave(self.weight_seen) != before:
            self._begun().set_penalty(self._penalty(self.weight_seen))
            self._refresh()

    def _penalty(self, weight: float) -> float:
        return math.ldexp(self.parameters.regularization, _octave(weight))

    def _refresh(self, *, scheduled: bool = True) -> None:
        """Make anew what is carried; one that is not `scheduled` comes amid a row, where β is ahead of P and z."""
        before, penalty = self._inverses, self._begun().penalty
        self._begun().reserve(self.n_basis)
        comparable = scheduled and not self._behind and penalty == self._solved_penalty
        self._inverses = self._solved() if self.n_basis and penalty > 0 else None
        self._behind, self._solved_penalty, self._solved_at = False, penalty, self.rows_seen
        if self._inverses is not None:
            drift = self._drift(before, self._inverses) if before is not None and comparable else None
            self.numerics = self.numerics.after_refresh(self._inverses.condition, drift)

    def _drift(self, before: Inverses | Solution, now: Inverses | Solution) -> float | None:
        """Return how far the coefficients carried since the last refresh were off; None if nothing was learned."""
        if np.array_equal(before.coefficients, now.coefficients):
            return None
        return measure_drift(self._begun().gram, before.coefficients, now.coefficients)

    def _solved(self) -> Inverses | Solution:
        if not self._is_closed():
            return Inverses(self._begun())
        return Solution.of(self._begun(), self._inverses if isinstance(self._inverses, Solution) else None)

    def _is_closed(self) -> bool:
        return self.parameters.rule.is_closed(self.n_basis, self.parameters.max_basis)

    def _learn_rows(self, X: Floats, targets: Floats, weights: Floats, numbers: Integers) -> Floats:
        """Learn rows of positive weight; return the predictions made before each."""
        predictions = np.zeros_like(targets)
        start = 0
        if self.n_basis == 0:
            self._begin(X[0], targets[0], float(weights[0]), int(numbers[0]))
            start = 1
        refreshed = -1
        while start < len(X):
            if self._is_closed():
                predictions[start:] = self._sum_rows(X[start:], targets[start:], weights[start:])
                break
            fresh = start == refreshed
            if self._begun().capacity == self.n_basis:
                self._begun().reserve(self._plan_capacity())
            strip = self._strip(X[start:], numbers[start:], targets[start:], weights[start:])
            what, learned, swaps = strip.run(is_fresh=fresh, counts=self._counts)
            self.swaps += swaps
            self.numerics = self.numerics.after_refusals(int(self._counts[REFUSED]))
            self._counts[REFUSED] = 0
            if what == UNSAFE and learned == 0 and fresh:
                raise NumericalBreakdown(
                    f"row {numbers[start]} of the stream has a pivot that is not safely positive right after a "
                    "refresh; raise novelty_threshold or regularization"
                )
            innovations = strip.rows.innovations[:learned]
            predictions[start : start + learned] = targets[start : start + learned] - innovations
            start += learned
            if what == GROW:
                self._check_memory(int(numbers[start]))
            if what in (GROW, UNSAFE):
                self._refresh(scheduled=False)
                refreshed = start
        return predictions

    def _check_memory(self, row: int) -> None:
        """Raise MemoryRefused if there is no room for one more basis vector."""
        if self.memory_limit_bytes is not None and self.parameters.max_basis is None:
            n_features = self._begun().vectors.shape[1]
            check_growth(self.n_basis, n_features, row, self.memory_limit_bytes)

    def _plan_capacity(self) -> int:
        """Return how many basis vectors there should be room for: some more, but not more than fit."""
        n, p = self.n_basis, self.parameters
        capacity = n + max(MORE_BASIS, n // 4)
        if p.max_basis is not None:
            return min(capacity, p.max_basis)
        n_features = self._begun().vectors.shape[1]
        while capacity > n and not fits_growth(capacity, n_features, self.memory_limit_bytes):
            capacity = n + (capacity - n) // 2
        return capacity

    def _sum_rows(self, X: Floats, targets: Floats, weights: Floats) -> Floats:
        """Absorb rows that nothing is decided on; return their predictions by the coefficients of the last refresh."""
        values = self.parameters.kernel.block(X, self._begun().basis_vectors, self._centre)
        self._begun().absorb(values, targets, weights)
        self._behind = True
        return np.asarray(values @ self._inverses.coefficients) if self._inverses else np.zeros_like(targets)

    def _begin(self, x: Floats, y: Floats, weight: float, row: int) -> None:
        """Make the first row the dictionary: D = [x], K = [k*], P = [wk*² + γk*], z = [wk*y]."""
        information = self._begun()
        if self._centre is None:
            self._centre = x.copy()
        k = float(self.parameters.kernel.diagonal(x[np.newaxis])[0])
        if not k > 0:
            return
        information.begin(x, row, k, weight, y, self._penalty(self.weight_seen + weight))
        self._refresh()

    def _strip(self, X: Floats, numbers: Integers, targets: Floats, weights: Floats) -> Strip:
        if not isinstance(self._inverses, Inverses):
            raise NumericalBreakdown("the learner has a dictionary but no inverses")
        p = self.parameters
        block = RowBlock(X, targets, weights, numbers)
        return Strip(p, self._centre, self._begun(), self._inverses, block, self._room, screened=self._may_screen())

    def _is_full(self) -> bool:
        return self.parameters.max_basis is not None and self.n_basis >= self.parameters.max_basis

    def _may_screen(self) -> bool:
        """Tell whether the dictionary is full, and large enough, and old enough, for bounds on swaps to pay."""
        return self._is_full() and self.n_basis >= SCREEN_BASIS and self.weight_seen > SCREEN_ROWS * self.n_basis


def _octave(weight: float) -> int:
    """Return ⌊log₂ weight⌋, exactly; a value below every other for zero."""
    return math.frexp(weight)[1] - 1 if weight > 0 else -(10**6)
