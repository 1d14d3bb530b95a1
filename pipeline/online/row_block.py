"""A block of weighted rows of the stream."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from ridgestream.pipeline.base.array_checks import Floats, Integers


@dataclass(frozen=True)
class RowBlock:
    """Rows of the stream, in its order."""

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
        return self.select(slice(start, None))

    def parts(self, rows: int) -> Iterator[Self]:
        """Yield parts of this many rows, and the rest."""
        return (self.select(slice(start, start + rows)) for start in range(0, len(self), rows))

    def select(self, rows: slice | Integers) -> Self:
        """Return these rows, in this order."""
        return type(self)(self.X[rows], self.targets[rows], self.weights[rows], self.row_numbers[rows])
