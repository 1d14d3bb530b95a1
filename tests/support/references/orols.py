"""OROLS the slow way, one machine: every column explicit, Gram–Schmidt done twice, weights as rows repeated in part."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

Array = npt.NDArray[np.float64]


@dataclass
class DenseMachine:
    """What a machine chooses, by the columns of the full kernel matrix."""

    K: Array
    """(rows, rows)."""
    y: Array
    """(rows,)."""
    w: Array
    """(rows,)."""
    tolerance: float
    patience: int
    max_basis: int = 10**6
    condition_limit: float = 1e5
    chosen: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    penalties: list[float] = field(default_factory=list)
    gcv: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    """By how much each choice led over the next row, as a share of its residual."""

    def run(self) -> "DenseMachine":
        """Choose until a rule stops it."""
        n, one = self.w.sum(), np.ones_like(self.y)
        self.columns = [one]
        self.q = [np.sqrt(self.w) * one]
        self.penalties, tries = [0.0], 0
        scale = np.sqrt(self.w @ self.y**2 / n)
        while len(self.chosen) < self.max_basis and len(self.q) + 1 < n and tries < 10:
            e = np.abs(self.residual())
            e[(self.w == 0) | np.isin(np.arange(len(e)), self.chosen + self.refused)] = -1
            if e.max() < 0:
                break
            i = int(np.flatnonzero(e >= e.max() - 1e-10 * scale)[0])
            column, q = self.K[i], np.sqrt(self.w) * self.K[i]
            square = q @ q
            for _ in range(2):
                for other in self.q:
                    q = q - other * (other @ q) / (other @ other)
            lengths = [other @ other for other in [*self.q, q]]
            if lengths[-1] <= 1e-10 * square or np.sqrt(max(lengths) / min(lengths)) > self.condition_limit:
                self.refused.append(i)
                tries += not any(
                    (self.K[i] == other).all() for other in [*self.columns[1:], *self.K[self.refused[:-1]]]
                )
                continue
            tries = 0
            largest = e[i]
            rest = np.sort(np.delete(e, i))
            self.margins.append(float((largest - rest[-1]) / scale) if len(rest) and rest[-1] >= 0 else 1.0)
            self.chosen.append(i)
            self.columns.append(column)
            self.q.append(q)
            self.estimate()
            last = np.array(self.penalties[-self.patience - 1 :])
            still = np.abs(np.diff(last)) <= self.tolerance * last[1:]
            is_least = self.gcv[-1] < min(self.gcv[:-1], default=np.inf)
            if largest <= 1e-10 * scale or (is_least and len(still) == self.patience and still.all()):
                break
            if min(self.gcv[-2 * self.patience :]) >= min(self.gcv[: -2 * self.patience], default=np.inf):
                break
        return self.at_least_gcv()

    def at_least_gcv(self) -> "DenseMachine":
        """Go back to the model with the least GCV of those that were passed."""
        if self.chosen:
            size = int(np.argmin(self.gcv)) + 1
            self.chosen, self.gcv = self.chosen[:size], self.gcv[:size]
            self.columns, self.q, self.penalties = (
                self.columns[: size + 1],
                self.q[: size + 1],
                self.penalties[: size + 1],
            )
        return self

    def coefficients(self) -> Array:
        """Return α by (25) and (26), the bias first."""
        Q, K = np.column_stack(self.q), np.sqrt(self.w)[:, None] * np.column_stack(self.columns)
        s = np.sum(Q**2, axis=0)
        U = (Q / s).T @ K
        return np.asarray(np.linalg.solve(np.triu(U), Q.T @ (np.sqrt(self.w) * self.y) / (self.penalties[-1] + s)))

    def residual(self) -> Array:
        return np.asarray(self.y - np.column_stack(self.columns) @ self.coefficients())

    def estimate(self) -> None:
        """Take the λ of least GCV (27): the best of a grid, refined to where a derivative by complex steps is zero."""
        Q, y, n = np.column_stack(self.q), np.sqrt(self.w) * self.y, self.w.sum()
        s, along = np.sum(Q**2, axis=0)[:, np.newaxis], (Q.T @ y)[:, np.newaxis]

        def gcv(penalties: npt.NDArray[Any]) -> npt.NDArray[Any]:
            left = y[:, np.newaxis] - Q @ (along / (penalties + s))  # P̃y of (23)
            return np.asarray(n * np.sum(left**2, axis=0) / (n - np.sum(s / (penalties + s), axis=0)) ** 2)

        def slope(log_penalty: float) -> float:
            return float(gcv(np.exp([log_penalty + 1e-30j]))[0].imag)

        grid = np.geomspace(1e-6 * s.min(), 1e6 * s.max(), 100)
        best, penalties = int(np.argmin(gcv(grid))), [0.0, float(grid[-1])]
        if 0 < best < len(grid) - 1:
            low, middle, high = np.log(grid[best - 1 : best + 2])
            side = (low, middle) if slope(middle) >= 0 else (middle, high)
            penalties.insert(1, float(np.exp(brentq(slope, *side, xtol=1e-14, rtol=1e-14))))
        values = gcv(np.array(penalties))
        self.penalties.append(penalties[int(np.argmin(values))])
        self.gcv.append(float(values.min()))
