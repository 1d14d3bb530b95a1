"""The information form with the inverses and β computed from it: learns blocks of rows, refreshes, publishes.

A refresh recomputes P⁻¹, K⁻¹ and β from P, K and z by Cholesky factorizations. A dictionary that no row can change
needs no inverses: its rows are summed, and its coefficients solved for at a refresh.
"""

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.base.memory_plan import check_growth, fits_growth
from ridgestream.pipeline.cholesky import cholesky
from ridgestream.pipeline.online.compiled.swap_criterion import GROW, REFUSED, UNSAFE
from ridgestream.pipeline.online.diagnostics import rounding_error_of
from ridgestream.pipeline.online.information_form import Information
from ridgestream.pipeline.online.inverses import Inverses, Solution
from ridgestream.pipeline.online.row_block import RowBlock
from ridgestream.pipeline.online.row_strip import Strip, Workspace
from ridgestream.pipeline.online.schedule import octave, rows_between_solutions
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.online.state import OnlineState

SCREEN_BASIS, SCREEN_ROWS = 256, 200
"""Bounds on swaps pay for at least this number of basis vectors, after at least this number of rows per vector."""

MORE_BASIS = 16
"""Least number of indices that a growing dictionary's arrays are extended by: a row costs as much as the arrays."""


class CarriedModel:
    """The exact sums, the inverses and β computed from them, and counters, updated row by row."""

    def __init__(self, state: OnlineState, centre: Floats | None, workspace: Workspace | None = None) -> None:
        self.settings = state.parameters
        self.centre = centre
        self.information = Information(state)
        self.inverses: Inverses | Solution | None = None
        self.rows_seen, self.weight_seen, self.swaps = state.rows_seen, state.weight_seen, state.swaps
        self.numerics = state.numerics
        self.counts: Integers = np.zeros(3, dtype=np.int64)
        self.memory_limit_bytes: int | None = None
        self._workspace = workspace or Workspace()
        self._has_summed_rows = False  # since the last refresh, so that P and z are newer than β
        self._solved_penalty, self._solved_at = 0.0, 0

    @property
    def n_basis(self) -> int:
        """The number of basis vectors."""
        return self.information.n_basis

    @property
    def is_closed(self) -> bool:
        """Whether no further row can change the dictionary."""
        return self.settings.rule.is_closed(self.n_basis, self.settings.max_basis)

    @property
    def needs_solution(self) -> bool:
        """Whether enough rows were summed since the coefficients of a fixed dictionary were last solved for."""
        return self._has_summed_rows and self.rows_seen - self._solved_at >= rows_between_solutions(self.rows_seen)

    def state(self, *, whole: bool = True) -> OnlineState:
        """Return a copy of the exact state; unless `whole`, K and P are those of `Information.matrices`."""
        information = self.information
        gram, normal_matrix = information.matrices(whole=whole)
        return OnlineState(
            parameters=self.settings,
            centre=np.zeros(information.basis_vectors.shape[1]) if self.centre is None else self.centre.copy(),
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

    def predict_before(self, X: Floats) -> Floats:
        """Return predictions with the β carried now, shape (rows, n_targets)."""
        if self.inverses is None:
            return np.zeros((len(X), len(self.information.target_square)))
        return np.asarray(self._kernel_rows(X) @ self.inverses.coefficients)

    def learn(self, block: RowBlock) -> Floats:
        """Learn rows of positive weight; return each one's prediction from the rows before it, (rows, n_targets)."""
        self.information.absorb_targets(block.targets, block.weights)
        predictions, start, refreshed_at = np.zeros_like(block.targets), 0, -1
        if self.n_basis == 0:
            self._start_dictionary(block)
            start = 1
        while start < len(block):
            rest = block.after(start)
            if self.is_closed:
                predictions[start:] = self._sum_rows(rest)
                break
            why, innovations = self._run_strip(rest, is_fresh=start == refreshed_at)
            stop = start + len(innovations)
            predictions[start:stop] = block.targets[start:stop] - innovations
            start = stop
            if why == GROW:
                self._check_memory(int(block.row_numbers[start]))
            if why in (GROW, UNSAFE):
                self.refresh(scheduled=False)
                refreshed_at = start
        return predictions

    def count(self, rows: int, weight_seen: float) -> None:
        """Count rows just learned; where the weight reaches a power of two, change γ and refresh."""
        before, self.weight_seen = octave(self.weight_seen), weight_seen
        self.rows_seen += rows
        if weight_seen > 0 and octave(weight_seen) != before:
            self.information.set_penalty(self.settings.selection_penalty(weight_seen))
            self.refresh()

    def set_regularization(self, settings: OnlineSettings) -> None:
        """Adopt settings that differ in λ alone: P += (γ′ − γ)K; a refresh must follow."""
        self.settings = settings
        if self.weight_seen > 0:
            self.information.set_penalty(settings.selection_penalty(self.weight_seen))

    def refresh(self, *, scheduled: bool = True) -> None:
        """Recompute P⁻¹, K⁻¹ and β, or, if no row can change the dictionary, β alone; O(n_basis³).

        An unscheduled refresh happens in the middle of a row, when β is newer than P and z.
        """
        before, penalty = self.inverses, self.information.penalty
        self.information.reserve(self.n_basis)
        is_comparable = scheduled and not self._has_summed_rows and penalty == self._solved_penalty
        self.inverses = self._solved() if self.n_basis and penalty > 0 else None
        self._has_summed_rows, self._solved_penalty, self._solved_at = False, penalty, self.rows_seen
        if self.inverses is not None:
            error = self._rounding_error(before, self.inverses) if before is not None and is_comparable else None
            self.numerics = self.numerics.after_refresh(self.inverses.condition, error)

    def published_coefficients(self) -> Floats:
        """Return β = (P + (γ′ − γ)K)⁻¹z, γ′ the published penalty, shape (n_basis, n_targets); O(n_basis³)."""
        information = self.information
        if not (self.n_basis and self.weight_seen > 0):
            return np.zeros_like(information.normal_rhs)
        regularization = self.settings.published_regularization(self.weight_seen)
        excess = regularization * self.weight_seen - information.penalty
        with one_blas_thread():
            matrix = information.normal_matrix + excess * information.gram
            return cholesky(matrix, "normal matrix P").solve(information.normal_rhs)

    def cost(self) -> float:
        """Return ξ = Σ_c (y_cᵀy_c − z_cᵀβ_c) at the selection's γ."""
        fitted = 0.0
        if self.inverses is not None:
            solved = self._solved() if self._has_summed_rows else self.inverses
            fitted = float(np.sum(self.information.normal_rhs * solved.coefficients))
        return float(np.trace(self.information.target_square)) - fitted

    def _solved(self) -> Inverses | Solution:
        if not self.is_closed:
            return Inverses(self.information)
        return Solution.of(self.information, self.inverses if isinstance(self.inverses, Solution) else None)

    def _rounding_error(self, before: Inverses | Solution, now: Inverses | Solution) -> float | None:
        """Return how far the carried coefficients were off before this refresh; None if nothing was learned."""
        if np.array_equal(before.coefficients, now.coefficients):
            return None
        return rounding_error_of(self.information.gram, before.coefficients, now.coefficients)

    def _run_strip(self, block: RowBlock, *, is_fresh: bool) -> tuple[int, Floats]:
        """Learn rows until compiled code stops; return why it stopped and the innovations of the rows learned."""
        if not isinstance(self.inverses, Inverses):
            raise NumericalBreakdown("the learner has a dictionary but no inverses")
        if self.information.capacity == self.n_basis:
            self.information.reserve(self._plan_capacity())
        model = self.information, self.inverses
        strip = Strip(self.settings, self.centre, *model, block, self._workspace, screened=self._may_screen())
        why, learned, swaps = strip.run(is_fresh=is_fresh, counts=self.counts)
        self.swaps += swaps
        self.numerics = self.numerics.after_refusals(int(self.counts[REFUSED]))
        self.counts[REFUSED] = 0
        if why == UNSAFE and learned == 0 and is_fresh:
            raise NumericalBreakdown(
                f"row {block.row_numbers[0]} of the stream has a pivot that is not safely positive right after a "
                "refresh; raise novelty_threshold or regularization"
            )
        return why, strip.rows.innovations[:learned]

    def _sum_rows(self, block: RowBlock) -> Floats:
        """Absorb rows that cannot change the dictionary; return predictions with the β of the last refresh."""
        values = self._kernel_rows(block.X)
        self.information.absorb(values, block.targets, block.weights)
        self._has_summed_rows = True
        return np.asarray(values @ self.inverses.coefficients) if self.inverses else np.zeros_like(block.targets)

    def _start_dictionary(self, block: RowBlock) -> None:
        """Make the first row of the block the dictionary, unless its k* is zero."""
        x = block.X[0]
        if self.centre is None:
            self.centre = x.copy()
        k = float(self.settings.kernel.diagonal(x[np.newaxis])[0])
        if not k > 0:
            return
        weight = float(block.weights[0])
        penalty = self.settings.selection_penalty(self.weight_seen + weight)
        self.information.start(block, k, penalty)
        self.refresh()

    def _kernel_rows(self, X: Floats) -> Floats:
        return self.settings.kernel.block(X, self.information.basis_vectors, self.centre)

    def _check_memory(self, row: int) -> None:
        """Raise MemoryRefused if one more basis vector does not fit into the memory limit."""
        if self.memory_limit_bytes is not None and self.settings.max_basis is None:
            check_growth(self.n_basis, self.information.vectors.shape[1], row, self.memory_limit_bytes)

    def _plan_capacity(self) -> int:
        """Return the number of basis vectors to have memory for: some more than now, within the memory limit."""
        n, max_basis = self.n_basis, self.settings.max_basis
        capacity = n + max(MORE_BASIS, n // 4)
        if max_basis is not None:
            return min(capacity, max_basis)
        n_features = self.information.vectors.shape[1]
        while capacity > n and not fits_growth(capacity, n_features, self.memory_limit_bytes):
            capacity = n + (capacity - n) // 2
        return capacity

    def _may_screen(self) -> bool:
        """Whether the dictionary is full, large enough and old enough for bounds on swaps to pay."""
        max_basis = self.settings.max_basis
        is_full = max_basis is not None and self.n_basis >= max_basis
        return is_full and self.n_basis >= SCREEN_BASIS and self.weight_seen > SCREEN_ROWS * self.n_basis
