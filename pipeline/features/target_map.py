"""Targets of the store to the learner's outputs and back: numbers standardized, classes as ±1 each against the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.features.one_vs_rest import Label, count_outputs, scores_of, signs_of, spread_of
from ridgestream.pipeline.sums.moments import Moments


@dataclass(frozen=True)
class TargetMap:
    """What the learner's outputs stand for."""

    centre: tuple[float, ...]
    """Subtracted from each target; 0 for classes."""
    scale: tuple[float, ...]
    """Divides each centred target; 1 for classes."""
    classes: tuple[Label, ...] = ()
    """The classes that are learned each against the rest, sorted; empty for any other target."""
    class_weights: tuple[float, ...] = ()
    """The factor of the weight of a row of each class, of ±1 targets of −1 and +1; empty if all are 1."""

    @classmethod
    def fit(cls, moments: Moments) -> Self:
        """Return the map that standardizes each target by these moments."""
        return cls(tuple(moments.mean.tolist()), tuple(moments.deviation().tolist()))

    @classmethod
    def of_classes(cls, classes: Sequence[Label]) -> Self:
        """Return the map of these classes; without classes, of one target that is ±1 already."""
        n_outputs = count_outputs(len(classes))
        return cls((0.0,) * n_outputs, (1.0,) * n_outputs, tuple(classes))

    @property
    def n_outputs(self) -> int:
        """The number of the learner's outputs."""
        return len(self.centre)

    def check_classes(self, present: Sequence[Label]) -> None:
        """Raise InputError for the first class that is not among this map's."""
        unseen = [label for label in present if label not in self.classes]
        if self.classes and unseen:
            raise InputError(
                f"the target has the class {unseen[0]!r}, which the model did not have when it was first trained; "
                "begin a new model with --new-model, or correct the rows"
            )

    def encode(self, stored: Floats, table: Sequence[Label]) -> Floats:
        """Return the targets to be predicted (rows, n_outputs) from stored ones (rows, n_targets).

        A stored class is a code of `table`, and becomes ±1; one that this map lacks is −1 in every output.
        """
        if not self.classes:
            return stored
        known = {label: position for position, label in enumerate(self.classes)}
        positions: Integers = np.array([known.get(label, -1) for label in table], dtype=np.int64)
        return signs_of(positions[stored[:, 0].astype(np.int64)], len(self.classes))

    def standardize(self, targets: Floats) -> Floats:
        """Return targets (rows, n_outputs) in the learner's units."""
        return np.asarray((targets - np.array(self.centre)) / np.array(self.scale))

    def weigh(self, targets: Floats, weights: Floats | None) -> Floats | None:
        """Return the weights (rows,) by which rows with these encoded targets (rows, n_outputs) are learned."""
        if not self.class_weights:
            return weights
        factors = self._factors(targets)
        return factors if weights is None else weights * factors

    def unweigh(self, targets: Floats, weights: Floats | None) -> Floats | None:
        """Return the rows' own weights (rows,), by which errors are reported, from those of `weigh`."""
        if not self.class_weights or weights is None:
            return weights
        return np.asarray(weights / self._factors(targets))

    def _factors(self, targets: Floats) -> Floats:
        is_pair = targets.shape[1] == 1
        positions = (targets[:, 0] > 0).astype(np.int64) if is_pair else np.argmax(targets, axis=1)
        return np.asarray(np.array(self.class_weights)[positions], dtype=np.float64)

    def restore(self, outputs: Floats) -> Floats:
        """Return the learner's outputs (rows, n_outputs) in the user's units."""
        return np.asarray(outputs * np.array(self.scale) + np.array(self.centre))

    def class_scores(self, outputs: Floats) -> Floats:
        """Return each class's score (rows, n_classes) from outputs (rows, n_outputs); without classes, the outputs."""
        return scores_of(outputs, len(self.classes))

    def class_deviations(self, deviations: Floats) -> Floats:
        """Return each class's standard deviation from those of the outputs, shaped as by `class_scores`."""
        return spread_of(deviations, len(self.classes))
