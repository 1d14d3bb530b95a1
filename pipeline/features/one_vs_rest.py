"""Each class against the rest: classes as ±1 outputs over one dictionary, and back by the largest score.

Two classes take one output, the second against the first; an output for the first would be its negative.
"""

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers

Label = bool | int | float | str


def count_outputs(n_classes: int) -> int:
    """Return the number of a learner's outputs for this number of classes."""
    return n_classes if n_classes > 2 else 1


def signs_of(positions: Integers, n_classes: int) -> Floats:
    """Return ±1 (rows, n_outputs) for class positions (rows,); a row of no class, −1, is −1 in every output."""
    chosen = np.array([1]) if n_classes == 2 else np.arange(n_classes)
    return np.where(positions[:, np.newaxis] == chosen, 1.0, -1.0)


def scores_of(outputs: Floats, n_classes: int) -> Floats:
    """Return each class's score (rows, n_classes) from the learner's outputs (rows, n_outputs)."""
    return np.hstack([-outputs, outputs]) if n_classes == 2 else outputs


def winners_of(scores: Floats) -> Integers:
    """Return the position of each row's largest score, the first of several: (rows,)."""
    return np.asarray(np.argmax(scores, axis=1), dtype=np.int64)


def spread_of(deviations: Floats, n_classes: int) -> Floats:
    """Return each class's deviation (rows, n_classes) from those of the outputs (rows, n_outputs)."""
    return np.hstack([deviations, deviations]) if n_classes == 2 else deviations
