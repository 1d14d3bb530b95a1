"""Row sets: rows that can be read repeatedly, the only view of the data that batch methods have.

A method requests sums over all rows, given by a function of blocks and its argument, and single rows by their indices.
There are two row sets, rows in memory and rows of a store read by workers, which give the same results up to rounding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from ridgestream.pipeline.base.array_checks import (
    Floats,
    Integers,
    check_row_numbers,
    check_rows,
    check_targets,
    check_weights,
)
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.sums.normal_equations import SeveralStatistics, Summing, sum_together
from ridgestream.pipeline.sums.row_block import RowBlock

BLOCK_ROWS = 8192
"""Rows per block of rows in memory."""


class Sums(Protocol):
    """The result of a pass; a monoid under `merge`."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows, those of `other` following."""


@runtime_checkable
class Divisible(Protocol):
    """An argument that is divided, besides the rows: the results of its shares merge to its own, bit for bit."""

    def shares(self, count: int) -> Sequence[Self]:
        """Return the shares, at least one; about as many as `count`, the number of workers, or as there are."""


def divide(argument: Any, count: int) -> Sequence[Any]:  # noqa: ANN401
    """Return the shares of an argument of a pass; itself alone unless it can be divided."""
    return argument.shares(count) if isinstance(argument, Divisible) else (argument,)


Argument = TypeVar("Argument")
Summed = TypeVar("Summed", bound=Sums)


class RowSet(Protocol):
    """Rows in a fixed order, standardized."""

    @property
    def n_rows(self) -> int:
        """Number of rows, including those of weight zero."""

    @property
    def n_features(self) -> int:
        """Number of features."""

    @property
    def n_targets(self) -> int:
        """Number of targets."""

    def take(self, indices: Integers) -> RowBlock:
        """Return the rows at these indices, 0 to n_rows − 1, in the given order; indices may repeat."""

    def reduce(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        argument: Argument,
        step: Step,
        parts: int | None = None,
    ) -> Summed:
        """Return function(argument, blocks) over all rows, in one pass.

        The rows are divided into parts, each part is passed to the function block by block, and the results are merged
        in the order of the rows. The division depends only on the rows, or is into `parts` runs of equal length (at
        most one per row). The shares of a Divisible argument may be taken apart. Functions and arguments are sent to
        other processes, so the function is pure and defined in a module. `step` names the pass in reports. Without
        rows, the function is called once, without blocks.
        """

    def reduce_each(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        arguments: Sequence[Argument],
        step: Step,
        parts: int | None = None,
    ) -> Iterator[Summed]:
        """Yield what `reduce` returns for each argument, in order; workers continue while the caller considers one."""

    def statistics(self, summings: Sequence[Summing], step: Step) -> SeveralStatistics:
        """Return the sums of each basis over all rows, in one pass; implementations may cache them."""


@dataclass(frozen=True)
class ArrayRows:
    """Rows in memory, of any real dtype and layout; kept as C-contiguous float64, copied only if they are not.

    Raises InputError naming the argument and the first entry that is NaN, infinite or too large, a negative weight, and
    shapes that do not fit each other.
    """

    features: Floats
    """Standardized, shape (n_rows, n_features)."""
    targets: Floats
    """Shape (n_rows, n_targets), or (n_rows,) for one target."""
    weights: Floats | None = None
    """Shape (n_rows,); None if all weights are 1."""

    def __post_init__(self) -> None:
        features = check_rows(self.features, name="features")
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", check_targets(self.targets, len(features), name="targets"))
        if self.weights is not None:
            object.__setattr__(self, "weights", check_weights(self.weights, len(features), "weights"))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.features)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.features.shape[1])

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return int(self.targets.shape[1])

    def take(self, indices: Integers) -> RowBlock:
        """Return the rows at these indices; raises InputError for one that does not exist."""
        indices = check_row_numbers(indices, self.n_rows)
        weights = None if self.weights is None else self.weights[indices]
        return RowBlock(self.features[indices], self.targets[indices], weights)

    def reduce(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        argument: Argument,
        step: Step,  # noqa: ARG002
        parts: int | None = None,
    ) -> Summed:
        """Return function(argument, blocks) over all rows, in the calling process."""
        ranges = cut_evenly(self.n_rows, parts or 1)
        return merge_all(function(argument, self._blocks(start, stop)) for start, stop in ranges)

    def reduce_each(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        arguments: Sequence[Argument],
        step: Step,
        parts: int | None = None,
    ) -> Iterator[Summed]:
        """Yield what `reduce` returns for each argument when it is asked for."""
        return (self.reduce(function, argument, step, parts) for argument in arguments)

    def statistics(self, summings: Sequence[Summing], step: Step) -> SeveralStatistics:
        """Return the sums of each basis over all rows."""
        return self.reduce(sum_together, summings, step)

    def _blocks(self, start: int, stop: int) -> Iterator[RowBlock]:
        for first in range(start, stop, BLOCK_ROWS):
            part = slice(first, min(first + BLOCK_ROWS, stop))
            weights = None if self.weights is None else self.weights[part]
            yield RowBlock(self.features[part], self.targets[part], weights, first)


def cut_evenly(n_rows: int, parts: int) -> list[tuple[int, int]]:
    """Return the ranges of at most `parts` runs of nearly equal length; none is empty unless there are no rows."""
    bounds = [n_rows * part // min(parts, max(n_rows, 1)) for part in range(min(parts, max(n_rows, 1)) + 1)]
    return list(pairwise(bounds))


def merge_all(parts: Iterable[Summed]) -> Summed:
    """Return all parts, at least one, merged one by one in order."""
    return reduce(lambda before, after: before.merge(after), parts)
