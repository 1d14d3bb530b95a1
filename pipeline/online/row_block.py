"""A block of weighted rows of the stream."""

from dataclasses import dataclass
from typing import Self

from ridgestream.pipeline.base.array_checks import Floats, Integers


@dataclass(frozen=True)
class RowBlock:
    """Consecutive rows of the stream, all of positive weight."""

    X: Floats
    """The rows, shape (rows, n_features)."""
    targets: Floats
    """Their targets, shape (rows, n_targets)."""
    weights: Floats
    """Their weights, shape (rows,)."""
    row_numbers: Integers
    """Their numbers in the stream, from zero, shape (rows,)."""

    def __len__(self) -> int:
        return len(self.X)

    def after(self, start: int) -> Self:
        """Return the rows from `start` on."""
        return type(self)(self.X[start:], self.targets[start:], self.weights[start:], self.row_numbers[start:])
