"""The learning curve of a training: dictionary size, swaps and errors at a bounded number of points along its rows."""

from dataclasses import dataclass, replace
from typing import Any, Self

from ridgestream.pipeline.online.schedule import GRID_ROWS

POINTS = 128
"""The largest number of points, evenly spaced along the rows, besides the last one."""


@dataclass(frozen=True)
class Course:
    """The state of a learner at some points of a training; a kill and a resumption do not change it.

    All columns have one entry per point. Adding a point costs O(POINTS); each doubling of the rows adds about POINTS.
    """

    rows: tuple[int, ...] = ()
    """The number of rows of this training learned up to the point."""
    n_basis: tuple[int, ...] = ()
    """The size of the dictionary."""
    swaps: tuple[int, ...] = ()
    """The number of swaps in the dictionary, including those of earlier trainings."""
    weights: tuple[float, ...] = ()
    """The weight of these rows."""
    losses: tuple[float, ...] = ()
    """The weight of the rows that were misclassified before they were learned, or the weighted sum of their squared
    errors, averaged over targets, in squared target units.
    """
    step: int = GRID_ROWS
    """The number of rows from one point to the next within a block: a multiple of the learner's grid."""

    def cuts(self, rows: int) -> list[slice]:
        """Return the pieces of a block of `rows` rows, cut at the points, which are on the learner's grid."""
        return [slice(start, min(start + self.step, rows)) for start in range(0, rows, self.step)]

    def after(self, rows: int, n_basis: int, swaps: int, weight: float, loss: float) -> Self:
        """Return the curve with one more point, which replaces the last one if that is too near the one before it."""
        near = len(self.rows) > 1 and self.rows[-1] - self.rows[-2] < self.step
        point = {"rows": rows, "n_basis": n_basis, "swaps": swaps, "weights": weight, "losses": loss}
        columns: dict[str, Any] = {
            name: (*getattr(self, name)[: len(self.rows) - near], value) for name, value in point.items()
        }
        if len(columns["rows"]) <= POINTS:
            return replace(self, **columns)
        halved: dict[str, Any] = {name: column[::2] for name, column in columns.items()}
        return replace(self, **halved, step=2 * self.step)

    @property
    def running_errors(self) -> list[float | None]:
        """The error over all rows up to each point; None before the first row of positive weight."""
        return [loss / weight if weight else None for weight, loss in zip(self.weights, self.losses, strict=True)]

    @property
    def errors_between(self) -> list[float | None]:
        """The error over the rows between each point and the one before; None if they have no weight."""
        weights, losses = (0.0, *self.weights), (0.0, *self.losses)
        steps = zip(weights, weights[1:], losses, losses[1:], strict=False)
        return [max(after - before, 0.0) / (w - v) if w > v else None for v, w, before, after in steps]
