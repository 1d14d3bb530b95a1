"""A block of rows that a learner predicted, then learned: what it adds to the progress of a training."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.calibration.kept_predictions import KeptPredictions
from ridgestream.pipeline.dataset.block_plan import Part
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.monitoring.learning_curve import Course
from ridgestream.pipeline.prediction.evaluate import Evaluation, compare
from ridgestream.pipeline.prediction.progressive_validation import Progressive, mean_errors, sum_losses
from ridgestream.pipeline.training.online.checkpoints import Progress


@dataclass(frozen=True)
class Point:
    """The learner within a block."""

    stop: int
    """How many rows of the block it has learned."""
    n_basis: int
    """The number of its basis vectors."""
    swaps: int
    """How often one was replaced."""


@dataclass(frozen=True)
class LearnedBlock:
    """Rows of a segment with their predictions; nobody has their features any more."""

    part: Part
    """Where the rows are."""
    first: int
    """How many rows the learner had seen before."""
    predictions: Floats
    """What was predicted before each row was learned, (rows, n_outputs)."""
    targets: Floats
    """In the learner's units, (rows, n_outputs)."""
    weights: Floats | None
    """Shape (rows,); None if all weights are 1."""
    points: Sequence[Point]
    """The learner at some rows, and after the last one."""

    def sums(self, progress: Progress, feature_map: FeatureMap) -> tuple[Progressive, KeptPredictions, Course]:
        """Return the errors of these rows and, after those of `progress`, a sample of all and the learning curve."""
        if not len(self.targets):
            return Progressive(Evaluation(classes=progress.sums.total.classes)), progress.kept, progress.course
        before, course = progress.sums.total, progress.course
        own_weights = feature_map.target.unweigh(self.targets, self.weights)
        rows = self.predictions, self.targets, own_weights, feature_map
        # values that are not finite are refused afterwards, with the partition's name
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            errors, (weights, losses) = (
                compare(*rows, classes=before.classes),
                sum_losses(*rows, classes=before.classes),
            )
        loss = mean_errors(before, feature_map)[0] * before.weight
        for point in self.points:
            weight, more = float(weights[point.stop - 1]), float(losses[point.stop - 1])
            place = progress.rows + point.stop
            course = course.after(place, point.n_basis, point.swaps, before.weight + weight, loss + more)
        kept = progress.kept.after(self.first, self.predictions, self.targets, own_weights)
        return Progressive.of(self.part[0].segment, errors, feature_map), kept, course
