"""Refit: the exact coefficients of the online learner's dictionary, by one more pass over all rows of the model.

The online pass sums each row's products with the dictionary at that time, and approximates those with later vectors by
projection. A refit sums every row's products with the final dictionary and solves (G + λnK)β = z. Where the model's
pilot chose λ, it is that of least generalized cross-validation on these exact sums. The learner's state does not
change, so the next night continues as without a refit.

Where rows are few for the dictionary, most of them came before the vectors that were taken last, and a refit may lower
the error by a fifth. `refit_if_better` tries one there, and keeps it if the squared error on learned rows, left out one
by one in closed form, falls by more than one standard error.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import cast

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.base.memory_plan import RefitPlan, check_plans
from ridgestream.pipeline.calibration.priority_sample import PrioritySample, sample_size
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES
from ridgestream.pipeline.dataset.feature_map_growth import encoding_of
from ridgestream.pipeline.features.calendar import CYCLES
from ridgestream.pipeline.models.experts_model import ExpertsModel
from ridgestream.pipeline.models.experts_record import experts_of, is_local, with_refitted_experts
from ridgestream.pipeline.models.model_record import (
    model_of,
    n_basis_of,
    refit_of,
    state_of,
    with_refit,
)
from ridgestream.pipeline.models.predictor import ExpansionModel, Model
from ridgestream.pipeline.models.uncertainty import Uncertainty
from ridgestream.pipeline.online.experts.cell_learning import PART_BYTES
from ridgestream.pipeline.selection.regularization_path import choose_regularization
from ridgestream.pipeline.sums.basis import Basis, plan_kernel_rows
from ridgestream.pipeline.sums.normal_equations import Summing
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.left_out import leave_out_each, sampled_rows
from ridgestream.pipeline.training.online.cell_sums import sum_cells
from ridgestream.pipeline.training.request import CHOSEN, LARGEST_CHOSEN, REGULARIZATION, OnlineRequest, Request
from ridgestream.pipeline.training.training_result import Trained
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.schema.column_types import TIMESTAMP

FEW_ROWS = 512
"""With so many rows a basis vector or fewer, a refit is tried."""

LEAST_GAIN = 0.01
"""The least share by which a refit must lower the error to be kept."""


def refit(context: TrainingContext, record: ModelRecord, segments: Sequence[int]) -> ModelRecord:
    """Return the model with coefficients fitted to all rows of these segments; O(n_basis²) a row.

    That of local experts, cell by cell, keeps λ. Raises StoreError for rows that cannot be read, NumericalBreakdown if
    a normal matrix is not positive definite.
    """
    if is_local(record):
        summed = sum_cells(context, experts_of(record), encoding_of(record, context.ledger.schema), segments)
        return with_refitted_experts(record, summed.published())
    state = state_of(record)
    basis = Basis(state.parameters.kernel, state.basis_vectors, state.centre)
    rows = context.rows(segments, encoding_of(record, context.ledger.schema))
    sums = rows.statistics((Summing(basis, state.n_targets),), events.STEP_REFIT).parts[0].total()
    regularization = state.parameters.published_regularization(sums.weight)
    with one_blas_thread():
        if REGULARIZATION in record.parameters.get(CHOSEN, ()):
            regularization = choose_regularization(sums, state.gram, regularization)
        normal = sums.factorize(state.gram, regularization)
    if normal.jitter:
        context.report.warn(events.TRAIN_REFIT_JITTER_ADDED, jitter=normal.jitter)
    return with_refit(record, sums, normal.solve(sums.rhs), regularization)


def may_refit(request: Request, n_rows: int, n_basis: int, *, local: bool) -> bool:
    """Return whether a refit of this many rows is tried: few for the vectors of a dictionary that grew with them.

    Of the vectors of local experts, as many count as one dictionary may have: each night's refit reads all rows again.
    """
    if not isinstance(request, OnlineRequest) or request.selection == "fixed":
        return False
    return n_rows <= FEW_ROWS * (min(n_basis, LARGEST_CHOSEN) if local else n_basis)


def refit_if_better(context: TrainingContext, request: Request, trained: Trained, segments: Sequence[int]) -> Trained:
    """Return the result with a refit, if one lowers the error on rows left out by more than its standard error.

    One that has no solution is not kept. Raises MemoryRefused, with the numbers, if one that is to be tried does not
    fit: which model is served does not depend on memory. Raises StoreError for rows that cannot be read.
    """
    record = trained.record
    n_rows, n_basis = int(record.counters["rows_seen"]), n_basis_of(record)
    if not (n_rows and may_refit(request, n_rows, n_basis, local=is_local(record))):
        return trained
    check_plans([plan_refit_of(record, context.ledger)], context.memory_limit_bytes)
    try:
        refitted = refit(context, record, segments)
        gain, chance = _gain_of(context, record, refitted, segments)
    except NumericalBreakdown as error:
        context.report.say(events.TRAIN_REFIT_DROPPED, reason=str(error)[:300])
        return trained
    is_better = gain > max(LEAST_GAIN, chance)
    context.report.say(events.TRAIN_REFIT_KEPT if is_better else events.TRAIN_REFIT_DROPPED, gain=gain, chance=chance)
    return replace(trained, record=refitted if is_better else record, refit_gain=gain)


def _gain_of(
    context: TrainingContext, record: ModelRecord, refitted: ModelRecord, segments: Sequence[int]
) -> tuple[float, float]:
    """Return by which share a refit lowers the squared error on rows left out, and the standard error of that."""
    n_outputs = encoding_of(record, context.ledger.schema).target.n_outputs
    sample = PrioritySample.of(int(record.counters["rows_seen"]), sample_size(n_outputs))
    _, rows = sampled_rows(context, refitted, segments, sample)
    targets = rows.block.targets
    w = np.ones(len(targets)) if rows.block.weights is None else rows.block.weights
    with one_blas_thread():
        model = model_of(refitted, with_uncertainty=True)
        models = _before(record, refitted, model), model
        was, now = (np.square(targets - leave_out_each(m, refitted, rows)[0]).mean(axis=1) for m in models)
        error, fall = float(w @ was), float(w @ (was - now))
        spread = float(w**2 @ (was - now - fall / max(float(w.sum()), 1e-300)) ** 2)
    return (fall / error, sqrt(spread) / error) if error > 0 else (0.0, 0.0)


def _before(record: ModelRecord, refitted: ModelRecord, refit_model: Model) -> Model:
    """Return the model without the refit, and with the refit's exact sums, of which rows are left out."""
    model = model_of(record)
    if isinstance(model, ExpertsModel) and isinstance(refit_model, ExpertsModel):
        bars = [expert.uncertainty for expert in refit_model.experts]
        experts = (own.having(uncertainty=bar) for own, bar in zip(model.experts, bars, strict=True))
        return replace(model, experts=tuple(experts))
    state = state_of(record)
    own = Uncertainty.of(state, refit_of(refitted))
    return replace(cast("ExpansionModel", model), uncertainty=own)


def plan_refit(n_features: int, max_basis: int, experts: int = 1) -> RefitPlan:
    """Return the memory that a refit of `max_basis` basis vectors in each of so many cells needs."""
    kernel_bytes, part_bytes = 8 * max_basis * plan_kernel_rows(max_basis), PART_BYTES if experts > 1 else 0
    return RefitPlan(max_basis, n_features, BLOCK_BYTES, kernel_bytes, experts, part_bytes)


def plan_refit_of(record: ModelRecord, ledger: Ledger) -> RefitPlan:
    """Return the memory that a refit of a model needs."""
    sizes = [n_basis_of(record)]
    if is_local(record):
        state = experts_of(record)
        sizes = [len(state.expansion(cell)[0]) for cell in state.started]
    return plan_refit(count_features(ledger), max(sizes, default=0), max(len(sizes), 1))


def count_features(ledger: Ledger) -> int:
    """Return the number of features of a model that starts now, at most; an older model has at most as many."""
    numeric = ledger.schema.numeric if ledger.schema else ()
    circles = len(CYCLES) * sum(feature.kind == TIMESTAMP for feature in numeric)
    return len(numeric) + 2 * circles + sum(len(values) for values in ledger.categories)
