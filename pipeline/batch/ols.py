"""OLS: forward selection by orthogonal least squares, the baseline of the online learner's paper (Table 2).

Paper: Jung & Polani (2006), "Sequential learning with LS-SVM for large-scale data sets", after Chen, Cowan & Grant
(1991). Each round draws 59 random rows and adds the one whose kernel function lowers the regularized cost most:

    ‖y − Kβ‖² + λn βᵀK_SS β,  h = K_Sᵀq + λn k_S(c),  Δ = qᵀq + λn k(c, c) − hᵀP⁻¹h,  gain = Σ_t (qᵀy_t − hᵀβ_t)²/Δ

with P = K_SᵀK_S + λn K_SS, q the candidate's kernel values at all rows, and all sums weighted.

Departures. The paper stores the columns, t × m numbers. Here a pass sums the products of the candidates of r rounds
with the chosen vectors and with each other; the choices are computed from the sums and equal those of one pass per
round. The memory is O((m + 59r)²) (`candidate_products.py`, `forward_selection.py`). Candidates are drawn from all
rows; those that are already chosen or spanned (Δ within rounding) are skipped and not replaced. Coefficients are
computed from the sums of a last pass. The paper's γ is λn here, its σ is gamma.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.settings import Count, CountOrAll, Internal
from ridgestream.pipeline.batch.method import (
    FitTask,
    Method,
    PassPlan,
    PlanTask,
    Sizes,
    greedy_sizes,
    round_passes,
    sum_pass,
)
from ridgestream.pipeline.batch.shared_settings import (
    SharedFolds,
    SharedRegularization,
    SharedReselection,
    SharedSize,
)
from ridgestream.pipeline.kernels import Kernel, gram
from ridgestream.pipeline.selection.candidate_rounds import (
    RULE_OF_59,
    Candidates,
    candidate_source,
    check_pass_memory,
    count_passes,
    cut_idle,
    largest_pass,
    plan_look_ahead,
)
from ridgestream.pipeline.selection.fit_result import Fitted, Path
from ridgestream.pipeline.selection.fixed_basis_fit import fit_coefficients
from ridgestream.pipeline.selection.forward_selection import Chosen, choose_by_gain
from ridgestream.pipeline.selection.nested_models import NestedModels, gcv_of
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.candidate_products import CandidateSumming, sum_candidates
from ridgestream.pipeline.sums.normal_equations import BlockStatistics
from ridgestream.pipeline.sums.row_set import RowSet


@dataclass(frozen=True)
class OLSSettings(SharedReselection, SharedFolds, SharedSize, SharedRegularization):
    """Forward selection by orthogonal least squares."""

    candidates: CountOrAll = RULE_OF_59
    """The number of random rows among which a round chooses, or "all": one pass, whose sums take O(rows²) memory."""
    look_ahead: Count | None = None
    """The number of rounds that share a pass; by default the cheapest one. It does not change the result."""
    gcv: bool = False
    """Whether generalized cross-validation chooses the size, up to `max_basis`."""
    patience: Count = 10
    """With gcv: selection ends when this many further vectors have not lowered the smallest GCV."""
    memory_limit: Annotated[int | None, Internal()] = None
    """Bytes that the sums of a pass may take in a process; None for no limit."""

    def __post_init__(self) -> None:
        check_bounds(self)

    def rounds_of_pass(self, n_basis: int) -> int:
        """Return the number of rounds of the next pass, given `n_basis` chosen vectors."""
        left = self.limit - n_basis
        if self.candidates == "all":
            return left
        return min(left, self.look_ahead or plan_look_ahead(self.limit, n_basis, self.candidates))


@dataclass(frozen=True)
class _Grown:
    """The vectors chosen so far, with their sums."""

    places: Integers
    """The row indices of the vectors, (n_basis,)."""
    vectors: Floats
    """(n_basis, n_features)."""
    sums: BlockStatistics
    """The sums of the vectors over all rows."""
    gcv: Floats
    """The GCV of the first 1, 2, … vectors, (n_basis,)."""
    freedoms: Floats
    """tr(P⁻¹G), the effective number of parameters, of the first 1, 2, … vectors, (n_basis,)."""
    rounds: Integers
    """The round in which each vector was chosen, (n_basis,)."""

    def first(self, size: int) -> "_Grown":
        """Return the first `size` vectors."""
        sums = self.sums.choose(np.arange(size))
        measures = self.gcv[:size], self.freedoms[:size]
        return _Grown(self.places[:size], self.vectors[:size], sums, *measures, self.rounds[:size])


def fit_ols(rows: RowSet, kernel: Kernel, settings: OLSSettings, report: Reporter) -> Fitted:
    """Return the model over a dictionary chosen by OLS; the gains of several targets are added.

    About n/r + 1 passes, n = max_basis, of O(59·(n_basis + 59r)) per row and round. Raises InputError without a row of
    positive weight, MemoryRefused if the sums of a pass do not fit, NumericalBreakdown if P is not positive definite.
    """
    largest = largest_pass(settings.limit, rows.n_rows, settings.candidates, settings.look_ahead)
    check_pass_memory(largest, settings.candidates, settings.memory_limit)
    grown, tried, passes = _grow(rows, kernel, settings, report)
    if not len(grown.places):
        raise InputError(f"OLS found no row to choose among {rows.n_rows} rows: it needs one of positive weight")
    path = _path(grown, settings)
    size = path.chosen + 1
    return fit_coefficients(
        rows,
        Basis(kernel, grown.vectors[:size], np.zeros(rows.n_features)),
        grown.places[:size],
        settings.regularization,
        folds=settings.folds,
        seed=settings.random_seed,
        path=path,
        notes={"passes": passes + 1, "rounds": tried},
    )


def _grow(rows: RowSet, kernel: Kernel, settings: OLSSettings, report: Reporter) -> tuple[_Grown, int, int]:
    """Return the chosen vectors, the number of rounds and the number of passes."""
    nothing = np.empty(0, dtype=np.int64)
    sums = BlockStatistics.empty(0, rows.n_targets)
    grown = _Grown(nothing, np.empty((0, rows.n_features)), sums, np.empty(0), np.empty(0), nothing)
    source, tried, passes = candidate_source(rows, settings.random_seed, settings.candidates), 0, 0
    while True:
        n_basis = len(grown.places)
        ahead = settings.rounds_of_pass(n_basis)
        candidates = source.of_rounds(tried, ahead, settings.limit - n_basis, grown.places)
        if len(candidates.places):
            grown, passes = _extend(rows, kernel, settings, grown, candidates, tried), passes + 1
        tried += ahead
        grown, spent = _drop_idle(grown, n_basis, tried, exhaustive=source.exhaustive)
        _report(report, grown, settings)
        if spent or len(grown.places) == settings.limit or _stopped(grown, settings) is not None:
            return grown, tried, passes


def _extend(
    rows: RowSet, kernel: Kernel, settings: OLSSettings, grown: _Grown, candidates: Candidates, tried: int
) -> _Grown:
    """Return the chosen vectors after one more pass, for these candidates."""
    n_basis = len(grown.places)
    argument = CandidateSumming(kernel, grown.vectors, candidates.features, rows.n_targets)
    sums = rows.reduce(sum_candidates, argument, events.STEP_OLS_PASS.numbered(vectors=n_basis)).extend(grown.sums)
    places = np.concatenate([grown.places, candidates.places])
    vectors = np.concatenate([grown.vectors, candidates.features])
    allowed = None if candidates.rounds is None else [n_basis + columns for columns in candidates.rounds]
    with one_blas_thread():
        normal = sums.products + settings.regularization * sums.weight * gram(
            kernel, vectors, np.zeros(rows.n_features)
        )
        chosen = choose_by_gain(normal, sums.rhs, settings.limit, n_before=n_basis, allowed=allowed, overwrite=True)
        sums = sums.choose(chosen.columns)
        gcv, freedoms = _measure(grown, chosen, sums)
    rounds = np.concatenate([grown.rounds, tried + chosen.rounds[n_basis:]])
    return _Grown(places[chosen.columns], vectors[chosen.columns], sums, gcv, freedoms, rounds)


def _measure(grown: _Grown, chosen: Chosen, sums: BlockStatistics) -> tuple[Floats, Floats]:
    """Return GCV and the effective number of parameters of every size; those of `grown` are known."""
    errors, growth = NestedModels(chosen.factor, chosen.half_solution).after(len(grown.places), sums)
    before = grown.freedoms[-1] if len(grown.freedoms) else 0.0
    freedoms = before + np.cumsum(growth)
    return np.append(grown.gcv, gcv_of(errors, freedoms, sums.weight)), np.append(grown.freedoms, freedoms)


def _drop_idle(grown: _Grown, n_basis: int, tried: int, *, exhaustive: bool) -> tuple[_Grown, bool]:
    """Return the vectors chosen before too many idle rounds, and whether selection must stop."""
    last = int(grown.rounds[n_basis - 1]) if n_basis else -1
    new = grown.rounds[n_basis:]
    kept, spent = cut_idle(new, last, tried)
    if exhaustive:  # if a round finds none among all rows, no later round does
        return grown, n_basis + len(new) < tried
    return (grown.first(n_basis + kept) if kept < len(new) else grown), spent


def _stopped(grown: _Grown, settings: OLSSettings) -> int | None:
    """Return the first size at which GCV had not fallen for `patience` vectors, None if there is none."""
    if not settings.gcv or not len(grown.places):
        return None
    gcv = grown.gcv
    falls = np.concatenate([[True], gcv[1:] < np.minimum.accumulate(gcv)[:-1]])
    sizes = np.arange(1, len(gcv) + 1)
    waited = sizes - np.maximum.accumulate(np.where(falls, sizes, 0))
    over = np.flatnonzero(waited >= settings.patience)
    return int(sizes[over[0]]) if len(over) else None


def _path(grown: _Grown, settings: OLSSettings) -> Path:
    """Return the models of every size; the one of smallest GCV is chosen if `settings.gcv`, else the largest."""
    size = _stopped(grown, settings) or len(grown.places)
    gcv = grown.gcv[:size]
    chosen = int(np.argmin(gcv)) if settings.gcv else size - 1
    sizes = np.arange(1, size + 1)
    return Path("gcv", sizes, np.full(size, settings.regularization), gcv, np.zeros(size, dtype=np.int64), chosen)


def _report(report: Reporter, grown: _Grown, settings: OLSSettings) -> None:
    n_basis = len(grown.places)
    if not n_basis or settings.candidates == "all":
        return
    left = count_passes(settings.limit, n_basis, settings.candidates, settings.look_ahead)
    report.say(events.SELECTION_OLS_VECTORS, vectors=n_basis, gcv=float(grown.gcv[n_basis - 1]), passes_left=left)


def _fit(task: FitTask[OLSSettings]) -> Fitted:
    settings = replace(task.settings.bounded(task.rows.n_rows), memory_limit=task.memory_limit_bytes)
    return fit_ols(task.rows, task.kernels[0], settings, task.report)


def _sizes(task: PlanTask[OLSSettings]) -> Sizes:
    settings = task.settings
    return greedy_sizes(settings.most_basis(task.n_rows), task.n_rows, settings.candidates, settings.look_ahead)


def _passes(task: PlanTask[OLSSettings]) -> Iterator[PassPlan]:
    settings, most = task.settings, task.settings.most_basis(task.n_rows)
    yield from round_passes(most, task.n_rows, settings.candidates, settings.look_ahead, task.n_rows)
    yield sum_pass(most)


METHOD = Method(settings=OLSSettings, fit=_fit, sizes=_sizes, passes=_passes, certain=lambda settings: not settings.gcv)
