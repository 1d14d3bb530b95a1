"""Refit: the exact coefficients of a dictionary that is already chosen, from one more pass over the rows of a model.

The online pass forms K̃ᵀK̃ of rows against the dictionary as it was when each row came; a vector taken later stands for
earlier rows by its projection only. Here every row meets the final dictionary, (G + λnK)β = z, and nothing else of the
model changes: its learner goes on as if there had been no refit.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.memory_plan import RefitPlan
from ridgestream.pipeline.base.pass_checkpoint import Keeper
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES
from ridgestream.pipeline.dataset.feature_map_growth import encoding_of
from ridgestream.pipeline.dataset.stored_rows import StoredRows
from ridgestream.pipeline.models.model_record import state_of, with_refit
from ridgestream.pipeline.sums.normal_equations import Basis, Summing, plan_kernel_rows
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.catalog.models import ModelRecord

if TYPE_CHECKING:
    import zarr


def refit(
    root: "zarr.Group",
    ledger: Ledger,
    record: ModelRecord,
    segments: Sequence[int],
    executor: Executor,
    report: Reporter,
    keeper: Keeper | None = None,
) -> ModelRecord:
    """Return the model with coefficients fitted to all rows of the segments with these numbers; O(n_basis²) a row.

    Raises StoreError for rows that cannot be read, NumericalBreakdown if the normal matrix is not positive definite.
    """
    state = state_of(record)
    basis = Basis(state.parameters.kernel, state.basis_vectors, state.centre)
    rows = StoredRows(root, ledger, segments, encoding_of(record, ledger.schema), executor, report, keeper)
    sums = rows.statistics((Summing(basis, state.n_targets),), "refit").parts[0].total()
    with one_blas_thread():
        normal = sums.factorize(state.gram, state.parameters.regularization)
    if normal.jitter:
        report.warn(events.TRAIN_REFIT_JITTER_ADDED, jitter=normal.jitter)
    return with_refit(record, sums, normal.solve(sums.rhs))


def check_refit_memory(ledger: Ledger, max_basis: int, limit_bytes: int) -> None:
    """Raise MemoryRefused, with the numbers, if a refit over the ledger's partitions cannot fit; no row is read."""
    plan_refit(count_features(ledger), max_basis).check(limit_bytes)


def plan_refit(n_features: int, max_basis: int) -> RefitPlan:
    """Return what a refit of so many basis vectors needs."""
    return RefitPlan(max_basis, n_features, BLOCK_BYTES, 8 * max_basis * plan_kernel_rows(max_basis))


def count_features(ledger: Ledger) -> int:
    """Return how many features a model that begins now would have; an older one has no more."""
    numeric = len(ledger.schema.numeric) if ledger.schema else 0
    return numeric + sum(len(values) for values in ledger.categories)
