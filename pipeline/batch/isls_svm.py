"""ISLS-SVM: Cawley & Talbot (2002), "Improved sparse least-squares support vector machines".

A model f(x) = Σ βᵢ k(xᵢ, x) + b over a dictionary S, fitted to all rows, not those of S alone: with G = Σ w kkᵀ,
s = Σ w k, z = Σ w ky and n = Σ w,

    [G + λnK  s] [β]   [z   ]
    [sᵀ       n] [b] = [Σ wy],

where the paper writes ℓ for n and ℓ/(2γ) for λn: λ = 1/(2γ). The vectors of smallest |β| are removed, the others are
fitted again, and so on.

Departures from the paper, each with its reason:

- The sums over rows for the initial dictionary determine all smaller models, so one pass gives the whole path for every
  λ; the paper sums again in every step.
- The initial dictionary is all rows, as in the paper, only if the settings say so: their sums take O(rows²) memory.
  Every fold starts from the same dictionary, which may contain rows of the fold.
- Every model of the path has a cross-validation error, with pruning repeated within each fold; λ, kernel and size are
  chosen together by this error. The paper chooses γ and σ once, for the full dictionary.
- `score = "cost"` removes the vectors without which the regularized cost rises least, instead of those of smallest |β|.
  On 50,000 rows of forest, from 1,000 random vectors down to 300, its test error is 19.7 % instead of 22.6 %.
- Vectors that are linearly dependent within rounding are removed at the start.
- Rows may have weights. With several targets, the vectors whose coefficients have the smallest norm are removed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.settings import Count, Share
from ridgestream.pipeline.batch.method import FitTask, Method
from ridgestream.pipeline.batch.robust import RobustSettings, robust
from ridgestream.pipeline.batch.shared_settings import SharedSize
from ridgestream.pipeline.batch.start import Start, StartSettings, initial_dictionary, start_passes, start_sizes
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.backward_elimination import Score, check_path, plan_sizes
from ridgestream.pipeline.selection.cross_validation import Grid, fit_best, gather_candidates
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.row_set import RowSet


@dataclass(frozen=True)
class ISLSSVMSettings(RobustSettings, SharedSize, StartSettings):
    """Pruning by the smallest coefficients."""

    also_takes: ClassVar[frozenset[str]] = frozenset({"dictionary", "efvs"})

    start: Start = "random"
    """As for subset-of-regressors, a dictionary that EFVS selects with the settings of `[model.efvs]`, or all rows, as
    in the paper, whose sums take O(rows²) memory."""
    step: Share = 0.05
    """The share of vectors removed in a step, at least one vector; 0 removes one at a time."""
    smallest: Count = 1
    """The number of vectors at which the path ends."""
    score: Score = "coefficient"
    """The score of a vector: |β|, as in the paper, or the increase of the regularized cost without it."""

    def __post_init__(self) -> None:
        check_bounds(self)
        self.grid.check(1)
        if self.reweightings and self.reselect != "always":
            raise InputError('reweightings need reselect = "always": new rows would count in full next to the others')
        check_path(self.step, self.smallest, self.max_basis)

    @property
    def grid(self) -> Grid:
        """The regularizations and folds that are compared for each kernel."""
        return Grid(self.regularizations, self.folds, self.random_seed)


def fit_isls_svm(
    rows: RowSet, kernels: Sequence[Kernel], start: StartingDictionary, settings: ISLSSVMSettings, report: Reporter
) -> Fitted:
    """Return the best model on the pruning paths of all kernels and regularizations, fitted to all rows.

    One pass of O(n_basis·(n_basis + n_features)) per row and kernel, then O(n_basis³) for each fold, λ and kernel if
    `step` is above zero, else O(n_basis⁴); memory O(folds · kernels · n_basis²). Raises InputError for invalid settings
    or a dictionary of another shape, NumericalBreakdown if sums are not finite.
    """

    def plan(n_basis: int) -> list[int]:
        return plan_sizes(n_basis, settings.step, settings.smallest, settings.max_basis)

    with one_blas_thread():
        compared = gather_candidates(
            rows,
            kernels,
            start,
            settings.grid,
            plan,
            constant=True,
            step=events.STEP_ISLS_SVM_PASS,
            score=settings.score,
        )
        return fit_best(compared, settings.max_basis, report)


def _fit(task: FitTask[ISLSSVMSettings]) -> Fitted:
    return fit_isls_svm(task.rows, task.kernels, initial_dictionary(task), task.settings, task.report)


METHOD = robust(
    Method(
        settings=ISLSSVMSettings,
        fit=_fit,
        sizes=start_sizes,
        passes=start_passes,
        compares_kernels=True,
        chooses_size=True,
    )
)
