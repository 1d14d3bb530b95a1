"""The sums of a pilot's rows, group by group, for several kernels at once, from one pass."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Self

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import GROUPS, Split
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, PackedStatistics, SumAccumulator
from ridgestream.pipeline.sums.row_block import RowBlock

SMALL_BYTES = 24 * 2**20
"""Sums of a group that take no more are formed together with those of the others, from one read of the rows."""

GroupSums = tuple[PackedStatistics, ...]
"""The sums over the rows of each group."""


@dataclass(frozen=True)
class JudgedSumming:
    """The sums to form; the argument of a pass."""

    metric: Metric
    """R."""
    bases: tuple[Basis, ...]
    """The same vectors, R applied, with each kernel."""
    split: Split
    """The groups of the rows."""
    n_targets: int
    """The number of targets."""
    summed: tuple[int, ...] = tuple(range(GROUPS))
    """The groups whose rows are summed."""

    def shares(self, count: int) -> tuple[Self, ...]:
        """Return the sums of each group by themselves, for workers to form at once, or for one process, if large."""
        is_large = sum(8 * basis.n_functions**2 for basis in self.bases) > SMALL_BYTES
        return tuple(replace(self, summed=(group,)) for group in self.summed) if count > 1 or is_large else (self,)

    def accumulators(self) -> list[SumAccumulator]:
        """Return what adds up the sums of one group with each basis."""
        return [SumAccumulator(basis.n_functions, self.n_targets) for basis in self.bases]

    def by_basis(self, sums: "JudgedSums") -> Iterator[GroupSums]:
        """Yield the sums of all groups with each basis."""
        for index, basis in enumerate(self.bases):
            yield tuple(group[index] if group else self._nothing(basis) for group in sums.groups)

    def _nothing(self, basis: Basis) -> PackedStatistics:
        return BlockStatistics.empty(basis.n_functions, self.n_targets).packed()


@dataclass(frozen=True)
class JudgedSums:
    """The sums of some groups."""

    groups: tuple[tuple[PackedStatistics, ...], ...]
    """The sums of each group's rows with each basis; nothing for a group without rows."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows, group by group."""
        return type(self)(tuple(map(_merge, self.groups, other.groups)))


def _merge(group: tuple[PackedStatistics, ...], other: tuple[PackedStatistics, ...]) -> tuple[PackedStatistics, ...]:
    return tuple(map(PackedStatistics.merge, group, other)) if group and other else group or other


@named_pass("metric", "sum_judged_packed")
def sum_judged(summing: JudgedSumming, blocks: Iterable[RowBlock]) -> JudgedSums:
    """Return each basis's sums of every group, over the rows of all blocks; O(n_basis² + n_basis·n_features) a row."""
    sums: list[list[SumAccumulator]] = [[] for _ in range(GROUPS)]
    with one_blas_thread():
        for group, rows in chain.from_iterable(map(summing.split.parts, blocks)):
            if group in summing.summed:
                sums[group] = sums[group] or summing.accumulators()
                _add(summing, rows, sums[group])
        return JudgedSums(tuple(tuple(_packed(group)) for group in sums))


def _packed(accumulators: list[SumAccumulator]) -> Iterator[PackedStatistics]:
    """Yield the sums of each accumulator, which is let go."""
    while accumulators:
        yield accumulators.pop(0).packed()


def _add(summing: JudgedSumming, rows: RowBlock, sums: Sequence[SumAccumulator]) -> None:
    """Add rows of one group to each basis's sums."""
    features: Floats = summing.metric.apply(rows.features)
    for basis, accumulator in zip(summing.bases, sums, strict=True):
        accumulator.rows += len(features)
        work = basis.work(len(features))
        for start in range(0, len(features), basis.kernel_rows):
            part = slice(start, start + basis.kernel_rows)
            weights = None if rows.weights is None else rows.weights[part]
            accumulator.add(basis.values(features[part], work), rows.targets[part], weights)
