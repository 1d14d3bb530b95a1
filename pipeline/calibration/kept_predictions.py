"""Predictions that an online learner made of rows before it learned them, kept for a sample of these rows."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.calibration.priority_sample import PrioritySample, sample_size


@dataclass(frozen=True)
class KeptPredictions:
    """Predictions of the sampled rows; the same however the rows are divided into blocks and nights."""

    sample: PrioritySample
    """The rows."""
    outputs: Floats
    """The learner's output for each before it was learned, shape (n_kept, n_outputs)."""
    targets: Floats
    """Its targets in the learner's units, shape (n_kept, n_outputs)."""
    weights: Floats
    """Its own weight, shape (n_kept,)."""

    @classmethod
    def none(cls, n_outputs: int) -> Self:
        """Return the predictions of no row."""
        return cls(PrioritySample(), np.empty((0, n_outputs)), np.empty((0, n_outputs)), np.empty(0))

    def after(self, first: int, outputs: Floats, targets: Floats, weights: Floats | None) -> Self:
        """Return the predictions after those of the rows from number `first` on, shape (rows, n_outputs).

        `targets` have the same shape, `weights` (rows,), or None if all are 1.
        """
        sample, kept = self.sample.after(first, len(outputs), sample_size(outputs.shape[1]))
        own = np.ones(len(outputs)) if weights is None else weights
        pairs = ((self.outputs, outputs), (self.targets, targets), (self.weights, own))
        return type(self)(sample, *(np.concatenate(pair)[kept] for pair in pairs))
