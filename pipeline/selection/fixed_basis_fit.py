"""The exact coefficients of a chosen dictionary from one pass, (G + λnK)β = z (subset of regressors)."""

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.selection.fit_result import Fitted, Path
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import Summing
from ridgestream.pipeline.sums.row_set import RowSet


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
