"""Grid points against dense fits that leave a fold out."""

import numpy as np
import pytest

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.kernels import RBF, gram
from ridgestream.pipeline.metric.contest import KernelFamily
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.settings import MetricSettings
from ridgestream.pipeline.selection.starts.random_rows import draw_rows
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.row_set import ArrayRows
from ridgestream.pipeline.training.model_grid import FOLDS, GridPoint, GridSearch, Loss, best_and_simplest

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 2))
SETTINGS = MetricSettings(basis=40, random_seed=3)


def search(targets: Floats, target: TargetMap, *, classifies: bool, weights: Floats | None = None) -> GridSearch:
    rows = ArrayRows(X, targets, weights)
    family = KernelFamily(lambda gamma: RBF(gamma=gamma or 0.5), 2, chooses=False, given=(0.5,))

    def measured(metric: Metric | None) -> ArrayRows:
        return rows if metric is None else ArrayRows(metric.apply(X), targets, weights)

    return GridSearch(measured, family, SETTINGS, Loss(target, classifies), Silent())


def dense_outputs(targets: Floats, regularization: float, size: int, weights: Floats) -> Floats:
    kernel = RBF(gamma=0.5)
    vectors = draw_rows(ArrayRows(X, targets), kernel, 40, 3).vectors[:size]
    values, folds = kernel.block(X, vectors), deal_folds(0, len(X), FOLDS, 3)
    outputs = np.empty((len(X), targets.shape[1]))
    for fold in range(FOLDS):
        kept = np.flatnonzero(folds != fold)
        weighted = values[kept] * weights[kept, np.newaxis]
        normal = weighted.T @ values[kept] + regularization * weights[kept].sum() * gram(kernel, vectors)
        outputs[folds == fold] = values[folds == fold] @ np.linalg.solve(normal, weighted.T @ targets[kept])
    return outputs


def find(points: list[GridPoint], regularization: float, size: int) -> GridPoint:
    return next(p for p in points if (p.regularization, p.max_basis) == (regularization, size))


def test_the_error_of_a_regression_is_that_of_dense_fits_in_target_units() -> None:
    targets = np.column_stack([np.sin(X[:, 0]), X[:, 1]]) + 0.1 * RNG.normal(size=(len(X), 2))
    weights = RNG.integers(1, 4, len(X)).astype(float)
    points = list(
        search(targets, TargetMap((0.0, 1.0), (3.0, 0.5)), classifies=False, weights=weights).points("standardized")
    )
    for regularization, size in ((1e-3, 25), (1e-1, 40)):
        losses = ((dense_outputs(targets, regularization, size, weights) - targets) * [3.0, 0.5]) ** 2
        expected = np.average(losses.mean(axis=1), weights=weights)
        assert find(points, regularization, size).error == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("classes", [(), (1, 2, 3)], ids=["sign", "three classes"])
def test_the_error_of_classes_is_the_share_misclassified(classes: tuple[int, ...]) -> None:
    truth = np.digitize(X[:, 0], [-0.5, 0.5]) if classes else (X[:, 0] > 0).astype(int)
    labels = np.arange(3) if classes else np.array([1])
    targets: Floats = np.where(truth[:, np.newaxis] == labels, 1.0, -1.0)
    target = TargetMap.of_classes(classes)
    points = list(search(targets, target, classifies=True).points("standardized"))
    outputs = dense_outputs(targets, 1e-2, 40, np.ones(len(X)))
    predicted = outputs.argmax(axis=1) if classes else (outputs[:, 0] > 0).astype(int)
    assert find(points, 1e-2, 40).error == pytest.approx(np.mean(predicted != truth), abs=1e-12)


def test_the_simplest_is_the_smallest_within_a_standard_error_of_the_best() -> None:
    def point(size: int, error: float, metric: str = "full", regularization: float = 1e-3) -> GridPoint:
        return GridPoint(metric, 0.5, regularization, size, error, 0.1)  # type: ignore[arg-type]

    points = [
        point(100, 1.0),
        point(50, 1.05),
        point(50, 1.09, "diagonal"),
        point(25, 1.2),
        point(50, 1.08, "diagonal", 1e-2),
    ]
    best, simplest = best_and_simplest(points)
    assert (best.max_basis, best.error) == (100, 1.0)
    assert (simplest.max_basis, simplest.metric, simplest.regularization) == (50, "diagonal", 1e-2)
