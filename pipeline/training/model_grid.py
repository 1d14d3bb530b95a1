"""Models of a sample compared on a whole grid: every metric, γ, λ and size, by the errors on folds left out.

The models are expansions over random rows, as those of a pilot. Sums of a fold are subtracted from the total, the
models are fitted to the difference, and a second pass measures them on the fold's rows in the user's own terms: the
share misclassified, or the mean squared error in squared target units.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.features.one_vs_rest import winners_of
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.metric.contest import REGULARIZATIONS, KernelFamily
from ridgestream.pipeline.metric.learning import learn_metric
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.settings import STANDARDIZED, MetricName, MetricSettings
from ridgestream.pipeline.selection.nested_models import NestedModels
from ridgestream.pipeline.selection.starts.random_rows import draw_rows
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.normal_equations import FoldedStatistics, Summing
from ridgestream.pipeline.sums.row_block import RowBlock, drop_absent
from ridgestream.pipeline.sums.row_set import RowSet

FOLDS = 5
"""The number of folds."""

FITTED_SHARE = 1 - 1 / FOLDS
"""The share of the rows that a judged model is fitted to."""

SIZES = (25, 50, 100, 200, 300, 500, 700, 1_000)
"""The sizes that are compared, as far as there are rows."""


@dataclass(frozen=True)
class GridPoint:
    """The settings of a model, and its error."""

    metric: MetricName
    """standardized, diagonal or full."""
    gamma: float | None
    """The kernel's γ; None for a kernel without."""
    regularization: float
    """λ per row, for the rows of the folds that a model is fitted to."""
    max_basis: int
    """The number of vectors."""
    error: float
    """The share misclassified, or the mean squared error in squared target units, on folds left out."""
    standard_error: float
    """Its standard error, by the spread over the folds."""


@dataclass(frozen=True)
class Loss:
    """The loss of a row in the user's terms."""

    target: TargetMap
    """From the learner's outputs to the user's units."""
    classifies: bool
    """Whether the target is a class."""

    def of(self, outputs: Floats, targets: Floats) -> Floats:
        """Return the losses (rows, n_models) of outputs (rows, n_models, n_outputs) for targets (rows, n_outputs)."""
        if not self.classifies:
            errors = (outputs - targets[:, np.newaxis]) * np.array(self.target.scale)
            return np.asarray((errors**2).mean(axis=2))
        rows, n_models, n_outputs = outputs.shape
        scores = self.target.class_scores(outputs.reshape(rows * n_models, n_outputs))
        truth, predicted = _classes(self.target.class_scores(targets)), _classes(scores)
        return np.asarray(predicted.reshape(rows, n_models) != truth[:, np.newaxis], dtype=np.float64)


@dataclass(frozen=True)
class GridTask:
    """The models of one kernel and metric; the argument of a pass."""

    basis: Basis
    """The kernel and the vectors."""
    coefficients: tuple[Floats, ...]
    """The coefficients (n_functions, n_models, n_outputs) of the models fitted without each fold."""
    loss: Loss
    """The loss of a row."""
    seed: int
    """The seed with which rows are assigned to folds."""


@dataclass(frozen=True)
class FoldLosses:
    """Sums of losses by fold; a monoid under `merge`."""

    losses: Floats
    """Σ w·loss, shape (folds, n_models)."""
    weights: Floats
    """Σ w, shape (folds,)."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows."""
        return type(self)(self.losses + other.losses, self.weights + other.weights)

    def means(self) -> tuple[Floats, Floats]:
        """Return the mean loss of each model, and its standard error by the spread of the folds' means."""
        present = self.weights > 0
        weights, losses = self.weights[present], self.losses[present]
        means = losses.sum(axis=0) / weights.sum()
        spread = np.average((losses / weights[:, np.newaxis] - means) ** 2, axis=0, weights=weights)
        return means, np.sqrt(spread / max(len(weights) - 1, 1))


@named_pass("training", "sum_fold_losses")
def sum_fold_losses(task: GridTask, blocks: Iterable[RowBlock]) -> FoldLosses:
    """Return the losses of all models over the rows of all blocks, each row by the models without its fold.

    O(n_basis · (n_features + n_models · n_outputs)) a row.
    """
    n_models = task.coefficients[0].shape[1]
    losses, weights = np.zeros((FOLDS, n_models)), np.zeros(FOLDS)
    with one_blas_thread():
        for block in blocks:
            folds = deal_folds(block.first, len(block.features), FOLDS, task.seed)
            present = np.ones(len(folds), dtype=bool) if block.weights is None else block.weights > 0
            _add_losses(task, drop_absent(block), folds[present], losses, weights)
    return FoldLosses(losses, weights)


def _add_losses(task: GridTask, rows: RowBlock, folds: Integers, losses: Floats, weights: Floats) -> None:
    """Add the rows of a block, none of weight zero, to the sums of their folds."""
    for start in range(0, len(folds), task.basis.kernel_rows):
        part = slice(start, start + task.basis.kernel_rows)
        values, targets, fold_of = task.basis.values(rows.features[part]), rows.targets[part], folds[part]
        row_weights = np.ones(len(values)) if rows.weights is None else rows.weights[part]
        for fold, coefficients in enumerate(task.coefficients):
            chosen = np.flatnonzero(fold_of == fold)
            outputs = np.tensordot(values[chosen], coefficients, axes=1)
            losses[fold] += row_weights[chosen] @ task.loss.of(outputs, targets[chosen])
            weights[fold] += row_weights[chosen].sum()


@dataclass(frozen=True)
class GridSearch:
    """The sample, and what is compared on it."""

    rows: Callable[[Metric | None], RowSet]
    """Returns the sample's rows, measured by a metric; by None, standardized."""
    family: KernelFamily
    """The kernels."""
    settings: MetricSettings
    """How metrics are learned, and how many vectors are drawn."""
    loss: Loss
    """The loss of a row."""
    report: Reporter
    """Receives progress."""
    threads: int = 1
    """The threads that share solutions; no bit depends on it."""

    def points(self, form: MetricName) -> Iterator[GridPoint]:
        """Yield the error of every combination of γ, λ and size with one kind of metric.

        γ is compared around the best of the metric's pilot, and the grid widens while the best lies at its edge. About
        O(folds · n_regularizations · n_basis³) a γ, and two passes. Raises InputError if no row can be drawn.
        """
        rows, settings = self.rows(None), self.settings
        learned = learn_metric(rows, self.family, settings, self.report, form=form, threads=self.threads)
        rows = rows if form == STANDARDIZED else self.rows(learned.metric)
        wanted = self.family.around(learned.best.gamma) if learned.best else self.family.first_grid()
        judged: dict[float | None, float] = {}
        while wanted:
            for gamma in wanted:
                found = self._judge(rows, form, gamma)
                judged[gamma] = min((point.error for point in found), default=float("inf"))
                yield from found
            neighbour = self.family.neighbour(judged, min(judged, key=lambda gamma: judged[gamma]))
            wanted = () if neighbour is None else (neighbour,)

    def _judge(self, rows: RowSet, form: MetricName, gamma: float | None) -> list[GridPoint]:
        kernel, seed = self.family.make(gamma), self.settings.random_seed
        vectors = draw_rows(rows, kernel, min(self.settings.bounded_basis(rows.n_rows), SIZES[-1]), seed).vectors
        basis, sizes = Basis(kernel, vectors, np.zeros(rows.n_features)), _sizes(len(vectors))
        sums = rows.statistics([Summing(basis, rows.n_targets, FOLDS, seed)], events.STEP_METRIC_SUMS).parts[0]
        with one_blas_thread():
            fitted = {r: _fit_folds(sums, basis.penalty(), r, sizes) for r in REGULARIZATIONS}
        known = {r: folds for r, folds in fitted.items() if folds is not None}
        if not known:
            return []
        coefficients = tuple(np.concatenate(fold, axis=1) for fold in zip(*known.values(), strict=True))
        task = GridTask(basis, coefficients, self.loss, seed)
        means, errors = rows.reduce(sum_fold_losses, task, events.STEP_CROSS_VALIDATE).means()
        models = [(regularization, size) for regularization in known for size in sizes]
        each = zip(models, means.tolist(), errors.tolist(), strict=True)
        return [GridPoint(form, gamma, r, size, mean, error) for (r, size), mean, error in each]


def best_and_simplest(points: Sequence[GridPoint]) -> tuple[GridPoint, GridPoint]:
    """Return the point of least error, and the simplest within one standard error of it.

    Simpler is a smaller dictionary, then standardized before diagonal before full, then a larger λ and a smaller γ.
    """
    best = min(points, key=lambda point: point.error)
    near = [point for point in points if point.error <= best.error + best.standard_error]
    order = ("standardized", "diagonal", "full")
    return best, min(near, key=lambda p: (p.max_basis, order.index(p.metric), -p.regularization, p.gamma or 0.0))


def _fit_folds(
    sums: FoldedStatistics, penalty: Floats, regularization: float, sizes: Sequence[int]
) -> list[Floats] | None:
    """Return the coefficients (n_functions, n_sizes, n_outputs) of each fold; None where P is not positive definite."""
    total, folds = sums.total(), []
    for fold in sums.folds:
        try:
            models = NestedModels.of(total.subtract(fold), penalty, regularization)
        except NumericalBreakdown:
            return None
        coefficients = np.zeros((len(models), len(sizes), total.rhs.shape[1]))
        for index, size in enumerate(sizes):
            coefficients[:size, index] = models.coefficients(size)
        folds.append(coefficients)
    return folds


def _sizes(n_basis: int) -> list[int]:
    return [*(size for size in SIZES if size < n_basis), n_basis]


def _classes(scores: Floats) -> Integers:
    return winners_of(scores if scores.shape[1] > 1 else np.hstack([-scores, scores]))
