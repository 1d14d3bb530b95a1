"""Row sets with other weights: rows that count less, or not at all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from ridgestream.pipeline.base.array_checks import Integers
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.pass_checkpoint import name_of_pass
from ridgestream.pipeline.base.serialization import hash_of
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.normal_equations import SeveralStatistics, Summing, sum_together
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import RowSet, Sums

Argument = TypeVar("Argument")
Summed = TypeVar("Summed", bound=Sums)


class Reweighting(Protocol):
    """How rows are weighted; a value that can be sent to other processes."""

    def apply(self, block: RowBlock, numbers: Integers) -> RowBlock:
        """Return rows, whose indices in their row set are `numbers`, with their weights times others."""


@dataclass(frozen=True)
class WithoutFold:
    """Weights of zero for the rows of one fold."""

    fold: int
    """The fold."""
    folds: int
    """The number of folds."""
    seed: int
    """The seed of the assignment of rows to folds."""

    def apply(self, block: RowBlock, numbers: Integers) -> RowBlock:
        """Return the rows, those of the fold with weight zero."""
        if not len(numbers):
            return block
        first = int(numbers.min())
        dealt = deal_folds(first, int(numbers.max()) - first + 1, self.folds, self.seed)[numbers - first]
        kept = (dealt != self.fold).astype(float)
        return replace(block, weights=kept if block.weights is None else block.weights * kept)


@dataclass(frozen=True)
class Reweighted:
    """A function of blocks that applies weights first."""

    reweighting: Reweighting
    function: Callable[[Any, Iterable[RowBlock]], Any]

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function, as `inspect.unwrap` finds it."""
        return self.function

    @property
    def pass_name(self) -> tuple[str, ...]:
        """Its name for checkpoints."""
        return (*name_of_pass(self.function), hash_of(self.reweighting))

    def __call__(self, argument: Any, blocks: Iterable[RowBlock]) -> Any:  # noqa: ANN401
        """Return the function of the weighted blocks."""
        return self.function(argument, map(self._apply, blocks))

    def _apply(self, block: RowBlock) -> RowBlock:
        return self.reweighting.apply(block, np.arange(block.first, block.first + len(block.features)))


@dataclass(frozen=True)
class ReweightedRows:
    """Rows with other weights; a row set."""

    rows: RowSet
    """The rows."""
    reweighting: Reweighting
    """The weights."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.rows.n_rows

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.rows.n_features

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.rows.n_targets

    def take(self, indices: Integers) -> RowBlock:
        """Return the rows at these indices."""
        return self.reweighting.apply(self.rows.take(indices), indices)

    def reduce(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        argument: Argument,
        step: Step,
        parts: int | None = None,
    ) -> Summed:
        """Return function(argument, blocks) over all rows; each block is weighted in addition."""
        return next(self.reduce_each(function, (argument,), step, parts))

    def reduce_each(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        arguments: Sequence[Argument],
        step: Step,
        parts: int | None = None,
    ) -> Iterator[Summed]:
        """Yield what `reduce` returns for each argument, in order."""
        reweighted: Callable[[Argument, Iterable[RowBlock]], Summed] = Reweighted(self.reweighting, function)
        return self.rows.reduce_each(reweighted, arguments, step, parts)

    def statistics(self, summings: Sequence[Summing], step: Step) -> SeveralStatistics:
        """Return the sums of each basis over all rows."""
        return self.reduce(sum_together, summings, step)
