"""The served model of local experts: each row is predicted by the expansion of its cell."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.calibration.intervals import Intervals
from ridgestream.pipeline.calibration.probabilities import Probabilities
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.models.predictor import ExpansionModel, Model
from ridgestream.pipeline.online.experts.cells import Cells


@dataclass(frozen=True)
class ExpertsModel(Model):
    """Cells, and an expansion in each that has a dictionary; the nearest of these answers in all others."""

    cells: Cells
    """The cells."""
    answering: Integers
    """The cells that have a dictionary, in ascending order."""
    experts: tuple[ExpansionModel, ...]
    """Their expansions."""
    feature_map: FeatureMap
    """Maps raw columns to the features of centres and basis vectors."""
    intervals: Intervals | None = None
    """What turns error bars into intervals; None if not requested, and for classes."""
    probabilities: Probabilities | None = None
    """What turns outputs into probabilities; None if not requested, and for numbers."""

    @property
    def row_values(self) -> int:
        """The features of a row, and its distances from some centres; kernel values are computed cell by cell."""
        return 2 * self.feature_map.n_features

    @property
    def noise_variance(self) -> Floats:
        """σ̂² of each output in the learner's units, shape (n_outputs,), the same in all cells."""
        none = np.zeros(self.feature_map.target.n_outputs)
        return self.experts[0].known_uncertainty.noise if self.experts else none

    def groups(self, features: Floats) -> Iterator[tuple[int, ExpansionModel, Integers]]:
        """Yield each cell that answers for some of the rows, with its expansion, and the indices of its rows."""
        expert_of = dict(zip(self.answering.tolist(), self.experts, strict=True))
        for cell, own in self.cells.groups(features, self.answering):
            yield cell, expert_of[cell], own

    def outputs(self, parts: Iterable[Floats]) -> Iterator[Floats]:
        """Yield f of standardized rows, part by part, in the learner's units; zero before the first dictionary."""
        for features in parts:
            outputs = np.zeros((len(features), self.feature_map.target.n_outputs))
            for _, expert, own in self.groups(features):
                outputs[own] = next(expert.outputs([features[own]]))
            yield outputs

    def moments(self, features: Floats) -> tuple[Floats, Floats]:
        """Return f and Var f of standardized rows, each of shape (rows, n_outputs); O(n_basis²) a row."""
        outputs, variance = np.zeros((2, len(features), self.feature_map.target.n_outputs))
        for _, expert, own in self.groups(features):
            outputs[own], variance[own] = expert.moments(features[own])
        return outputs, variance


def sharing_noise(experts: Sequence[ExpansionModel]) -> tuple[ExpansionModel, ...]:
    """Return the expansions with one σ̂², the mean of theirs by their weights: few rows could not estimate their own."""
    bars = [expert.uncertainty for expert in experts if expert.uncertainty]
    if not bars:
        return tuple(experts)
    noise = np.average([each.noise for each in bars], axis=0, weights=[each.penalty for each in bars])
    shared = (replace(bar, noise=noise) for bar in bars)
    return tuple(expert.having(uncertainty=bar) for expert, bar in zip(experts, shared, strict=True))
