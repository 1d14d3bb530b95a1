"""Calibration at the end of a training: intervals of numbers, and probabilities of classes.

Both come from a sample of the learned rows, as the model predicts them without having learned them (`left_out`), and so
are the same however the rows are divided into nights. Which level intervals work with follows, from night to night, how
many of the new rows the model before had covered.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.calibration.intervals import COVERAGE_LEVEL, LEVELS, Intervals
from ridgestream.pipeline.calibration.probabilities import Probabilities
from ridgestream.pipeline.dataset.feature_map_growth import encoding_of
from ridgestream.pipeline.models.calibration import intervals_of, with_intervals, with_probabilities
from ridgestream.pipeline.models.model_record import is_policy, model_of, widened
from ridgestream.pipeline.sums.quantile_sketch import sample_indices
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.left_out import JudgedRows, judge_left_out
from ridgestream.pipeline.training.training_result import Trained
from ridgestream.stores.catalog.models import ModelRecord


def calibrate(context: TrainingContext, trained: Trained, learned: Sequence[int]) -> Trained:
    """Return the result with a calibrated record; `learned` are the segments of its rows in the order of learning.

    A value function stays as it is: no row shows the value of its state, as a target would.
    A model whose matrices have no factor is reported, and stays without. Raises StoreError for unreadable rows.
    """
    if is_policy(trained.record):
        return trained
    try:
        with one_blas_thread():
            judged = judge_left_out(context, trained.record, learned)
            if judged is None:
                return trained
            if judged.deviations is None or judged.noise is None:
                return replace(trained, record=_with_probabilities(trained.record, judged))
            errors = np.abs(judged.targets - judged.outputs)
            intervals = Intervals.fit(errors, judged.deviations, judged.noise, judged.weights)
            return _with_intervals(context, trained, intervals)
    except NumericalBreakdown as error:
        context.report.warn(events.TRAIN_NOT_CALIBRATED, reason=str(error)[:300])
        return trained


def _with_probabilities(record: ModelRecord, judged: JudgedRows) -> ModelRecord:
    return with_probabilities(record, Probabilities.fit(judged.outputs, judged.targets, judged.weights))


def _with_intervals(context: TrainingContext, trained: Trained, intervals: Intervals) -> Trained:
    before, coverage = intervals_of(context.record) if context.record else None, None
    if before is not None and context.record is not None:
        scores, weights = _scores_of_new_rows(context, context.record, before, trained)
        if weights.any():
            shares = before.shares_outside(scores, weights)
            intervals = intervals.adapted(before, shares, len(weights))
            coverage = 1 - float(shares[:, LEVELS.index(COVERAGE_LEVEL)].mean())
        else:
            intervals = replace(intervals, outside=before.outside)
    return replace(trained, record=with_intervals(trained.record, intervals), coverage=coverage)


def _scores_of_new_rows(
    context: TrainingContext, before: ModelRecord, intervals: Intervals, trained: Trained
) -> tuple[Floats, Floats]:
    """Return the scores of a sample of the new rows by the model before, (rows, n_targets), and their weights."""
    schema = context.ledger.schema
    feature_map = encoding_of(trained.record, schema)
    rows = context.rows([entry.segment for entry in trained.entries], feature_map)
    block = rows.take(sample_indices(rows.n_rows))
    model = model_of(widened(before, encoding_of(before, schema), feature_map), with_uncertainty=True)
    outputs, deviations = model.judge(block.features)
    weights = np.ones(len(outputs)) if block.weights is None else block.weights
    return np.abs(block.targets - outputs) / intervals.scales(deviations, model.noise), weights
