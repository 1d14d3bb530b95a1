"""Training and test rows, scaled."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.sums.row_set import ArrayRows


@dataclass(frozen=True)
class Split:
    """Training and test rows."""

    X: Floats
    """Scaled features to learn, shape (rows, n_features)."""
    y: Floats
    """Scaled targets, shape (rows,)."""
    X_test: Floats
    """Features to predict, scaled as those to learn, shape (test rows, n_features)."""
    y_test: Floats
    """Their targets, scaled likewise, shape (test rows,)."""
    unit: float = 1.0
    """What a squared error counts in the units of the study."""

    @classmethod
    def standardized(cls, X: Floats, y: Floats, training: npt.NDArray[np.int64], test: npt.NDArray[np.int64]) -> Self:
        """Return rows by their numbers, features and targets with the training rows' mean zero and variance one."""
        (mean, std), (centre, scale) = ((a[training].mean(axis=0), a[training].std(axis=0)) for a in (X, y))
        features = (X - mean) / np.where(std > 0, std, 1.0)
        targets = (y - centre) / scale
        return cls(features[training], targets[training], features[test], targets[test])

    @property
    def rows(self) -> ArrayRows:
        """The training rows."""
        return ArrayRows(self.X, self.y)

    def error(self, predictions: Floats) -> float:
        """Return the mean squared error of predictions of the test rows, (test rows,) or (test rows, 1)."""
        return self.unit * float(np.mean((np.ravel(predictions) - self.y_test) ** 2))
