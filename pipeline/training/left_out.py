"""Learned rows as a model predicts them without having learned them: what calibrates it, and judges a refit.

An online learner predicted each row before it learned it. Where its coefficients are those of a refit, and for a batch
method, rows are left out one by one from the sums, in closed form.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.calibration.kept_predictions import KeptPredictions
from ridgestream.pipeline.calibration.leave_one_out import LeaveOneOut, LeftOut
from ridgestream.pipeline.calibration.priority_sample import PrioritySample, sample_size
from ridgestream.pipeline.dataset.feature_map_growth import encoding_of
from ridgestream.pipeline.models.calibration import kept_of
from ridgestream.pipeline.models.experts_model import ExpertsModel
from ridgestream.pipeline.models.experts_record import served_experts_of
from ridgestream.pipeline.models.model_record import is_batch, is_refitted, model_of, of_cell
from ridgestream.pipeline.models.predictor import ExpansionModel, Model
from ridgestream.pipeline.sums.row_block import RowBlock, choose_rows
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.catalog.models import ModelRecord


@dataclass(frozen=True)
class JudgedRows:
    """Rows of the store with what a model says of them without them, in the learner's units."""

    targets: Floats
    """Shape (rows, n_outputs)."""
    outputs: Floats
    """The prediction of each, shape (rows, n_outputs)."""
    deviations: Floats | None
    """The standard deviation of a new observation at each, shape (rows, n_outputs); None for classes."""
    noise: Floats | None
    """σ̂, that of the noise alone, shape (n_outputs,); None for classes."""
    weights: Floats
    """The weight of each, its own times what it stands for in the sample, shape (rows,)."""


@dataclass(frozen=True)
class SampledRows:
    """Sampled rows of the store."""

    block: RowBlock
    """The rows."""
    numbers: Integers
    """The number of each among the dictionary's rows, shape (rows,)."""
    weights: Floats
    """The weight of each, its own times what it stands for in the sample, shape (rows,)."""

    def part(self, chosen: Integers) -> Self:
        """Return some of the rows."""
        return type(self)(choose_rows(self.block, chosen), self.numbers[chosen], self.weights[chosen])


def judge_left_out(context: TrainingContext, record: ModelRecord, learned: Sequence[int]) -> JudgedRows | None:
    """Return a sample of the learned rows, those of the segments `learned` in this order; None without any.

    O(n_functions²) a row of the sample, and O(n_functions³), unless an online learner predicted their classes: then no
    row is read. Raises NumericalBreakdown for a matrix without a factor, and StoreError for rows that cannot be read.
    """
    kept = None if is_batch(record) or is_refitted(record) else kept_of(record)
    if kept and context.classifies:
        return _judged_before(context, kept, learned)
    sample = kept.sample if kept else _sample_of(context, record, learned)
    found, sampled = sampled_rows(context, record, learned, sample)
    if not sampled.weights.any():
        return None
    targets, weights = sampled.block.targets, sampled.weights
    model = model_of(record, with_uncertainty=True)
    outputs, deviations = leave_out_each(model, record, sampled)
    noise = None if context.classifies else model.noise
    return JudgedRows(
        targets, kept.outputs[found] if kept else outputs, None if context.classifies else deviations, noise, weights
    )


def _judged_before(context: TrainingContext, kept: KeptPredictions, learned: Sequence[int]) -> JudgedRows | None:
    """Return the rows as they were predicted before they were learned, without those that are in quarantine."""
    found = np.flatnonzero(_places(context.ledger, learned, kept.sample.rows) >= 0)
    weights = (kept.sample.weights * kept.weights)[found]
    return JudgedRows(kept.targets[found], kept.outputs[found], None, None, weights) if weights.any() else None


def _sample_of(context: TrainingContext, record: ModelRecord, learned: Sequence[int]) -> PrioritySample:
    n_rows, n_outputs = sum(_rows_of(context.ledger, learned)), encoding_of(record, context.ledger.schema).target
    return PrioritySample.of(n_rows, sample_size(n_outputs.n_outputs))


def sampled_rows(
    context: TrainingContext, record: ModelRecord, learned: Sequence[int], sample: PrioritySample
) -> tuple[Integers, SampledRows]:
    """Return which rows of the sample the store has, and these rows."""
    feature_map = encoding_of(record, context.ledger.schema)
    rows = context.rows(learned, feature_map)
    places = _places(context.ledger, learned, sample.rows)
    found = np.flatnonzero(places >= 0)
    block = rows.take(places[found])
    own = feature_map.target.unweigh(block.targets, block.weights)
    weights = sample.weights[found] * (1.0 if own is None else own)
    numbers = rows.numbers(places[found]) if is_batch(record) else sample.rows[found]
    return found, SampledRows(block, numbers, weights)


def leave_out_each(model: Model, record: ModelRecord, rows: SampledRows) -> tuple[Floats, Floats]:
    """Return outputs and standard deviations of new observations, each (rows, n_outputs), at rows left out.

    Those of local experts are left out of the sums of their own cells; `model`, or each cell's, has uncertainty.
    """
    if isinstance(model, ExpansionModel):
        left_out = leave_out(model, record, rows)
        return left_out.outputs, deviations_of(model, left_out)
    assert isinstance(model, ExpertsModel)  # noqa: S101 (there is no other)
    state, (outputs, deviations) = served_experts_of(record), np.zeros((2, *rows.block.targets.shape))
    for cell, expert, own in model.groups(rows.block.features):
        outputs[own], deviations[own] = leave_out_each(expert, of_cell(record, state, cell), rows.part(own))
    return outputs, deviations


def leave_out(model: ExpansionModel, record: ModelRecord, rows: SampledRows) -> LeftOut:
    """Return the rows, left out of the model's sums one by one; `model` has uncertainty."""
    assert model.uncertainty is not None  # noqa: S101 (callers ask for it)
    basis, uncertainty, block = model.basis, model.uncertainty, rows.block
    leave_one_out = LeaveOneOut(model.coefficients, uncertainty.normal, uncertainty.gram)
    places, parts = _places_in_dictionary(record, rows), []
    own = np.ones(len(places)) if block.weights is None else block.weights
    with one_blas_thread():
        for start in range(0, len(places), basis.kernel_rows):
            part = slice(start, start + basis.kernel_rows)
            features = block.features[part]
            values, diagonal = basis.values(features), basis.kernel.diagonal(features)
            parts.append(leave_one_out.of(values, diagonal, block.targets[part], own[part], places[part]))
    return LeftOut(
        np.concatenate([part.outputs for part in parts]),
        np.concatenate([part.leverage for part in parts]),
        np.concatenate([part.novelty for part in parts]),
    )


def deviations_of(model: ExpansionModel, left_out: LeftOut) -> Floats:
    """Return the standard deviation of a new observation at each row, as `Model.deviations`, in the learner's units."""
    assert model.uncertainty is not None  # noqa: S101 (callers ask for it)
    spread = left_out.novelty / model.uncertainty.penalty + left_out.leverage
    return np.sqrt((1 + spread)[:, np.newaxis] * model.uncertainty.noise)


def _places_in_dictionary(record: ModelRecord, rows: SampledRows) -> Integers:
    """Return the position of each row in the dictionary, −1 for a row that is not in it."""
    numbers, vectors = record.arrays["basis_rows"], record.arrays["basis_vectors"]
    if not len(numbers):
        return np.full(len(rows.numbers), -1)
    order = np.argsort(numbers, kind="stable")
    places = order[np.minimum(np.searchsorted(numbers[order], rows.numbers), len(order) - 1)]
    is_own = (numbers[places] == rows.numbers) & (vectors[places] == rows.block.features).all(axis=1)
    return np.where(is_own, places, -1)


def _places(ledger: Ledger, learned: Sequence[int], numbers: Integers) -> Integers:
    """Return the index in a row set of these segments of rows by their number in the order of learning.

    −1 stands for rows of a partition that is in quarantine.
    """
    ends = np.cumsum(_rows_of(ledger, learned), dtype=np.int64)
    starts = {segment: int(end) for segment, end in zip(learned, ends - _rows_of(ledger, learned), strict=True)}
    places, first = np.full(len(numbers), -1), 0
    for entry in ledger.entries:
        if entry.segment in starts:
            begin = starts[entry.segment]
            inside = slice(*np.searchsorted(numbers, [begin, begin + entry.rows]))
            places[inside] = numbers[inside] - begin + first
            first += entry.rows
    return places


def _rows_of(ledger: Ledger, segments: Sequence[int]) -> list[int]:
    rows = {each.entry.segment: each.entry.rows for each in ledger.quarantined if each.entry}
    rows |= {entry.segment: entry.rows for entry in ledger.entries}
    return [rows.get(segment, 0) for segment in segments]
