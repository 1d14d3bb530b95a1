"""A row set that records its passes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import ArrayRows, Sums, cut_evenly

Argument = TypeVar("Argument")
Summed = TypeVar("Summed", bound=Sums)


@dataclass(frozen=True)
class CountedRows(ArrayRows):
    """Rows in memory that are summed in parts, as a store's are, and that record the name of each pass."""

    n_parts: int = 3
    """Number of parts."""
    labels: list[str] = field(default_factory=list)
    """Name of each pass, in order."""

    @property
    def passes(self) -> int:
        """Number of passes so far."""
        return len(self.labels)

    def reduce(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        argument: Argument,
        step: Step,
        parts: int | None = None,
    ) -> Summed:
        self.labels.append(step.name)
        ranges = cut_evenly(self.n_rows, parts or self.n_parts)
        sums = [function(argument, [self._part(start, stop)]) for start, stop in ranges]
        merged = sums[0]
        for other in sums[1:]:
            merged = merged.merge(other)
        return merged

    def _part(self, start: int, stop: int) -> RowBlock:
        weights = None if self.weights is None else self.weights[start:stop]
        return RowBlock(self.features[start:stop], self.targets[start:stop], weights, start)
