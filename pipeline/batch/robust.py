"""Robust fits: rows that are far off count less, by weights from their residuals, in one fit or several.

Paper: Suykens, De Brabanter, Lukas & Vandewalle (2002), "Weighted least squares support vector machines: robustness and
sparse approximation". With e the residuals of a fit and ŝ = IQR(e)/(2·0.6745) their robust scale, the next fit weighs a
row by

    v = 1 where |e/ŝ| ≤ 2.5,  (3 − |e/ŝ|)/(3 − 2.5) up to 3,  10⁻⁴ beyond,

and again from the residuals of that fit. Cawley & Talbot (2002) name the same for ISLS-SVM.

Departures. v multiplies the weights of the rows, and so counts in λn, and where models are compared: each fit chooses
λ and size again. ŝ is read from a histogram of the residuals, which merges, and is within a bin of the exact one. With
several targets, the one that is farthest off decides.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Self, TypeVar

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.events import STEP_SUM_RESIDUALS
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.base.settings import Count
from ridgestream.pipeline.batch.method import FitTask, Method, PassPlan, PlanTask
from ridgestream.pipeline.batch.reweighted_rows import ReweightedRows
from ridgestream.pipeline.batch.shared_settings import MethodSettings
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.error_histogram import ErrorHistogram
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import RowSet

FULL, NONE, LEAST = 2.5, 3.0, 1e-4
"""Rows within FULL scales of the model count in full, rows beyond NONE with the weight LEAST."""

_NORMAL_QUARTILE = 0.6745
"""The upper quartile of the standard normal distribution."""

Settings = TypeVar("Settings", bound="RobustSettings")


@dataclass(frozen=True, kw_only=True)
class RobustSettings(MethodSettings):
    """A method that can be fitted again with weights from its residuals."""

    reweightings: Count | None = None
    """How often the model is fitted again with rows that are far off counting less; by default never."""


@dataclass(frozen=True)
class Model:
    """A model whose residuals are asked for."""

    basis: Basis
    """Its functions."""
    coefficients: Floats
    """Shape (n_functions, n_targets)."""

    def residuals(self, block: RowBlock) -> Floats:
        """Return y − f of the rows, shape (rows, n_targets)."""
        return block.targets - self.basis.outputs(block.features, self.coefficients)


@dataclass(frozen=True)
class Residuals:
    """Histograms of the residuals of each target; a monoid under `merge`."""

    targets: tuple[ErrorHistogram, ...]
    """One a target."""

    def merge(self, other: Self) -> Self:
        """Return the histograms of both sets of rows."""
        return type(self)(tuple(a.merge(b) for a, b in zip(self.targets, other.targets, strict=True)))

    def scales(self) -> Floats:
        """Return ŝ of each target, shape (n_targets,)."""
        quartiles = [(each.quantile(0.25), each.quantile(0.75)) for each in self.targets]
        return np.array([upper - lower for lower, upper in quartiles]) / (2 * _NORMAL_QUARTILE)


@named_pass("ridgestream.pipeline.batch.robust", "sum_residuals")
def sum_residuals(model: Model, blocks: Iterable[RowBlock]) -> Residuals:
    """Return the histograms of the residuals over the rows of all blocks."""
    sums = Residuals(tuple(ErrorHistogram() for _ in range(model.coefficients.shape[1])))
    for block in blocks:
        columns = model.residuals(block).T
        sums = sums.merge(Residuals(tuple(ErrorHistogram.of(column, block.weights) for column in columns)))
    return sums


@dataclass(frozen=True)
class Reweighting:
    """Weights from the residuals of a model."""

    model: Model
    """The model."""
    scales: Floats
    """ŝ of each target, shape (n_targets,)."""

    @classmethod
    def of(cls, rows: RowSet, fitted: Fitted) -> Self:
        """Return the weights for the next fit; one pass of O(n_basis·n_features) a row."""
        model = Model(fitted.basis, fitted.coefficients)
        return cls(model, rows.reduce(sum_residuals, model, STEP_SUM_RESIDUALS).scales())

    def apply(self, block: RowBlock, numbers: Integers) -> RowBlock:  # noqa: ARG002
        """Return the rows with weights times v; where all residuals are equal, as they were."""
        scales = np.where(self.scales > 0, self.scales, np.inf)
        distances = np.abs(self.model.residuals(block) / scales).max(axis=1)
        factors = np.clip((NONE - distances) / (NONE - FULL), LEAST, 1.0)
        return replace(block, weights=factors if block.weights is None else block.weights * factors)


def robust(method: Method[Settings]) -> Method[Settings]:
    """Return the method with as many further fits as its settings ask for."""
    return replace(method, fit=partial(_fit, method), passes=partial(_passes, method))


def _fit(method: Method[Settings], task: FitTask[Settings]) -> Fitted:
    fitted = method.fit(task)
    for _ in range(task.settings.reweightings or 0):
        fitted = method.fit(replace(task, rows=ReweightedRows(task.rows, Reweighting.of(task.rows, fitted))))
    return fitted


def _passes(method: Method[Settings], task: PlanTask[Settings]) -> Iterator[PassPlan]:
    yield from method.passes(task)
    for _ in range(task.settings.reweightings or 0):
        yield PassPlan(method.sizes(task).n_functions, 0)
        yield from method.passes(task)
