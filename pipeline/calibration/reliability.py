"""Whether intervals and probabilities hold on rows with targets: sums over rows, and the figures that follow."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers

N_BINS = 15
"""Bins of equal width into which probabilities are sorted for the calibration error."""


@dataclass(frozen=True)
class Coverage:
    """Weighted sums over rows with intervals; mergeable."""

    level: float
    """The level of the intervals."""
    weight: float
    """The weight of the rows."""
    covered: tuple[float, ...]
    """The weight of the rows inside their interval, of each target."""
    width: tuple[float, ...]
    """The weighted sum of the intervals' widths, of each target, in its units."""

    @classmethod
    def of(cls, level: float, errors: Floats, radius: Floats, weights: Floats | None) -> Self:
        """Return the sums over rows with errors y − f and half widths, both (rows, n_targets)."""
        w = np.ones(len(errors)) if weights is None else weights
        covered, width = (w[:, np.newaxis] * values for values in (np.abs(errors) <= radius, 2 * radius))
        return cls(level, float(w.sum()), tuple(covered.sum(axis=0).tolist()), tuple(width.sum(axis=0).tolist()))

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows."""
        covered, width = (tuple(np.add(*pair).tolist()) for pair in zip(self._sums, other._sums, strict=True))
        return type(self)(self.level, self.weight + other.weight, covered, width)

    @property
    def _sums(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.covered, self.width

    def as_dict(self, targets: tuple[str, ...]) -> dict[str, Any]:
        """Return level, coverage and mean width of the first targets, by their names, and the mean coverage of all."""
        shares, widths = ([total / self.weight for total in totals] for totals in self._sums)
        of_targets = zip(targets, shares, widths, strict=False)
        return {
            "level": self.level,
            "coverage": sum(shares) / len(shares),
            "of": {name: {"coverage": share, "mean_width": width} for name, share, width in of_targets},
        }


@dataclass(frozen=True)
class Reliability:
    """Weighted sums over rows with class probabilities; mergeable.

    The calibration error is that of the second of two classes, or of the most probable of many: the mean over N_BINS
    bins of equal width, by weight, of |mean probability − share of rows that are of the class|.
    """

    brier: float
    """The sum of squared differences between a row's probabilities and its class: of the second of two classes alone,
    of all of many.
    """
    log_loss: float
    """The sum of −log p of the true class."""
    weights: tuple[float, ...]
    """The weight of the rows in each bin."""
    probabilities: tuple[float, ...]
    """The weighted sum of the probabilities in each bin."""
    hits: tuple[float, ...]
    """The weight of the rows in each bin that are of the class."""

    @classmethod
    def of(cls, probabilities: Floats, truth: Integers, weights: Floats | None) -> Self:
        """Return the sums over rows with probabilities (rows, n_classes) and class numbers (rows,)."""
        w = np.ones(len(truth)) if weights is None else weights
        is_class = np.arange(probabilities.shape[1]) == truth[:, np.newaxis]
        squares = (probabilities - is_class) ** 2
        predicted = np.full(len(truth), 1) if probabilities.shape[1] == 2 else probabilities.argmax(axis=1)
        predicted_probability = probabilities[np.arange(len(predicted)), predicted]
        bins = np.minimum((predicted_probability * N_BINS).astype(np.int64), N_BINS - 1)
        sums = (np.bincount(bins, part, N_BINS) for part in (w, w * predicted_probability, w * (predicted == truth)))
        return cls(
            float(w @ (squares[:, 1] if probabilities.shape[1] == 2 else squares.sum(axis=1))),
            float(w @ -np.log(probabilities[is_class])),
            *(tuple(part.tolist()) for part in sums),
        )

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows."""
        bins = (tuple(np.add(*pair).tolist()) for pair in zip(self._bins, other._bins, strict=True))
        return type(self)(self.brier + other.brier, self.log_loss + other.log_loss, *bins)

    @property
    def _bins(self) -> tuple[tuple[float, ...], ...]:
        return self.weights, self.probabilities, self.hits

    def as_dict(self) -> dict[str, Any]:
        """Return Brier score, log loss and calibration error, and the bins that have rows."""
        total = sum(self.weights)
        filled = [each for each in zip(*self._bins, strict=True) if each[0] > 0]
        return {
            "brier": self.brier / total,
            "log_loss": self.log_loss / total,
            "calibration_error": sum(abs(probability - hit) for _, probability, hit in filled) / total,
            "reliability": [
                {"probability": probability / weight, "share": hit / weight, "weight": weight}
                for weight, probability, hit in filled
            ],
        }
