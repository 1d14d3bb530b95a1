"""The result of a batch method: a dictionary with coefficients, their sums, and the path of its selection.

The exact coefficients of a chosen dictionary solve (G + λnK)β = z (subset of regressors), from one pass.
"""

from dataclasses import dataclass, field

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import FoldedStatistics, Summing
from ridgestream.pipeline.sums.row_set import RowSet


@dataclass(frozen=True)
class Path:
    """The models that a method compared, one entry each."""

    criterion: str
    """The criterion: `fold_error` (mean squared error on the fold left out), `gcv`, `bic`, `mdl`,
    `reconstruction_error`, `leave_one_out`."""
    n_basis: Integers
    """The size of each model's dictionary, shape (n_models,)."""
    regularization: Floats
    """Its λ per row, shape (n_models,)."""
    value: Floats
    """The value of the criterion, smaller is better, shape (n_models,)."""
    width: Integers
    """The index of its kernel among those compared, shape (n_models,)."""
    chosen: int
    """The index of the chosen model."""


@dataclass(frozen=True)
class Fitted:
    """A model over a dictionary that a batch method chose."""

    basis: Basis
    """The dictionary, in the order in which it was chosen, and the kernel; with the constant function for a bias."""
    places: Integers
    """The row index of each vector, −1 if it is not a row, shape (n_basis,)."""
    coefficients: Floats
    """β, the bias last if there is one, shape (n_functions, n_targets)."""
    regularization: float
    """λ per row."""
    sums: FoldedStatistics
    """The sums of the basis over all rows."""
    path: Path | None = None
    """The models that were compared, None if there was no choice."""
    notes: dict[str, float] = field(default_factory=dict)
    """Further numbers to report, by name: passes, jitter, condition."""
    own: dict[str, Floats | Integers] = field(default_factory=dict)
    """Further arrays, by name, from which the method computes coefficients when rows are added."""


def fit_coefficients(
    rows: RowSet,
    basis: Basis,
    places: Integers,
    regularization: float,
    *,
    folds: int,
    seed: int,
    path: Path | None,
    notes: dict[str, float],
) -> Fitted:
    """Return the model over `basis`, whose vectors are the rows `places`, with separate sums for each fold.

    One pass of O(n_basis²) per row. Adds P's jitter and condition to `notes`. Raises NumericalBreakdown if P is not
    positive definite within rounding.
    """
    summing = Summing(basis, rows.n_targets, folds, seed)
    sums = rows.statistics((summing,), events.STEP_SUM_DICTIONARY).parts[0]
    total = sums.total()
    with one_blas_thread():
        normal = total.factorize(basis.penalty(), regularization)
        coefficients = normal.solve(total.rhs)
    notes = notes | {"jitter": normal.jitter, "condition": normal.condition}
    return Fitted(basis, places, coefficients, regularization, sums, path, notes)
