"""The rounds of EFVS: the rows chosen next, with J over all rows or over random ones."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.cholesky import check_kernel_sums, cholesky
from ridgestream.pipeline.kernels import Kernel, gram
from ridgestream.pipeline.selection.candidate_rounds import (
    Candidates,
    DrawnCandidates,
    candidate_source,
    check_memory,
    check_pass_memory,
    count_passes,
    largest_pass,
    plan_look_ahead,
)
from ridgestream.pipeline.selection.greedy_reconstruction import best_candidate, choose_by_reconstruction
from ridgestream.pipeline.sums.residual_products import ResidualSumming, sum_residuals
from ridgestream.pipeline.sums.row_set import RowSet

if TYPE_CHECKING:
    from ridgestream.pipeline.batch.efvs import EFVSSettings

ALL_ROUNDS = 64
"""The number of rounds per pass if all rows are candidates."""

_SAMPLED_ROUNDS = 16
"""The number of rounds between two reports if J is over random rows."""


@dataclass(frozen=True)
class Selection:
    """A dictionary without coefficients, in the order in which it was chosen."""

    places: Integers
    """The row indices of the vectors, shape (n_basis,)."""
    vectors: Floats
    """Shape (n_basis, n_features)."""
    errors: Floats
    """The mean relative reconstruction error 1 − J of the first 1, 2, … vectors, shape (n_basis,); an estimate from the
    round's random rows if `sample` is a number."""
    rounds: Integers
    """The round in which each vector was chosen, shape (n_basis,)."""
    passes: int = 0
    """The number of passes over all rows so far."""

    @classmethod
    def empty(cls, n_features: int) -> "Selection":
        """Return a dictionary without vectors."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, np.empty((0, n_features)), np.empty(0), nothing)

    def first(self, size: int) -> "Selection":
        """Return the first vectors."""
        return Selection(self.places[:size], self.vectors[:size], self.errors[:size], self.rounds[:size], self.passes)

    def add(
        self, candidates: Candidates, columns: Integers, errors: Floats, rounds: Integers, passes: int
    ) -> "Selection":
        """Return the selection followed by these columns of the candidates, after `passes` more passes."""
        return Selection(
            np.concatenate([self.places, candidates.places[columns]]),
            np.concatenate([self.vectors, candidates.features[columns]]),
            np.concatenate([self.errors, errors]),
            np.concatenate([self.rounds, rounds]),
            self.passes + passes,
        )


class Extending(Protocol):
    """A way to extend a selection."""

    exhaustive: bool
    """Whether every round has all rows as candidates."""

    def rounds_ahead(self, n_basis: int) -> int:
        """Return the number of rounds of the next call of `extend`, given `n_basis` chosen vectors."""

    def passes_left(self, n_basis: int) -> int:
        """Return the number of remaining passes if every round chooses a vector."""

    def extend(self, selection: Selection, rounds_done: int, ahead: int) -> Selection:
        """Return the selection after `ahead` more rounds; `rounds_done` rounds are done."""


class Passing:
    """J is over all rows: one pass for the candidates of several rounds."""

    def __init__(self, rows: RowSet, kernel: Kernel, settings: "EFVSSettings") -> None:
        self._rows, self._kernel, self._settings = rows, kernel, settings
        largest = largest_pass(settings.limit, rows.n_rows, *settings.drawn)
        beside = settings.limit if settings.candidates == "all" else 0
        check_pass_memory(largest + beside, settings.candidates, settings.memory_limit)
        self._source = candidate_source(rows, settings.random_seed, settings.candidates, settings.pool)
        self.exhaustive = self._source.exhaustive

    def rounds_ahead(self, n_basis: int) -> int:
        """Return the number of rounds that share the next pass."""
        settings = self._settings
        if settings.candidates == "all":
            return settings.look_ahead or ALL_ROUNDS
        return settings.look_ahead or plan_look_ahead(settings.limit, n_basis, settings.candidates)

    def passes_left(self, n_basis: int) -> int:
        """Return the number of remaining passes if every round chooses a vector."""
        settings = self._settings
        if settings.candidates == "all":
            return -((n_basis - settings.limit) // self.rounds_ahead(n_basis))
        return count_passes(settings.limit, n_basis, settings.candidates, settings.look_ahead)

    def extend(self, selection: Selection, rounds_done: int, ahead: int) -> Selection:
        """Return the selection after `ahead` more rounds; one pass, none without candidates."""
        most = self._settings.limit - len(selection.places)
        candidates = self._source.of_rounds(rounds_done, ahead, most, selection.places)
        n = len(candidates.places)
        if not n:
            return selection
        with one_blas_thread():
            left, projection = _project(self._kernel, selection.vectors, candidates.features)
        argument = ResidualSumming(self._kernel, selection.vectors, candidates.features, projection)
        sums = self._rows.reduce(sum_residuals, argument, events.STEP_EFVS_PASS.numbered(vectors=len(selection.places)))
        lengths = self._kernel.diagonal(candidates.features)
        rounds = [np.arange(n)] * ahead if candidates.rounds is None else candidates.rounds
        threshold, per_round = self._settings.spanned_threshold, self._settings.replaced_to
        chosen = choose_by_reconstruction(sums.own, left, lengths, threshold, rounds, per_round)
        before = float(selection.errors[-1]) if len(selection.errors) else 1.0
        errors = before - np.cumsum(chosen.gains) / (sums.weight or 1.0)
        return selection.add(candidates, chosen.columns, np.maximum(errors, 0.0), rounds_done + chosen.rounds, 1)


class Sampling:
    """J is over some random rows of each round: no pass, and no more rows at once than those.

    A round all of whose random rows are spanned has nothing to compare candidates by, and chooses none.
    """

    exhaustive = False

    def __init__(self, rows: RowSet, kernel: Kernel, settings: "EFVSSettings", sample: int) -> None:
        self._kernel, self._settings = kernel, settings
        n_candidates = rows.n_rows if settings.candidates == "all" else min(settings.candidates, rows.n_rows)
        held = (n_candidates + sample) * (rows.n_features + 3 * settings.limit) + 3 * settings.limit**2
        check_memory(8 * (held + 2 * n_candidates * sample), settings.candidates, settings.memory_limit)
        self._source = candidate_source(rows, settings.random_seed, settings.candidates, settings.pool)
        self._samples = DrawnCandidates(rows, settings.random_seed, sample, stream=1)
        self._factor: Floats = np.zeros((0, 0))

    def rounds_ahead(self, n_basis: int) -> int:  # noqa: ARG002
        """Return the number of rounds between two reports."""
        return _SAMPLED_ROUNDS

    def passes_left(self, n_basis: int) -> int:  # noqa: ARG002
        """Return zero."""
        return 0

    def extend(self, selection: Selection, rounds_done: int, ahead: int) -> Selection:
        """Return the selection after `ahead` more rounds."""
        with one_blas_thread():
            for number in range(rounds_done, rounds_done + ahead):
                selection = self._extend_by_one(selection, number)
        return selection

    def _extend_by_one(self, selection: Selection, number: int) -> Selection:
        """Return the selection after one more round, which may choose none."""
        most = self._settings.limit + number
        candidates = self._source.of_rounds(number, 1, most, selection.places)
        sample = _reconstructible(self._kernel, self._samples.of_rounds(number, 1, most, np.empty(0, dtype=np.int64)))
        if not len(candidates.places) or not len(sample.places):
            return selection
        half, left = self._reduce(selection.vectors, candidates.features)
        half_sample, left_sample = self._reduce(selection.vectors, sample.features)
        E = self._block(sample.features, candidates.features) - half_sample.T @ half
        lengths, threshold = self._kernel.diagonal(candidates.features), self._settings.spanned_threshold
        check_kernel_sums(lengths, "vector of the candidates' k(x, x)")
        shares = sample.weights / self._kernel.diagonal(sample.features)
        open_shares = np.where(shares * left_sample > threshold * sample.weights, shares, 0.0)
        best = best_candidate(np.arange(len(lengths)), open_shares @ E**2, left, lengths, threshold)
        if best is None or not open_shares.any():
            return selection
        self._border(half[:, best], float(left[best]))
        error = float(shares @ (left_sample - E[:, best] ** 2 / left[best])) / float(sample.weights.sum())
        return selection.add(candidates, np.array([best]), np.array([max(error, 0.0)]), np.array([number]), 0)

    def _block(self, X: Floats, Z: Floats) -> Floats:
        return self._kernel.block(X, Z, np.zeros(X.shape[1]))

    def _reduce(self, vectors: Floats, features: Floats) -> tuple[Floats, Floats]:
        """Return L⁻¹k_S of rows, (n_basis, rows), with K_SS = LLᵀ, and k(x, x) − ‖L⁻¹k_S‖² (rows,)."""
        half = self._block(vectors, features)
        if len(half):
            half = solve_triangular(self._factor[: len(half), : len(half)], half, lower=True, check_finite=False)
        return half, np.maximum(self._kernel.diagonal(features) - np.einsum("ij,ij->j", half, half), 0.0)

    def _border(self, half: Floats, left: float) -> None:
        """Add a row of the factor: `half`, and the root of `left`."""
        n_basis = len(half)
        if n_basis == len(self._factor):
            larger = np.zeros((min(2 * n_basis + 64, self._settings.limit),) * 2)
            larger[:n_basis, :n_basis] = self._factor
            self._factor = larger
        self._factor[n_basis, :n_basis], self._factor[n_basis, n_basis] = half, np.sqrt(left)


def _project(kernel: Kernel, vectors: Floats, features: Floats) -> tuple[Floats, Floats]:
    """Return the candidates' kernel matrix minus its projection on the chosen vectors, and K_SS⁻¹k_S of each."""
    n_basis = len(vectors)
    values = gram(kernel, np.concatenate([vectors, features]), np.zeros(features.shape[1]))
    check_kernel_sums(values, "kernel matrix of the candidates")
    if not n_basis:
        return values, np.empty((0, len(features)))
    factor = cholesky(values[:n_basis, :n_basis], "kernel matrix K of the dictionary")
    across = values[:n_basis, n_basis:]
    half = solve_triangular(np.tril(factor.factor), across, lower=True, check_finite=False)
    return values[n_basis:, n_basis:] - half.T @ half, factor.solve(across)


def _reconstructible(kernel: Kernel, sample: Candidates) -> Candidates:
    """Return the rows with k(x, x) above zero."""
    present = np.flatnonzero(kernel.diagonal(sample.features) > 0)
    return Candidates(sample.places[present], sample.features[present], sample.weights[present], None)
