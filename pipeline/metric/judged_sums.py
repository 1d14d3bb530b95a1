"""The sums of a pilot's rows, group by group, for several kernels at once, from one pass."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import GROUPS, Split
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import (
    FoldedStatistics,
    SeveralStatistics,
    SumAccumulator,
)
from ridgestream.pipeline.sums.row_block import RowBlock


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


@named_pass("metric", "sum_judged")
def sum_judged(summing: JudgedSumming, blocks: Iterable[RowBlock]) -> SeveralStatistics:
    """Return each basis's sums of every group, over the rows of all blocks; O(n_basis² + n_basis·n_features) a row."""
    sums = [[SumAccumulator(basis.n_functions, summing.n_targets) for _ in range(GROUPS)] for basis in summing.bases]
    with one_blas_thread():
        for group, rows in chain.from_iterable(map(summing.split.parts, blocks)):
            _add(summing, rows, [each[group] for each in sums])
        return SeveralStatistics(tuple(FoldedStatistics(tuple(s.statistics() for s in each)) for each in sums))


def _add(summing: JudgedSumming, rows: RowBlock, sums: "list[SumAccumulator]") -> None:
    """Add rows of one group to each basis's sums."""
    features: Floats = summing.metric.apply(rows.features)
    for basis, accumulator in zip(summing.bases, sums, strict=True):
        accumulator.rows += len(features)
        for start in range(0, len(features), basis.kernel_rows):
            part = slice(start, start + basis.kernel_rows)
            weights = None if rows.weights is None else rows.weights[part]
            accumulator.add(basis.values(features[part]), rows.targets[part], weights)
