"""The last value as a trivial model of rows ordered in time: each target is predicted by that of the row before.

Its errors need the targets alone, and merge in the order of the rows: of each run of rows the first and the last target
are kept. The first row of all has none before it, and does not count.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats


@dataclass(frozen=True)
class LastValue:
    """Sums over consecutive rows, mergeable; rows of weight zero are as if absent."""

    weight: float = 0.0
    """The weight of the rows that have one before them."""
    losses: tuple[float, ...] = ()
    """The weight of rows of another class than the one before, or of each target the weighted sum of squares."""
    first: tuple[float, ...] = ()
    """The targets of the first row; empty without rows."""
    first_weight: float = 0.0
    """Its weight."""
    last: tuple[float, ...] = ()
    """The targets of the last row."""
    classes: bool = False
    """Whether the targets are a class."""

    @classmethod
    def of(cls, targets: Floats, weights: Floats | None, *, classes: bool) -> Self:
        """Return the sums over rows with these targets (rows, n_targets) and weights (rows,)."""
        w = np.ones(len(targets)) if weights is None else weights
        y, w = targets[w > 0], w[w > 0]
        if not len(y):
            return cls(classes=classes)
        losses = (w[1:, np.newaxis] * _losses(y[1:], y[:-1], classes=classes)).sum(axis=0)
        first, last = tuple(y[0].tolist()), tuple(y[-1].tolist())
        return cls(float(w[1:].sum()), tuple(losses.tolist()), first, float(w[0]), last, classes)

    def merge(self, later: Self) -> Self:
        """Return the sums over these rows and those that follow them."""
        if not (self.first and later.first):
            return self if self.first else later
        between = _losses(np.array([later.first]), np.array([self.last]), classes=self.classes)[0] * later.first_weight
        losses = tuple((np.array(self.losses) + between + np.array(later.losses)).tolist())
        weight = self.weight + later.first_weight + later.weight
        return type(self)(weight, losses, self.first, self.first_weight, later.last, self.classes)

    @property
    def errors(self) -> tuple[float, ...]:
        """The share of rows of another class than the one before, or the mean square of each target's change."""
        return tuple(loss / self.weight for loss in self.losses) if self.weight else ()


def _losses(targets: Floats, before: Floats, *, classes: bool) -> Floats:
    """Return 1 where the class has changed (rows, 1), or the square of each change (rows, n_targets)."""
    if classes:
        return np.asarray((targets != before).any(axis=1, keepdims=True), dtype=np.float64)
    return np.asarray((targets - before) ** 2)
