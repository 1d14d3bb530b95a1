"""EFVS: a dictionary that spans the rows in feature space, chosen without their targets.

Paper: Cawley & Talbot (2002), "Efficient formation of a basis in a kernel induced feature space", Algorithm 1. Each
round adds, of ρ random rows, the one that raises the most

    J(S) = (1/ℓ) Σ_i k_S(x_i)ᵀK_SS⁻¹k_S(x_i)/k(x_i, x_i),

over all rows (ν = ∞) or ν random ones; 1 − J is the mean relative reconstruction error. Adding c raises ℓJ by
Σ_i E_ci²/k(x_i, x_i)/H_cc, with E_ci = k(x_c, x_i) − k_S(x_c)ᵀK_SS⁻¹k_S(x_i) and H_cc its value at c itself. With all
rows as candidates and in J it is FVS (Baudat & Anouar 2001). All sums are weighted.

Where we depart from it. The paper draws candidates and the rows of J from a pool that shrinks as rows are found to be
spanned; here a round draws from all rows, by a seed of its own, and what is chosen or spanned (H_cc/k(x_c, x_c) < ε) is
skipped, not replaced. So the candidates of r rounds are known before any of them chooses, and with ν = ∞ one pass
serves r rounds, whose choices are those of r passes. With ν finite no pass is needed to choose.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import solve_triangular

from ridgestream.pipeline.arrays import Floats, Integers
from ridgestream.pipeline.block_statistics import Basis
from ridgestream.pipeline.errors import InputError
from ridgestream.pipeline.factorization import cholesky
from ridgestream.pipeline.fitted import Fitted, Path
from ridgestream.pipeline.kernels import Kernel, check_positive, gram
from ridgestream.pipeline.look_ahead import (
    RULE_OF_59,
    Candidates,
    DrawnCandidates,
    NumberOrAll,
    candidate_source,
    check_candidates,
    check_memory,
    check_pass_memory,
    count_passes,
    cut_idle,
    largest_pass,
    plan_look_ahead,
)
from ridgestream.pipeline.reconstruction import best_candidate, choose_by_reconstruction
from ridgestream.pipeline.reporting import Reporter
from ridgestream.pipeline.residual_sums import ResidualSumming, sum_residuals
from ridgestream.pipeline.row_sets import RowSet
from ridgestream.pipeline.subset_of_regressors import fit_coefficients
from ridgestream.pipeline.threads import one_blas_thread

_ALL_ROUNDS = 64
"""Rounds that a pass serves if all rows are candidates."""

_LEAST_THRESHOLD = 1e-10

_SAMPLED_ROUNDS = 16
"""Rounds between two words of progress if J is over random rows."""


@dataclass(frozen=True)
class EFVSSettings:
    """What EFVS is told."""

    regularization: float
    """λ per row, for the coefficients; the choice does not depend on it."""
    max_basis: int
    """N, the largest dictionary."""
    candidates: NumberOrAll = RULE_OF_59
    """ρ, the rows that each round chooses from, drawn at random, or "all"."""
    sample: NumberOrAll = "all"
    """ν, the rows that J is over in each round, drawn at random, or "all", which takes passes."""
    spanned_threshold: float = 1e-8
    """ε: a candidate of whose squared length in feature space no more than this share is left is spanned."""
    reconstruction_threshold: float = 0.0
    """τ: the mean relative reconstruction error at which the dictionary is large enough; zero, as long as some row is
    not spanned."""
    look_ahead: int | None = None
    """Rounds whose candidates share a pass; None leaves it to `plan_look_ahead`. It changes no choice."""
    folds: int = 1
    """Folds for which the sums of the chosen dictionary are kept."""
    seed: int = 0
    """What rows are drawn with, and dealt to folds."""
    memory_limit: int | None = None
    """Bytes that the sums of a pass may take in a process, None where nothing limits them."""

    def __post_init__(self) -> None:
        check_positive("regularization", self.regularization)
        check_candidates("candidates", self.candidates)
        check_candidates("sample", self.sample)
        for name, lowest in {"max_basis": 1, "folds": 1, "seed": 0}.items():
            if getattr(self, name) < lowest:
                raise InputError(f"{name} must be at least {lowest}, it is {getattr(self, name)}")
        if not _LEAST_THRESHOLD <= self.spanned_threshold < 1:
            raise InputError(
                f"spanned_threshold must be at least {_LEAST_THRESHOLD:g}, below which rounding decides, and less than "
                f"1, it is {self.spanned_threshold}"
            )
        if not 0 <= self.reconstruction_threshold < 1:
            raise InputError(
                f"reconstruction_threshold must be from 0 to less than 1, it is {self.reconstruction_threshold}"
            )
        if self.look_ahead is not None and self.look_ahead < 1:
            raise InputError(f"look_ahead must be at least 1, it is {self.look_ahead}; leave it out for the default")


@dataclass(frozen=True)
class Selection:
    """A dictionary without coefficients, in the order in which it was chosen."""

    places: Integers
    """Where the vectors are among the rows, shape (n_basis,)."""
    vectors: Floats
    """Shape (n_basis, n_features)."""
    errors: Floats
    """The mean relative reconstruction error 1 − J of the first vectors, from one on, shape (n_basis,); an estimate
    from the round's random rows where `sample` is a number."""
    rounds: Integers
    """The round that chose each, shape (n_basis,)."""

    def first(self, size: int) -> "Selection":
        """Return the first vectors."""
        return Selection(self.places[:size], self.vectors[:size], self.errors[:size], self.rounds[:size])

    def add(self, candidates: Candidates, columns: Integers, errors: Floats, rounds: Integers) -> "Selection":
        """Return it with these candidates after it."""
        return Selection(
            np.concatenate([self.places, candidates.places[columns]]),
            np.concatenate([self.vectors, candidates.features[columns]]),
            np.concatenate([self.errors, errors]),
            np.concatenate([self.rounds, rounds]),
        )


def fit_efvs(rows: RowSet, kernel: Kernel, settings: EFVSSettings, report: Reporter) -> Fitted:
    """Return a dictionary chosen by EFVS, with its coefficients; the path tells its reconstruction error.

    Raises as `select_basis` does, and NumericalBreakdown if P is not positive definite within rounding.
    """
    found = select_basis(rows, kernel, settings, report)
    n_basis = len(found.places)
    path = Path(
        "reconstruction_error",
        np.arange(1, n_basis + 1),
        np.full(n_basis, settings.regularization),
        found.errors,
        np.zeros(n_basis, dtype=np.int64),
        n_basis - 1,
    )
    return fit_coefficients(
        rows,
        Basis(kernel, found.vectors, np.zeros(rows.n_features)),
        found.places,
        settings.regularization,
        folds=settings.folds,
        seed=settings.seed,
        path=path,
        notes={"reconstruction_error": float(found.errors[-1]), "rounds": float(found.rounds[-1] + 1)},
    )


def select_basis(rows: RowSet, kernel: Kernel, settings: EFVSSettings, report: Reporter) -> Selection:
    """Return the dictionary that EFVS chooses, for whatever is made of it.

    With ν = ∞ about max_basis/r passes, of O(ρ·(n_basis + ρr)) a row and round; with ν finite none, and
    O((ρ + ν)·n_basis² + ρν·n_basis) a round. Raises InputError where no row can be chosen, MemoryRefused where the sums
    of a pass cannot fit.
    """
    extending: _Extending
    if settings.sample == "all" or settings.sample >= rows.n_rows:
        extending = _Passing(rows, kernel, settings)
    else:
        extending = _Sampling(rows, kernel, settings, settings.sample)
    nothing = np.empty(0, dtype=np.int64)
    found, tried = Selection(nothing, np.empty((0, rows.n_features)), np.empty(0), nothing), 0
    while True:
        n_basis = len(found.places)
        ahead = min(extending.rounds_ahead(n_basis), settings.max_basis - n_basis)
        found, over = _cut(extending.extend(found, tried, ahead), n_basis, tried + ahead, extending, settings)
        tried += ahead
        if len(found.places):
            left = extending.passes_left(len(found.places))
            report.say(
                "EFVS", vectors=len(found.places), reconstruction_error=float(found.errors[-1]), passes_left=left
            )
        if over:
            break
    if not len(found.places):
        raise InputError(f"EFVS found no row to choose among {rows.n_rows} rows: it needs one of positive weight")
    return found


def _cut(
    found: Selection, n_basis: int, tried: int, extending: "_Extending", settings: EFVSSettings
) -> tuple[Selection, bool]:
    """Return what was chosen before a reason to stop, and whether there is one."""
    reached = np.flatnonzero(found.errors <= settings.reconstruction_threshold)
    if settings.reconstruction_threshold > 0 and len(reached):
        return found.first(int(reached[0]) + 1), True
    if extending.exhaustive:  # a round that finds none among all rows is followed by none that does
        return found, len(found.places) < tried or len(found.places) == settings.max_basis
    last = int(found.rounds[n_basis - 1]) if n_basis else -1
    kept, spent = cut_idle(found.rounds[n_basis:], last, tried)
    found = found.first(n_basis + kept)
    return found, spent or len(found.places) == settings.max_basis


class _Extending(Protocol):
    """A way to choose more."""

    exhaustive: bool
    """Whether every round has all rows as candidates."""

    def rounds_ahead(self, n_basis: int) -> int:
        """Return how many rounds are taken together after so many vectors."""

    def passes_left(self, n_basis: int) -> int:
        """Return how many passes are to come if every round chooses."""

    def extend(self, found: Selection, tried: int, ahead: int) -> Selection:
        """Return what is chosen after `ahead` rounds, those before `tried` being done."""


class _Passing:
    """J is over all rows: one pass for the candidates of several rounds."""

    def __init__(self, rows: RowSet, kernel: Kernel, settings: EFVSSettings) -> None:
        self._rows, self._kernel, self._settings = rows, kernel, settings
        largest = largest_pass(settings.max_basis, rows.n_rows, settings.candidates, settings.look_ahead)
        beside = settings.max_basis if settings.candidates == "all" else 0
        check_pass_memory(largest + beside, settings.candidates, settings.memory_limit)
        self._source = candidate_source(rows, settings.seed, settings.candidates)
        self.exhaustive = self._source.exhaustive

    def rounds_ahead(self, n_basis: int) -> int:
        settings = self._settings
        if settings.candidates == "all":
            return settings.look_ahead or _ALL_ROUNDS
        return settings.look_ahead or plan_look_ahead(settings.max_basis, n_basis, settings.candidates)

    def passes_left(self, n_basis: int) -> int:
        settings = self._settings
        if settings.candidates == "all":
            return -((n_basis - settings.max_basis) // self.rounds_ahead(n_basis))
        return count_passes(settings.max_basis, n_basis, settings.candidates, settings.look_ahead)

    def extend(self, found: Selection, tried: int, ahead: int) -> Selection:
        most = self._settings.max_basis - len(found.places)
        candidates = self._source.of_rounds(tried, ahead, most, found.places)
        n = len(candidates.places)
        if not n:
            return found
        with one_blas_thread():
            left, projection = _project(self._kernel, found.vectors, candidates.features)
        argument = ResidualSumming(self._kernel, found.vectors, candidates.features, projection)
        sums = self._rows.reduce(sum_residuals, argument, f"EFVS from {len(found.places)} vectors")
        lengths = self._kernel.diagonal(candidates.features)
        rounds = [np.arange(n)] * ahead if candidates.rounds is None else candidates.rounds
        chosen = choose_by_reconstruction(sums.own, left, lengths, self._settings.spanned_threshold, rounds)
        before = float(found.errors[-1]) if len(found.errors) else 1.0
        errors = before - np.cumsum(chosen.gains) / (sums.weight or 1.0)
        return found.add(candidates, chosen.columns, np.maximum(errors, 0.0), tried + chosen.rounds)


class _Sampling:
    """J is over some random rows of each round: no pass, and no more rows at once than those.

    A round all of whose random rows are spanned has nothing to compare candidates by, and chooses none.
    """

    exhaustive = False

    def __init__(self, rows: RowSet, kernel: Kernel, settings: EFVSSettings, sample: int) -> None:
        self._kernel, self._settings = kernel, settings
        n_candidates = rows.n_rows if settings.candidates == "all" else min(settings.candidates, rows.n_rows)
        held = (n_candidates + sample) * (rows.n_features + 3 * settings.max_basis) + 3 * settings.max_basis**2
        check_memory(8 * (held + 2 * n_candidates * sample), settings.candidates, settings.memory_limit)
        self._source = candidate_source(rows, settings.seed, settings.candidates)
        self._samples = DrawnCandidates(rows, settings.seed, sample, stream=1)
        self._factor: Floats = np.zeros((0, 0))

    def rounds_ahead(self, n_basis: int) -> int:  # noqa: ARG002
        return _SAMPLED_ROUNDS

    def passes_left(self, n_basis: int) -> int:  # noqa: ARG002
        return 0

    def extend(self, found: Selection, tried: int, ahead: int) -> Selection:
        with one_blas_thread():
            for number in range(tried, tried + ahead):
                found = self._extend_by_one(found, number)
        return found

    def _extend_by_one(self, found: Selection, number: int) -> Selection:
        """Return it with the choice of one round, if that makes one."""
        most = self._settings.max_basis + number
        candidates = self._source.of_rounds(number, 1, most, found.places)
        sample = _reconstructible(self._kernel, self._samples.of_rounds(number, 1, most, np.empty(0, dtype=np.int64)))
        if not len(candidates.places) or not len(sample.places):
            return found
        half, left = self._reduce(found.vectors, candidates.features)
        half_sample, left_sample = self._reduce(found.vectors, sample.features)
        E = self._block(sample.features, candidates.features) - half_sample.T @ half
        lengths, threshold = self._kernel.diagonal(candidates.features), self._settings.spanned_threshold
        shares = sample.weights / self._kernel.diagonal(sample.features)
        open_shares = np.where(shares * left_sample > threshold * sample.weights, shares, 0.0)
        best = best_candidate(np.arange(len(lengths)), open_shares @ E**2, left, lengths, threshold)
        if best is None or not open_shares.any():
            return found
        self._border(half[:, best], float(left[best]))
        error = float(shares @ (left_sample - E[:, best] ** 2 / left[best])) / float(sample.weights.sum())
        return found.add(candidates, np.array([best]), np.array([max(error, 0.0)]), np.array([number]))

    def _block(self, X: Floats, Z: Floats) -> Floats:
        return self._kernel.block(X, Z, np.zeros(X.shape[1]))

    def _reduce(self, vectors: Floats, features: Floats) -> tuple[Floats, Floats]:
        """Return L⁻¹k_S of rows, (n_basis, rows), with K_SS = LLᵀ, and what is left of their k(x, x)."""
        half = self._block(vectors, features)
        if len(half):
            half = solve_triangular(self._factor[: len(half), : len(half)], half, lower=True, check_finite=False)
        return half, np.maximum(self._kernel.diagonal(features) - np.einsum("ij,ij->j", half, half), 0.0)

    def _border(self, half: Floats, left: float) -> None:
        """Add the vector with these values to the factor."""
        n_basis = len(half)
        if n_basis == len(self._factor):
            grown = np.zeros((min(2 * n_basis + 64, self._settings.max_basis),) * 2)
            grown[:n_basis, :n_basis] = self._factor
            self._factor = grown
        self._factor[n_basis, :n_basis], self._factor[n_basis, n_basis] = half, np.sqrt(left)


def _project(kernel: Kernel, vectors: Floats, features: Floats) -> tuple[Floats, Floats]:
    """Return what the chosen vectors leave of the kernel matrix of candidates, and K_SS⁻¹k_S of each of these."""
    n_basis = len(vectors)
    values = gram(kernel, np.concatenate([vectors, features]), np.zeros(features.shape[1]))
    if not n_basis:
        return values, np.empty((0, len(features)))
    factor = cholesky(values[:n_basis, :n_basis], "kernel matrix K of the dictionary")
    across = values[:n_basis, n_basis:]
    half = solve_triangular(np.tril(factor.factor), across, lower=True, check_finite=False)
    return values[n_basis:, n_basis:] - half.T @ half, factor.solve(across)


def _reconstructible(kernel: Kernel, sample: Candidates) -> Candidates:
    """Return those of the rows of which there is something to reconstruct."""
    present = np.flatnonzero(kernel.diagonal(sample.features) > 0)
    return Candidates(sample.places[present], sample.features[present], sample.weights[present], None)
