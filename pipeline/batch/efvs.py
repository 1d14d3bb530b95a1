"""EFVS: a dictionary that spans the rows in feature space, chosen without their targets.

Paper: Cawley & Talbot (2002), "Efficient formation of a basis in a kernel induced feature space", Algorithm 1. Each
round draws ρ random rows and adds the one with which

    J(S) = (1/ℓ) Σ_i k_S(x_i)ᵀK_SS⁻¹k_S(x_i)/k(x_i, x_i)

is largest, over all rows (ν = ∞) or ν random ones; 1 − J is the mean relative reconstruction error. Adding c raises ℓJ
by Σ_i E_ci²/k(x_i, x_i)/H_cc, with E_ci = k(x_c, x_i) − k_S(x_c)ᵀK_SS⁻¹k_S(x_i) and H_cc its value at c itself. With
all rows as candidates and in J it is FVS (Baudat & Anouar 2001). All sums are weighted.

Departures. The paper draws candidates and the rows of J from a pool from which it removes spanned rows. Here each
round draws from all rows, with its own seed. Candidates that are already chosen or spanned (H_cc/k(x_c, x_c) < ε) are
skipped and not replaced; spanned rows of J count in the error but not in the choice. So the candidates of r rounds are
known in advance, and with ν = ∞ one pass serves r rounds and gives the same choices as r passes. With ν finite,
selection needs no pass. With `pool = "unchosen"` chosen candidates are replaced, and spanned ones are not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge, Lt

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.settings import Count, CountOrAll, Internal, Share, settings_of
from ridgestream.pipeline.batch.efvs_rounds import ALL_ROUNDS, Extending, Passing, Sampling, Selection
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
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.candidate_rounds import RULE_OF_59, NumberOrAll, Pool, cut_idle, plan_look_ahead
from ridgestream.pipeline.selection.fit_result import Fitted, Path, fit_coefficients
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_set import RowSet

_LEAST_THRESHOLD = 1e-10
"""Below this share, rounding decides what is spanned."""


@dataclass(frozen=True)
class FVSSettings(SharedReselection, SharedFolds, SharedSize, SharedRegularization):
    """Selection by the reconstruction error of all rows from all rows, which uses no target."""

    spanned_threshold: Annotated[float, Ge(_LEAST_THRESHOLD), Lt(1)] = 1e-8
    """ε: a candidate is spanned if at most this share of its squared length in feature space is outside the span."""
    reconstruction_threshold: Share = 0.0
    """τ: selection ends at this mean relative reconstruction error; at zero, when every row is spanned."""
    look_ahead: Count | None = None
    """The number of rounds that share a pass; by default the cheapest one. It does not change the result."""

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True)
class EFVSSettings(FVSSettings):
    """Selection by the reconstruction error among random candidates."""

    candidates: CountOrAll = RULE_OF_59
    """ρ: the number of random rows among which a round chooses, or "all"."""
    pool: Pool = "all"
    """The rows from which a round draws: all, of which those already chosen are skipped, or those not chosen yet."""
    sample: CountOrAll = "all"
    """ν: the number of random rows on which a round compares its candidates, or "all", which requires passes."""
    memory_limit: Annotated[int | None, Internal()] = None
    """Bytes that the sums of a pass may take in a process; None for no limit."""

    @property
    def replaced_to(self) -> int | None:
        """The number of candidates that a round has after chosen ones were replaced; None if they are not."""
        return self.candidates if self.pool == "unchosen" and self.candidates != "all" else None

    @property
    def drawn(self) -> tuple[NumberOrAll, int | None]:
        """At most how many rows are drawn for a round, and for how many rounds at once; None for the cheapest."""
        if self.replaced_to is None:
            return self.candidates, self.look_ahead
        ahead = self.look_ahead or plan_look_ahead(2 * self.limit, self.limit, self.replaced_to)
        return self.replaced_to + ahead - 1, ahead


def fit_efvs(rows: RowSet, kernel: Kernel, settings: EFVSSettings, report: Reporter) -> Fitted:
    """Return the model over a dictionary chosen by EFVS; its path has the reconstruction error of every size.

    Raises as `select_basis` does, and NumericalBreakdown if P is not positive definite within rounding.
    """
    selection = select_basis(rows, kernel, settings, report)
    n_basis = len(selection.places)
    path = Path(
        "reconstruction_error",
        np.arange(1, n_basis + 1),
        np.full(n_basis, settings.regularization),
        selection.errors,
        np.zeros(n_basis, dtype=np.int64),
        n_basis - 1,
    )
    return fit_coefficients(
        rows,
        Basis(kernel, selection.vectors, np.zeros(rows.n_features)),
        selection.places,
        settings.regularization,
        folds=settings.folds,
        seed=settings.random_seed,
        path=path,
        notes={"passes": selection.passes + 1, "reconstruction_error": float(selection.errors[-1])},
    )


def select_basis(rows: RowSet, kernel: Kernel, settings: EFVSSettings, report: Reporter) -> Selection:
    """Return the dictionary that EFVS chooses, without coefficients.

    With ν = ∞ about max_basis/r passes of O(ρ·(n_basis + ρr)) per row and round; with ν finite no pass, and
    O((ρ + ν)·n_basis² + ρν·n_basis) per round. Raises InputError if no row can be chosen, MemoryRefused if the sums of
    a pass do not fit.
    """
    extending: Extending
    if settings.sample == "all" or settings.sample >= rows.n_rows:
        extending = Passing(rows, kernel, settings)
    else:
        extending = Sampling(rows, kernel, settings, settings.sample)
    selection, rounds_done = Selection.empty(rows.n_features), 0
    while True:
        n_basis = len(selection.places)
        ahead = min(extending.rounds_ahead(n_basis), settings.limit - n_basis)
        selection, over = _cut(
            extending.extend(selection, rounds_done, ahead), n_basis, rounds_done + ahead, extending, settings
        )
        rounds_done += ahead
        if len(selection.places):
            error, left = float(selection.errors[-1]), extending.passes_left(len(selection.places))
            report.say(
                events.SELECTION_EFVS_VECTORS,
                vectors=len(selection.places),
                reconstruction_error=error,
                passes_left=left,
            )
        if over:
            break
    if not len(selection.places):
        raise InputError(f"EFVS found no row to choose among {rows.n_rows} rows: it needs one of positive weight")
    return selection


def _cut(
    selection: Selection, n_basis: int, rounds_done: int, extending: Extending, settings: EFVSSettings
) -> tuple[Selection, bool]:
    """Return the selection up to where it must stop, and whether it must."""
    reached = np.flatnonzero(selection.errors <= settings.reconstruction_threshold)
    if settings.reconstruction_threshold > 0 and len(reached):
        return selection.first(int(reached[0]) + 1), True
    if extending.exhaustive:  # if a round finds none among all rows, no later round does
        return selection, len(selection.places) < rounds_done or len(selection.places) == settings.limit
    last = int(selection.rounds[n_basis - 1]) if n_basis else -1
    n_chosen, is_idle = cut_idle(selection.rounds[n_basis:], last, rounds_done)
    selection = selection.first(n_basis + n_chosen)
    return selection, is_idle or len(selection.places) == settings.limit


def as_efvs(settings: FVSSettings) -> EFVSSettings:
    """Return the settings of FVS as those of EFVS with all rows as candidates and in J."""
    if isinstance(settings, EFVSSettings):
        return settings
    values = {setting.name: getattr(settings, setting.name) for setting in settings_of(FVSSettings)}
    return EFVSSettings(**values, candidates="all", sample="all")


def selection_passes(settings: EFVSSettings, max_basis: int, n_rows: int) -> Iterator[PassPlan]:
    """Yield the passes of `select_basis`; none if J is over random rows."""
    if settings.sample == "all" or settings.sample >= n_rows:
        ahead = settings.look_ahead or ALL_ROUNDS
        yield from round_passes(max_basis, n_rows, settings.candidates, settings.look_ahead, ahead)


def _fit(task: FitTask[FVSSettings]) -> Fitted:
    settings = as_efvs(task.settings.bounded(task.rows.n_rows))
    settings = replace(settings, memory_limit=task.memory_limit_bytes)
    return fit_efvs(task.rows, task.kernels[0], settings, task.report)


def _sizes(task: PlanTask[FVSSettings]) -> Sizes:
    settings = as_efvs(task.settings.bounded(task.n_rows))
    return greedy_sizes(settings.limit, task.n_rows, *settings.drawn)


def _passes(task: PlanTask[FVSSettings]) -> Iterator[PassPlan]:
    most = task.settings.most_basis(task.n_rows)
    yield from selection_passes(as_efvs(task.settings), most, task.n_rows)
    yield sum_pass(most)


EFVS = Method(settings=EFVSSettings, fit=_fit, sizes=_sizes, passes=_passes)
FVS = Method(settings=FVSSettings, fit=_fit, sizes=_sizes, passes=_passes)
