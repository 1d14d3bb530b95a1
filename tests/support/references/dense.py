"""Dense LS-SVM, kernel ridge regression and Suykens' pruning straight from the papers: np.linalg.solve, refits."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from support.references.isls import Data, Expansion, rbf

from ridgestream.pipeline.sums.folds import deal_folds

Array = npt.NDArray[np.float64]


def solve_dense(data: Data, gamma: float, penalty: float, *, bias: bool) -> Expansion:
    """α and b of Suykens' system with p/wᵢ on the diagonal."""
    rows = len(data.X)
    omega = rbf(data.X, data.X, gamma) + penalty * np.diag(1 / data.w)
    if not bias:
        return Expansion(
            list(range(rows)), np.asarray(np.linalg.solve(omega, data.y), float), np.zeros(data.y.shape[1])
        )
    one = np.ones((rows, 1))
    system = np.block([[omega, one], [one.T, np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.vstack([data.y, np.zeros((1, data.y.shape[1]))]))
    return Expansion(list(range(rows)), solution[:-1], solution[-1])


def predict_dense(model: Expansion, training: Data, X: Array, gamma: float) -> Array:
    return np.asarray(rbf(X, training.X, gamma) @ model.beta + model.b)


def squared_error(model: Expansion, training: Data, held: Data, gamma: float) -> float:
    residuals = held.y - predict_dense(model, training, held.X, gamma)
    return float((held.w[:, np.newaxis] * residuals**2).sum())


def left_out_error(data: Data, gamma: float, regularization: float, *, bias: bool) -> float:
    """Mean squared error, refitting without each row in turn, at the penalty of all rows."""
    penalty, total = regularization * data.w.sum(), 0.0
    for row in range(len(data.X)):
        this = np.arange(len(data.X)) == row
        training = data.part(~this)
        total += squared_error(solve_dense(training, gamma, penalty, bias=bias), training, data.part(this), gamma)
    return total / float(data.w.sum() * data.y.shape[1])


def select(data: Data, gammas: Sequence[float], grid: Sequence[float], folds: int, seed: int) -> tuple[float, float]:
    """The width and λ of least error, by folds or, with none, row by row."""
    best = (np.inf, gammas[0], grid[0])
    for gamma in gammas:
        for regularization in grid:
            if folds:
                dealt, error = deal_folds(0, len(data.X), folds, seed), 0.0
                for fold in range(folds):
                    training = data.part(dealt != fold)
                    model = solve_dense(training, gamma, regularization * training.w.sum(), bias=True)
                    error += squared_error(model, training, data.part(dealt == fold), gamma)
            else:
                error = left_out_error(data, gamma, regularization, bias=True)
            if error < best[0]:
                best = (error, gamma, regularization)
    return best[1], best[2]


def prune_dense(
    data: Data, gammas: Sequence[float], grid: Sequence[float], sizes: Sequence[int], folds: int, seed: int
) -> list[tuple[list[int], Expansion, float, float]]:
    """Which rows are left, the model, its width and λ, at each size."""
    remaining = list(range(len(data.X)))
    path: list[tuple[list[int], Expansion, float, float]] = []
    gamma, regularization = gammas[0], grid[0]
    for size in sizes:
        if path:
            norms = np.linalg.norm(path[-1][1].beta, axis=1)
            dropped = sorted(range(len(remaining)), key=lambda i: norms[i])[: len(remaining) - size]
            remaining = [row for i, row in enumerate(remaining) if i not in dropped]
        part = Data(data.X[remaining], data.y[remaining], data.w[remaining])
        if len(remaining) > 2:
            gamma, regularization = select(part, gammas, grid, folds, seed)
        model = solve_dense(part, gamma, regularization * part.w.sum(), bias=True)
        path.append((remaining, model, gamma, regularization))
    return path
