"""Whether rows come in the order of their target, as a file does that was sorted by class.

The last rows of such a file are unlike those of tomorrow: they have classes, or values, that no row before them has, so
that they cannot judge a model of the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.sums.row_block import RowBlock, drop_absent

FEWEST_ROWS = 50
"""Fewer rows may be in this order by chance."""

EXCEPTIONS = 20
"""One change of a number in so many may be against the order, as where sorted files follow each other, or are mixed."""


@dataclass(frozen=True)
class TargetOrder:
    """The order of the targets of some rows; a monoid under `merge`."""

    rows: int
    """Their number."""
    first: Floats
    """The targets of the first row, shape (n_targets,); zeros without rows."""
    last: Floats
    """Those of the last row."""
    rises: Integers
    """How often each target is above that of the row before, shape (n_targets,)."""
    falls: Integers
    """How often it is below."""
    has_numbers: bool = False
    """Whether any target is a number; those of classes are ±1."""

    @classmethod
    def of(cls, targets: Floats) -> Self:
        """Return the order of targets, shape (rows, n_targets)."""
        steps, ends = np.diff(targets, axis=0), targets if len(targets) else np.zeros((1, targets.shape[1]))
        rises, falls = (np.count_nonzero(against, axis=0) for against in (steps > 0, steps < 0))
        return cls(len(targets), ends[0], ends[-1], rises, falls, bool(np.any(np.abs(targets) != 1.0)))

    def merge(self, other: Self) -> Self:
        """Return the order of both, the rows of `other` following."""
        if not (self.rows and other.rows):
            return self if self.rows else other
        return type(self)(
            self.rows + other.rows,
            self.first,
            other.last,
            self.rises + other.rises + (other.first > self.last),
            self.falls + other.falls + (other.first < self.last),
            self.has_numbers or other.has_numbers,
        )

    @property
    def is_constant(self) -> bool:
        """Whether there are several rows, and all have the same target."""
        return self.rows > 1 and not np.any(self.rises + self.falls)

    @property
    def is_sorted(self) -> bool:
        """Whether all rows of each class follow each other, or a number only rises or only falls."""
        if self.rows < FEWEST_ROWS or self.is_constant:
            return False
        if len(self.first) > 1 and not self.has_numbers:
            return bool(np.all(self.rises + (self.first > 0) <= 1))
        changes, against = self.rises + self.falls, np.minimum(self.rises, self.falls)
        return bool(np.any((changes > 0) & (EXCEPTIONS * against <= changes)))


@named_pass("metric", "find_target_order")
def find_target_order(n_targets: int, blocks: Iterable[RowBlock]) -> TargetOrder:
    """Return the order of the targets of all rows, but those of weight zero."""
    order = TargetOrder.of(np.empty((0, n_targets)))
    for block in blocks:
        order = order.merge(TargetOrder.of(drop_absent(block).targets))
    return order
