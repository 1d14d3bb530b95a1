"""ISLS-SVM and subset of regressors straight from the paper: kernel values of all rows, np.linalg.solve, loops."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from ridgestream.pipeline.sums.folds import deal_folds

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """Rows in memory."""

    X: Array
    """(rows, n_features)."""
    y: Array
    """(rows, n_targets)."""
    w: Array
    """(rows,)."""

    def part(self, which: npt.NDArray[np.bool_]) -> "Data":
        return Data(self.X[which], self.y[which], self.w[which])


@dataclass(frozen=True)
class Expansion:
    """Σ βᵢ k(xᵢ, x) + b over dictionary vectors."""

    chosen: list[int]
    """Which vectors of the dictionary."""
    beta: Array
    """(n_chosen, n_targets)."""
    b: Array
    """(n_targets,)."""
    margin: float = np.inf
    """The least gap, relative, between a norm that was dropped and one that stayed on the way here."""


def rbf(X: Array, Z: Array, gamma: float) -> Array:
    return np.asarray(np.exp(-gamma * cdist(X, Z, "sqeuclidean")))


def solve_bordered(data: Data, S: Array, gamma: float, regularization: float, *, bias: bool) -> tuple[Array, Array]:
    """β and b of the paper's system; ℓ/(2γ) is λ Σ w."""
    K, n = rbf(data.X, S, gamma), data.w.sum()
    w = data.w[:, np.newaxis]
    omega = regularization * n * rbf(S, S, gamma) + K.T @ (w * K)
    c = K.T @ (w * data.y)
    if not bias:
        return np.linalg.solve(omega, c), np.zeros(data.y.shape[1])
    phi = (w * K).sum(axis=0)
    system = np.block([[omega, phi[:, np.newaxis]], [phi[np.newaxis], np.array([[n]])]])
    solution = np.linalg.solve(system, np.vstack([c, (w * data.y).sum(axis=0)]))
    return solution[:-1], solution[-1]


def cost(data: Data, S: Array, gamma: float, regularization: float, *, bias: bool) -> float:
    """Σ w(y − f)² + λn βᵀKβ at its least, over all targets."""
    beta, b = solve_bordered(data, S, gamma, regularization, bias=bias)
    residuals = data.y - rbf(data.X, S, gamma) @ beta - b
    roughness = float(np.trace(beta.T @ rbf(S, S, gamma) @ beta))
    return float((data.w[:, np.newaxis] * residuals**2).sum()) + regularization * float(data.w.sum()) * roughness


def prune(
    data: Data,
    S: Array,
    gamma: float,
    regularization: float,
    sizes: Sequence[int],
    *,
    bias: bool = True,
    score: str = "coefficient",
) -> list[Expansion]:
    """The model of each size, each pruned from the one before: by |β|, or by the cost of refitting without a vector."""
    chosen, margin = list(range(len(S))), np.inf
    path: list[Expansion] = []
    for size in sizes:
        if size < len(chosen):
            norms = np.sqrt((path[-1].beta ** 2).sum(axis=1))
            if score == "cost":
                without = [[c for c in chosen if c != vector] for vector in chosen]
                norms = np.array([cost(data, S[left], gamma, regularization, bias=bias) for left in without])
                norms -= cost(data, S[chosen], gamma, regularization, bias=bias)
            ranked = sorted(range(len(chosen)), key=lambda i: norms[i])
            dropped = ranked[: len(chosen) - size]
            first_stays = norms[ranked[len(dropped)]]
            margin = min(margin, float((first_stays - norms[dropped[-1]]) / first_stays))
            chosen = [vector for i, vector in enumerate(chosen) if i not in dropped]
        beta, b = solve_bordered(data, S[chosen], gamma, regularization, bias=bias)
        path.append(Expansion(chosen, beta, b, margin))
    return path


def predict(model: Expansion, S: Array, X: Array, gamma: float) -> Array:
    return np.asarray(rbf(X, S[model.chosen], gamma) @ model.beta + model.b)


def fold_errors(
    data: Data,
    S: Array,
    gamma: float,
    regularization: float,
    sizes: Sequence[int],
    folds: int,
    seed: int,
    *,
    bias: bool,
    score: str = "coefficient",
) -> tuple[Array, float]:
    """Mean squared error by refitting on the rows of the other folds, of each size; and the least margin."""
    dealt, total, margin = deal_folds(0, len(data.X), folds, seed), np.zeros(len(sizes)), np.inf
    for fold in range(folds):
        held = data.part(dealt == fold)
        path = prune(data.part(dealt != fold), S, gamma, regularization, sizes, bias=bias, score=score)
        margin = min(margin, path[-1].margin)
        for i, model in enumerate(path):
            residual = held.y - predict(model, S, held.X, gamma)
            total[i] += float((held.w[:, np.newaxis] * residual**2).sum())
    return total / (data.w.sum() * data.y.shape[1]), margin
