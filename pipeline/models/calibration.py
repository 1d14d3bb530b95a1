"""What calibrates a model, as arrays of its record: kept predictions, intervals, and probabilities of classes."""

from dataclasses import replace
from typing import cast

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.calibration.intervals import LEVELS, Intervals
from ridgestream.pipeline.calibration.kept_predictions import KeptPredictions
from ridgestream.pipeline.calibration.priority_sample import PrioritySample
from ridgestream.pipeline.calibration.probabilities import N_BINS, Probabilities
from ridgestream.pipeline.models.model_record import model_of
from ridgestream.pipeline.models.predictor import Model
from ridgestream.stores.catalog.models import Arrays, ModelRecord
from ridgestream.stores.errors.exceptions import ModelError

_KEPT = (
    "progressive_rows",
    "progressive_threshold",
    "progressive_outputs",
    "progressive_targets",
    "progressive_weights",
)
_INTERVALS = ("interval_scores", "interval_weights", "interval_outside", "interval_powers")
_PROBABILITIES = ("probability_scores", "probability_values")


def with_kept(record: ModelRecord, kept: KeptPredictions) -> ModelRecord:
    """Return the record with the predictions of rows before they were learned."""
    sample = kept.sample
    return _with(record, _KEPT, sample.rows, np.array([sample.threshold]), kept.outputs, kept.targets, kept.weights)


def kept_of(record: ModelRecord) -> KeptPredictions | None:
    """Return the predictions of rows before they were learned; None for a batch method and in older records."""
    arrays = _arrays(record, _KEPT)
    if arrays is None:
        return None
    rows, threshold, outputs, targets, weights = arrays
    _check(record, rows.dtype == np.int64 and threshold.shape == (1,) and weights.shape == rows.shape)
    _check(record, outputs.shape[:1] == rows.shape and outputs.shape == targets.shape)
    sample = PrioritySample(cast("Integers", rows), float(threshold[0]))
    return KeptPredictions(sample, *(cast("Floats", array) for array in (outputs, targets, weights)))


def with_intervals(record: ModelRecord, intervals: Intervals) -> ModelRecord:
    """Return the record with what turns its standard deviations into intervals."""
    return _with(record, _INTERVALS, intervals.scores, intervals.weights, intervals.outside, intervals.powers)


def intervals_of(record: ModelRecord) -> Intervals | None:
    """Return what turns standard deviations into intervals; None for classes and in older records."""
    arrays = _arrays(record, _INTERVALS)
    if arrays is None:
        return None
    scores, weights, outside, powers = (cast("Floats", array) for array in arrays)
    fits = scores.shape[:1] == weights.shape and outside.shape == (*powers.shape, len(LEVELS))
    fits = fits and scores.shape[1:] == powers.shape
    _check(record, fits and all(np.isfinite(array).all() for array in arrays))
    return Intervals(scores, weights, outside, powers)


def with_probabilities(record: ModelRecord, probabilities: Probabilities) -> ModelRecord:
    """Return the record with what turns its scores into probabilities."""
    return _with(record, _PROBABILITIES, probabilities.scores, probabilities.values)


def probabilities_of(record: ModelRecord) -> Probabilities | None:
    """Return what turns scores into probabilities; None for numbers and in older records."""
    arrays = _arrays(record, _PROBABILITIES)
    if arrays is None:
        return None
    scores, values = (cast("Floats", array) for array in arrays)
    _check(record, scores.shape == values.shape and scores.shape[1:] == (N_BINS,) and np.isfinite(scores).all())
    _check(record, bool(((values > 0) & (values < 1)).all()))
    return Probabilities(scores, values)


def calibrated_model_of(record: ModelRecord) -> Model:
    """Return the served model with its intervals or probabilities, as far as the record has them; O(n_basis³)."""
    intervals = intervals_of(record)
    model = model_of(record, with_uncertainty=intervals is not None)
    return model.having(intervals=intervals, probabilities=probabilities_of(record))


def _with(record: ModelRecord, names: tuple[str, ...], *arrays: Floats | Integers) -> ModelRecord:
    return replace(record, arrays=record.arrays | cast("Arrays", dict(zip(names, arrays, strict=True))))


def _arrays(record: ModelRecord, names: tuple[str, ...]) -> list[Floats | Integers] | None:
    """Return these arrays of the record; None if it has none of them."""
    present = [record.arrays[name] for name in names if name in record.arrays]
    _check(record, len(present) in (0, len(names)))
    return present or None


def _check(record: ModelRecord, is_sound: object) -> None:
    if not is_sound:
        raise ModelError(f"the record of the model {record.name!r} is damaged: its calibration does not fit together")
