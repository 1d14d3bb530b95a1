"""LS-SVM: the dense least-squares support vector machine (Suykens et al. 2002), for small data.

    (K + λnW⁻¹)α + 1b = y,  1ᵀα = 0,  f(x) = Σ αᵢ k(xᵢ, x) + b,

with W the rows' weights and n their sum. λ is per row. Of Cawley & Talbot's objective (3), γ/ℓ Σ(y − f)² + ½‖w‖², it is
λ = 1/(2γ): the diagonal is then ℓ/(2γ), which their sparse system has too, where the one that they print for the dense
case has ℓ/γ. Suykens' own objective (1) has 1/(2γ) there, λ = 1/(2γℓ).

Departures: rows may carry weights; several targets share kernel and λ; both are chosen by leaving out each row once, in
closed form, with the penalty λn of all rows.
"""

from collections.abc import Sequence

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.batch.dense.leave_one_out import DenseSettings, dense_method, fit_dense
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.sums.row_set import RowSet


def fit_ls_svm(rows: RowSet, kernels: Sequence[Kernel], settings: DenseSettings, report: Reporter) -> Fitted:
    """Return the model over all rows of weight above zero, the bias last; O(rows³) a kernel, O(rows²) memory.

    Raises MemoryRefused, with the numbers, where the matrices do not fit, InputError for fewer than two rows,
    NumericalBreakdown where kernel values are not finite.
    """
    return fit_dense(rows, kernels, settings, report, bias=True, step=events.STEP_LS_SVM_PASS)


METHOD = dense_method(fit_ls_svm)
