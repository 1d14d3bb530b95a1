"""Refit: the exact coefficients of the online learner's dictionary, by one more pass over all rows of the model.

The online pass sums each row's products with the dictionary at that time, and approximates those with later vectors by
projection. A refit sums every row's products with the final dictionary and solves (G + λnK)β = z. Where the model's
pilot chose λ, it is that of least generalized cross-validation on these exact sums. The learner's state does not
change, so the next night continues as without a refit.
"""

from collections.abc import Sequence

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.memory_plan import RefitPlan
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES
from ridgestream.pipeline.dataset.feature_map_growth import encoding_of
from ridgestream.pipeline.models.model_record import state_of, with_refit
from ridgestream.pipeline.selection.regularization_path import choose_regularization
from ridgestream.pipeline.sums.basis import Basis, plan_kernel_rows
from ridgestream.pipeline.sums.normal_equations import Summing
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.request import CHOSEN, REGULARIZATION
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.catalog.models import ModelRecord


def refit(context: TrainingContext, record: ModelRecord, segments: Sequence[int]) -> ModelRecord:
    """Return the model with coefficients fitted to all rows of these segments; O(n_basis²) a row.

    Raises StoreError for rows that cannot be read, NumericalBreakdown if the normal matrix is not positive definite.
    """
    state = state_of(record)
    basis = Basis(state.parameters.kernel, state.basis_vectors, state.centre)
    rows = context.rows(segments, encoding_of(record, context.ledger.schema))
    sums = rows.statistics((Summing(basis, state.n_targets),), events.STEP_REFIT).parts[0].total()
    regularization = state.parameters.regularization
    with one_blas_thread():
        if REGULARIZATION in record.parameters.get(CHOSEN, ()):
            regularization = choose_regularization(sums, state.gram, regularization)
        normal = sums.factorize(state.gram, regularization)
    if normal.jitter:
        context.report.warn(events.TRAIN_REFIT_JITTER_ADDED, jitter=normal.jitter)
    return with_refit(record, sums, normal.solve(sums.rhs), regularization)


def check_refit_memory(ledger: Ledger, max_basis: int, limit_bytes: int) -> None:
    """Raise MemoryRefused, with the numbers, if a refit over the ledger's partitions does not fit; reads no row."""
    plan_refit(count_features(ledger), max_basis).check(limit_bytes)


def plan_refit(n_features: int, max_basis: int) -> RefitPlan:
    """Return the memory that a refit of `max_basis` basis vectors needs."""
    return RefitPlan(max_basis, n_features, BLOCK_BYTES, 8 * max_basis * plan_kernel_rows(max_basis))


def count_features(ledger: Ledger) -> int:
    """Return the number of features of a model that starts now; an older model has at most as many."""
    numeric = len(ledger.schema.numeric) if ledger.schema else 0
    return numeric + sum(len(values) for values in ledger.categories)
