"""Two models compared on the same judged rows, row by row, so that a difference has a standard error."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import JUDGES, Split
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_block import RowBlock

FEWEST_MISTAKES = 10
"""With fewer rows misclassified among those that judge, no model can be seen to be better by a third."""


@dataclass(frozen=True)
class JudgedModel:
    """One model, fitted once without each judged group."""

    metric: Metric
    """R."""
    basis: Basis
    """The kernel and the basis vectors, R applied."""
    coefficients: tuple[Floats, ...]
    """β (n_basis, n_targets) of the fit without each group of JUDGES."""

    def outputs(self, rows: RowBlock, judge: int) -> Floats:
        """Return what the fit without the judge's group predicts, (rows, n_targets)."""
        return self.basis.outputs(self.metric.apply(rows.features), self.coefficients[judge])


@dataclass(frozen=True)
class Comparison:
    """The models to compare; the argument of a pass."""

    before: JudgedModel
    """The model to be improved on."""
    after: JudgedModel
    """The other one."""
    split: Split
    """The groups of the rows."""


@dataclass(frozen=True)
class Differences:
    """Sums over judged rows; a monoid under `merge`."""

    sums: Floats
    """Σw, Σwδ, Σw², Σw²δ and Σw²δ², with weights w and differences δ of squared errors, of the last rows and of those
    left out at random, shape (2, 5).
    """
    mistakes: int = 0
    """The number of rows whose class the model to be improved on gets wrong."""
    numbers: int = 0
    """The number of rows whose targets are numbers; those of classes are ±1."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows."""
        return type(self)(self.sums + other.sums, self.mistakes + other.mistakes, self.numbers + other.numbers)

    @property
    def later(self) -> tuple[float, float]:
        """The mean difference on the last rows, and its standard error."""
        return _mean_and_error(self.sums[0])

    @property
    def pooled(self) -> tuple[float, float]:
        """The mean difference on all judged rows, and its standard error."""
        return _mean_and_error(self.sums.sum(axis=0))

    @property
    def is_improvement(self) -> bool:
        """Whether the error fell by more than its uncertainty, and not by the rows left out at random alone.

        Of classes, only if there are mistakes enough to be improved on: squared errors fall with sharper outputs, too,
        which tell the classes apart no better.
        """
        if not self.numbers and self.mistakes < FEWEST_MISTAKES:
            return False
        (mean, error), (later, later_error) = self.pooled, self.later
        return mean < -error and later <= later_error


@named_pass("metric", "compare_models")
def compare_models(comparison: Comparison, blocks: Iterable[RowBlock]) -> Differences:
    """Return the differences of two models over the judged rows of all blocks; O(n_basis·n_features) a row."""
    sums, mistakes, numbers = np.zeros((len(JUDGES), 5)), 0, 0
    with one_blas_thread():
        for group, rows in chain.from_iterable(map(comparison.split.parts, blocks)):
            if group not in JUDGES:
                continue
            judge = JUDGES.index(group)
            before, after = (model.outputs(rows, judge) for model in (comparison.before, comparison.after))
            delta = np.sum((rows.targets - after) ** 2, axis=1) - np.sum((rows.targets - before) ** 2, axis=1)
            mistakes += int(np.count_nonzero(_classes(before) != _classes(rows.targets)))
            numbers += int(np.count_nonzero(np.any(np.abs(rows.targets) != 1.0, axis=1)))
            weights = np.ones(len(delta)) if rows.weights is None else rows.weights
            powers = (weights, weights * delta, weights**2, weights**2 * delta, weights**2 * delta**2)
            sums[judge] += [float(np.sum(power)) for power in powers]
    return Differences(sums, mistakes, numbers)


def _classes(outputs: Floats) -> Integers:
    """Return the class of each row of ±1 targets, or of outputs for them."""
    return np.asarray(outputs[:, 0] > 0 if outputs.shape[1] == 1 else np.argmax(outputs, axis=1), dtype=np.int64)


def _mean_and_error(sums: Floats) -> tuple[float, float]:
    weight, first, squares, mixed, second = sums.tolist()
    if weight <= 0:
        return 0.0, 0.0
    mean = first / weight
    return mean, float(np.sqrt(max(second - 2 * mean * mixed + mean**2 * squares, 0.0)) / weight)
