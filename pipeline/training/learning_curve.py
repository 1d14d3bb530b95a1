"""The course of a learner along its rows: size, exchanges and errors at some points, however many rows there are."""

from dataclasses import dataclass, replace
from typing import Any, Self

from ridgestream.pipeline.online.schedule import GRID_ROWS

POINTS = 128
"""Points that are kept at most, evenly among the rows, and the last one."""


@dataclass(frozen=True)
class Course:
    """Where a learner was at some points of a training; the same however often the training was killed on the way.

    All columns have one entry a point. Adding a point costs O(POINTS), and there are about POINTS each time that the
    rows have doubled.
    """

    rows: tuple[int, ...] = ()
    """Rows of this training that were learned by then."""
    n_basis: tuple[int, ...] = ()
    """The size of the dictionary."""
    swaps: tuple[int, ...] = ()
    """Exchanges in the dictionary, those of earlier trainings included."""
    weights: tuple[float, ...] = ()
    """The weight of the rows of this training by then."""
    losses: tuple[float, ...] = ()
    """The weight of those that were misclassified before they were learned, or the weighted sum of their squared
    errors, the mean over the targets, in squared target units.
    """
    step: int = GRID_ROWS
    """Rows from one point to the next, if no block ends between: a multiple of the learner's grid."""

    def cuts(self, rows: int) -> list[slice]:
        """Return the pieces of a block of so many rows after which there is a point; they are on the learner's grid."""
        return [slice(start, min(start + self.step, rows)) for start in range(0, rows, self.step)]

    def after(self, rows: int, n_basis: int, swaps: int, weight: float, loss: float) -> Self:
        """Return the course with one more point; the last one so far goes, where it is too near the one before it."""
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
        """The error over all rows up to each point; None before a row that counts."""
        return [loss / weight if weight else None for weight, loss in zip(self.weights, self.losses, strict=True)]

    @property
    def errors_between(self) -> list[float | None]:
        """The error over the rows since the point before each; None where none of them counts."""
        weights, losses = (0.0, *self.weights), (0.0, *self.losses)
        steps = zip(weights, weights[1:], losses, losses[1:], strict=False)
        return [max(after - before, 0.0) / (w - v) if w > v else None for v, w, before, after in steps]
