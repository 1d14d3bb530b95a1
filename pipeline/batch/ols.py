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
from ridgestream.pipeline.selection.fit_result import Fitted, Path, fit_coefficients
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
class _Selected:
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

    def first(self, size: int) -> "_Selected":
        """Return the first `size` vectors."""
        sums = self.sums.choose(np.arange(size))
        measures = self.gcv[:size], self.freedoms[:size]
        return _Selected(self.places[:size], self.vectors[:size], sums, *measures, self.rounds[:size])


def fit_ols(rows: RowSet, kernel: Kernel, settings: OLSSettings, report: Reporter) -> Fitted:
    """Return the model over a dictionary chosen by OLS; the gains of several targets are added.

    About n/r + 1 passes, n = max_basis, of O(59·(n_basis + 59r)) per row and round. Raises InputError without a row of
    positive weight, MemoryRefused if the sums of a pass do not fit, NumericalBreakdown if P is not positive definite.
    """
    largest = largest_pass(settings.limit, rows.n_rows, settings.candidates, settings.look_ahead)
    check_pass_memory(largest, settings.candidates, settings.memory_limit)
    selected, rounds_done, passes = _grow(rows, kernel, settings, report)
    if not len(selected.places):
        raise InputError(f"OLS found no row to choose among {rows.n_rows} rows: it needs one of positive weight")
    path = _path(selected, settings)
    size = path.chosen + 1
    return fit_coefficients(
        rows,
        Basis(kernel, selected.vectors[:size], np.zeros(rows.n_features)),
        selected.places[:size],
        settings.regularization,
        folds=settings.folds,
        seed=settings.random_seed,
        path=path,
        notes={"passes": passes + 1, "rounds": rounds_done},
    )


def _grow(rows: RowSet, kernel: Kernel, settings: OLSSettings, report: Reporter) -> tuple[_Selected, int, int]:
    """Return the chosen vectors, the number of rounds and the number of passes."""
    nothing = np.empty(0, dtype=np.int64)
    sums = BlockStatistics.empty(0, rows.n_targets)
    selected = _Selected(nothing, np.empty((0, rows.n_features)), sums, np.empty(0), np.empty(0), nothing)
    source, rounds_done, passes = candidate_source(rows, settings.random_seed, settings.candidates), 0, 0
    while True:
        n_basis = len(selected.places)
        ahead = settings.rounds_of_pass(n_basis)
        candidates = source.of_rounds(rounds_done, ahead, settings.limit - n_basis, selected.places)
        if len(candidates.places):
            selected, passes = _extend(rows, kernel, settings, selected, candidates, rounds_done), passes + 1
        rounds_done += ahead
        selected, spent = _drop_idle(selected, n_basis, rounds_done, exhaustive=source.exhaustive)
        _report(report, selected, settings)
        if spent or len(selected.places) == settings.limit or _stopped(selected, settings) is not None:
            return selected, rounds_done, passes


def _extend(
    rows: RowSet, kernel: Kernel, settings: OLSSettings, selected: _Selected, candidates: Candidates, rounds_done: int
) -> _Selected:
    """Return the chosen vectors after one more pass, for these candidates."""
    n_basis = len(selected.places)
    argument = CandidateSumming(kernel, selected.vectors, candidates.features, rows.n_targets)
    sums = rows.reduce(sum_candidates, argument, events.STEP_OLS_PASS.numbered(vectors=n_basis)).extend(selected.sums)
    places = np.concatenate([selected.places, candidates.places])
    vectors = np.concatenate([selected.vectors, candidates.features])
    allowed = None if candidates.rounds is None else [n_basis + columns for columns in candidates.rounds]
    with one_blas_thread():
        normal = sums.products + settings.regularization * sums.weight * gram(
            kernel, vectors, np.zeros(rows.n_features)
        )
        chosen = choose_by_gain(normal, sums.rhs, settings.limit, n_before=n_basis, allowed=allowed, overwrite=True)
        sums = sums.choose(chosen.columns)
        gcv, freedoms = _measure(selected, chosen, sums)
    rounds = np.concatenate([selected.rounds, rounds_done + chosen.rounds[n_basis:]])
    return _Selected(places[chosen.columns], vectors[chosen.columns], sums, gcv, freedoms, rounds)


def _measure(selected: _Selected, chosen: Chosen, sums: BlockStatistics) -> tuple[Floats, Floats]:
    """Return GCV and the effective number of parameters of every size; those of `selected` are known."""
    errors, growth = NestedModels(chosen.factor, chosen.half_solution).after(len(selected.places), sums)
    before = selected.freedoms[-1] if len(selected.freedoms) else 0.0
    freedoms = before + np.cumsum(growth)
    return np.append(selected.gcv, gcv_of(errors, freedoms, sums.weight)), np.append(selected.freedoms, freedoms)


def _drop_idle(selected: _Selected, n_basis: int, rounds_done: int, *, exhaustive: bool) -> tuple[_Selected, bool]:
    """Return the vectors chosen before too many idle rounds, and whether selection must stop."""
    last = int(selected.rounds[n_basis - 1]) if n_basis else -1
    new = selected.rounds[n_basis:]
    kept, spent = cut_idle(new, last, rounds_done)
    if exhaustive:  # if a round finds none among all rows, no later round does
        return selected, n_basis + len(new) < rounds_done
    return (selected.first(n_basis + kept) if kept < len(new) else selected), spent


def _stopped(selected: _Selected, settings: OLSSettings) -> int | None:
    """Return the first size at which GCV had not fallen for `patience` vectors, None if there is none."""
    if not settings.gcv or not len(selected.places):
        return None
    gcv = selected.gcv
    falls = np.concatenate([[True], gcv[1:] < np.minimum.accumulate(gcv)[:-1]])
    sizes = np.arange(1, len(gcv) + 1)
    waited = sizes - np.maximum.accumulate(np.where(falls, sizes, 0))
    over = np.flatnonzero(waited >= settings.patience)
    return int(sizes[over[0]]) if len(over) else None


def _path(selected: _Selected, settings: OLSSettings) -> Path:
    """Return the models of every size; the one of smallest GCV is chosen if `settings.gcv`, else the largest."""
    size = _stopped(selected, settings) or len(selected.places)
    gcv = selected.gcv[:size]
    chosen = int(np.argmin(gcv)) if settings.gcv else size - 1
    sizes = np.arange(1, size + 1)
    return Path("gcv", sizes, np.full(size, settings.regularization), gcv, np.zeros(size, dtype=np.int64), chosen)


def _report(report: Reporter, selected: _Selected, settings: OLSSettings) -> None:
    n_basis = len(selected.places)
    if not n_basis or settings.candidates == "all":
        return
    left = count_passes(settings.limit, n_basis, settings.candidates, settings.look_ahead)
    report.say(events.SELECTION_OLS_VECTORS, vectors=n_basis, gcv=float(selected.gcv[n_basis - 1]), passes_left=left)


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
