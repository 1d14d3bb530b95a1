"""EFVS: a dictionary that spans the rows in feature space, chosen without their targets.

Paper: Cawley & Talbot (2002), "Efficient formation of a basis in a kernel induced feature space", Algorithm 1. Each
round adds, of ρ random rows, the one that raises the most

    J(S) = (1/ℓ) Σ_i k_S(x_i)ᵀK_SS⁻¹k_S(x_i)/k(x_i, x_i),

over all rows (ν = ∞) or ν random ones; 1 − J is the mean relative reconstruction error. Adding c raises ℓJ by
Σ_i E_ci²/k(x_i, x_i)/H_cc, with E_ci = k(x_c, x_i) − k_S(x_c)ᵀK_SS⁻¹k_S(x_i) and H_cc its value at c itself. With all
rows as candidates and in J it is FVS (Baudat & Anouar 2001). All sums are weighted.

Where we depart from it. The paper draws candidates and the rows of J from a pool that shrinks as rows are found to be
spanned; here a round draws from all rows, by a seed of its own, and what is chosen or spanned (H_cc/k(x_c, x_c) < ε) is
skipped, not replaced; of the rows of J, the spanned ones count in the error but not in the choice. So the candidates of
r rounds are known before any of them chooses, and with ν = ∞ one pass serves r rounds, whose choices are those of r
passes. With ν finite no pass is needed to choose.
"""

from dataclasses import dataclass

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.batch.efvs_rounds import Extending, Passing, Sampling, Selection
from ridgestream.pipeline.kernels import Kernel, check_positive
from ridgestream.pipeline.selection.candidate_rounds import RULE_OF_59, NumberOrAll, check_candidates, cut_idle
from ridgestream.pipeline.selection.fit_result import Fitted, Path
from ridgestream.pipeline.selection.fixed_basis_fit import fit_coefficients
from ridgestream.pipeline.sums.normal_equations import Basis
from ridgestream.pipeline.sums.row_set import RowSet

_LEAST_THRESHOLD = 1e-10


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
        notes={"passes": found.passes + 1, "reconstruction_error": float(found.errors[-1])},
    )


def select_basis(rows: RowSet, kernel: Kernel, settings: EFVSSettings, report: Reporter) -> Selection:
    """Return the dictionary that EFVS chooses, for whatever is made of it.

    With ν = ∞ about max_basis/r passes, of O(ρ·(n_basis + ρr)) a row and round; with ν finite none, and
    O((ρ + ν)·n_basis² + ρν·n_basis) a round. Raises InputError where no row can be chosen, MemoryRefused where the sums
    of a pass cannot fit.
    """
    extending: Extending
    if settings.sample == "all" or settings.sample >= rows.n_rows:
        extending = Passing(rows, kernel, settings)
    else:
        extending = Sampling(rows, kernel, settings, settings.sample)
    found, tried = Selection.empty(rows.n_features), 0
    while True:
        n_basis = len(found.places)
        ahead = min(extending.rounds_ahead(n_basis), settings.max_basis - n_basis)
        found, over = _cut(extending.extend(found, tried, ahead), n_basis, tried + ahead, extending, settings)
        tried += ahead
        if len(found.places):
            error, left = float(found.errors[-1]), extending.passes_left(len(found.places))
            report.say(
                events.SELECTION_EFVS_VECTORS, vectors=len(found.places), reconstruction_error=error, passes_left=left
            )
        if over:
            break
    if not len(found.places):
        raise InputError(f"EFVS found no row to choose among {rows.n_rows} rows: it needs one of positive weight")
    return found


def _cut(
    found: Selection, n_basis: int, tried: int, extending: Extending, settings: EFVSSettings
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
