"""Kernel ridge regression (Saunders, Gammerman & Vovk 1998), for small data.

    (K + λnW⁻¹)α = y,  f(x) = Σ αᵢ k(xᵢ, x),

with W the rows' weights and n their sum. λ is per row: scikit-learn's alpha is λn, Cawley & Talbot's γ is 1/(2λ). There
is no bias: targets are standardized.

Departures: several targets share kernel and λ; both are chosen by leaving out each row once, in closed form, with the
penalty λn of all rows.
"""

from collections.abc import Sequence

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.batch.dense.leave_one_out import DenseSettings, dense_method, fit_dense
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.sums.row_set import RowSet


def fit_kernel_ridge(rows: RowSet, kernels: Sequence[Kernel], settings: DenseSettings, report: Reporter) -> Fitted:
    """Return the model over all rows of weight above zero; O(rows³) a kernel, O(rows²) memory.

    Raises MemoryRefused, with the numbers, where the matrices do not fit, InputError for fewer than two rows,
    NumericalBreakdown where kernel values are not finite.
    """
    return fit_dense(rows, kernels, settings, report, bias=False, step=events.STEP_KERNEL_RIDGE_PASS)


METHOD = dense_method(fit_kernel_ridge)
