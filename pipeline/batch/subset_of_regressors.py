"""Subset of regressors: the kernel expansion over a given dictionary, fitted to all rows (Poggio & Girosi 1990).

f(x) = Σ βᵢ k(xᵢ, x) with (G + λnK)β = z, G = Σ w kkᵀ, z = Σ w ky, n = Σ w. There is no bias: targets are standardized.

λ is per row and the penalty λnβᵀKβ, so Cawley & Talbot's γ is 1/(2λ), and λn is Jung & Polani's γ, or KernelRidge's
alpha for a dictionary of all rows. Of several λ or kernels, the one of smallest cross-validation error is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.batch.method import FitTask, Method
from ridgestream.pipeline.batch.start import StartSettings, initial_dictionary, start_passes, start_sizes
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.cross_validation import Grid, fit_best, gather_candidates
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.row_set import RowSet


@dataclass(frozen=True)
class SubsetOfRegressorsSettings(StartSettings):
    """The exact coefficients of a dictionary."""

    start: Literal["random", "k-means", "given", "incomplete-cholesky", "matching-pursuit"] = "random"
    """The initial dictionary: rows drawn at random, centres of k-means, the rows of `model.dictionary`, the pivots of
    an incomplete Cholesky factorization, or the rows that kernel matching pursuit chooses."""

    def __post_init__(self) -> None:
        check_bounds(self)
        self.grid.check(1)

    @property
    def grid(self) -> Grid:
        """The regularizations and folds that are compared for each kernel."""
        return Grid(self.regularizations, self.folds, self.random_seed)


def fit_subset_of_regressors(
    rows: RowSet,
    kernels: Sequence[Kernel],
    start: StartingDictionary,
    settings: SubsetOfRegressorsSettings,
    report: Reporter,
) -> Fitted:
    """Return the best model over the dictionary, fitted to all rows.

    One pass of O(n_basis·(n_basis + n_features)) a row and kernel, then O(n_basis³) for each fold, λ and kernel; memory
    O(folds · kernels · n_basis²). Vectors that are dependent within rounding are left out. Raises InputError for
    settings or a dictionary that do not fit, NumericalBreakdown where sums are not finite.
    """
    with one_blas_thread():
        compared = gather_candidates(
            rows,
            kernels,
            start,
            settings.grid,
            lambda n_basis: [n_basis],
            constant=False,
            step=events.STEP_SUBSET_OF_REGRESSORS_PASS,
        )
        return fit_best(compared, None, report)


def _fit(task: FitTask[SubsetOfRegressorsSettings]) -> Fitted:
    return fit_subset_of_regressors(task.rows, task.kernels, initial_dictionary(task), task.settings, task.report)


METHOD = Method(
    settings=SubsetOfRegressorsSettings, fit=_fit, sizes=start_sizes, passes=start_passes, compares_kernels=True
)
