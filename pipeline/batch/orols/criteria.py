"""What λ and the number of vectors are judged by, from the orthogonal columns of a model alone.

λ is that of least generalized cross-validation (27), by default, or of the largest evidence (MacKay 1992), or the
re-estimation (30) of the one before, one step as published. The evidence is that of y ~ N(0, σ²(I + QQᵀ/λ)) with the
σ² that maximizes it; where its derivative is zero, λ is MacKay's g/(M − g)·‖y − Qα̃‖²/‖α̃‖² with g = Σ s/(λ + s).

The number of vectors is that of least GCV, by default; of the least Bayesian information criterion (Schwarz 1978), with
g for the number of parameters; or of the least description length, gMDL of Hansen & Yu (2001), "Model selection and the
principle of minimum description length".
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats

RegularizationRule = Literal["gcv", "evidence", "re-estimation"]
"""The name of a way to find λ of each step."""

SizeRule = Literal["gcv", "bic", "mdl", "cv", "stationary"]
"""The name of a way to find the number of vectors."""

SMALLEST_SHARE, LARGEST_SHARE = 1e-6, 1e6
"""λ other than zero lies between these shares of the smallest and the largest squared length of a column: below, the
model is practically that of λ = 0, and above it is practically zero."""

GRID_A_DECADE = 4
"""Values of λ per power of ten between which minima are sought; s/(λ + s) falls over two powers of ten."""

BISECTIONS = 18
"""Halvings of a grid step of log λ; the slope is linear in what is left of it, but for a share below 1e-10."""

_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Directions:
    """The target along the orthogonal columns of a model."""

    lengths: Floats
    """s, shape (m,)."""
    along: Floats
    """qᵀy/√s, shape (m,)."""
    square: float
    """yᵀy."""
    weight: float
    """M, above m, so that the trace of P̃ is above zero."""

    @property
    def beyond(self) -> float:
        """The part of yᵀy that no λ explains."""
        return max(self.square - float(np.sum(self.along**2)), 0.0)

    def shrinkage(self, penalties: Floats) -> Floats:
        """Return λ/(λ + s), shape (n_penalties, m): what P̃ leaves of each direction."""
        return np.asarray(penalties[:, np.newaxis] / (penalties[:, np.newaxis] + self.lengths))

    def error(self, shrinkage: Floats) -> Floats:
        """Return yᵀP̃²y = ‖y − Qα̃‖² of each λ."""
        return self.beyond + shrinkage**2 @ self.along**2

    def trace(self, shrinkage: Floats) -> Floats:
        """Return the trace of P̃ of each λ."""
        return np.asarray(self.weight - (1 - shrinkage).sum(axis=-1))

    def at(self, penalty: float) -> tuple[float, float]:
        """Return ‖y − Qα̃‖² and the number of parameters g = M − tr P̃ of one λ."""
        shrinkage = self.shrinkage(np.array([penalty]))
        return float(self.error(shrinkage)[0]), self.weight - float(self.trace(shrinkage)[0])


class Criterion(Directions, ABC):
    """A criterion of one model as a function of λ; each value costs O(m)."""

    def least(self) -> tuple[float, float]:
        """Return the λ of the least value, with that value: an end of the range, or the best of the minima between."""
        low, high = SMALLEST_SHARE * float(self.lengths.min()), LARGEST_SHARE * float(self.lengths.max())
        grid = np.geomspace(low, high, 2 + round(GRID_A_DECADE * np.log10(high / low)))
        penalties = np.array([self._least_penalty(low), *self._minima(grid), high])
        values = self.values(penalties)
        best = int(np.argmin(values))
        return float(penalties[best]), float(values[best])

    @abstractmethod
    def values(self, penalties: Floats) -> Floats:
        """Return the criterion at each λ."""

    @abstractmethod
    def slopes(self, penalties: Floats) -> Floats:
        """Return the sign of its derivative at each λ, times a positive number."""

    @abstractmethod
    def _least_penalty(self, low: float) -> float:
        """Return the λ below the grid, which begins at `low`."""

    def _minima(self, grid: Floats) -> Floats:
        """Return every λ at which the criterion turns from falling to rising between values of the grid."""
        falls = self.slopes(grid) < 0
        turns = np.flatnonzero(falls[:-1] & ~falls[1:])
        low, high = np.log(grid[turns]), np.log(grid[turns + 1])
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            falls = self.slopes(np.exp(middle)) < 0
            low, high = np.where(falls, middle, low), np.where(falls, high, middle)
        below, above = self.slopes(np.exp(low)), self.slopes(np.exp(high))
        return np.asarray(np.exp(low + (high - low) * below / (below - above)))


class CrossValidation(Criterion):
    """Generalized cross-validation (27)."""

    def values(self, penalties: Floats) -> Floats:
        """Return GCV at each λ."""
        shrinkage = self.shrinkage(penalties)
        return np.asarray(self.weight * self.error(shrinkage) / self.trace(shrinkage) ** 2)

    def slopes(self, penalties: Floats) -> Floats:
        """Return at each λ the left side of (28) less the right one, times λ."""
        shrinkage = self.shrinkage(penalties)
        falling = shrinkage * (1 - shrinkage)
        explained = (falling * shrinkage) @ self.along**2 * self.trace(shrinkage)
        return np.asarray(explained - falling.sum(axis=-1) * self.error(shrinkage))

    def _least_penalty(self, low: float) -> float:  # noqa: ARG002
        return 0.0


class Evidence(Criterion):
    """−2 times the logarithm of the evidence, but for a constant: M log yᵀP̃y + Σ log(1 + s/λ)."""

    def values(self, penalties: Floats) -> Floats:
        """Return it at each λ above zero."""
        determinants = np.log1p(self.lengths / penalties[:, np.newaxis]).sum(axis=1)
        return np.asarray(self.weight * np.log(np.maximum(self._cost(penalties), _TINY)) + determinants)

    def slopes(self, penalties: Floats) -> Floats:
        """Return at each λ its derivative by log λ, times yᵀP̃y."""
        shrinkage = self.shrinkage(penalties)
        moved = (shrinkage * (1 - shrinkage)) @ self.along**2
        return np.asarray(self.weight * moved - (1 - shrinkage).sum(axis=-1) * self._cost(penalties))

    def _cost(self, penalties: Floats) -> Floats:
        """Return yᵀP̃y = ‖y − Qα̃‖² + λ‖α̃‖² of each λ."""
        return np.asarray(self.beyond + self.shrinkage(penalties) @ self.along**2)

    def _least_penalty(self, low: float) -> float:
        return low


def least_gcv(model: Directions, before: float) -> float:  # noqa: ARG001
    """Return the λ of least GCV."""
    return CrossValidation(**vars(model)).least()[0]


def largest_evidence(model: Directions, before: float) -> float:  # noqa: ARG001
    """Return the λ of the largest evidence."""
    return Evidence(**vars(model)).least()[0]


def re_estimated(model: Directions, before: float) -> float:
    """Return λ by (30) from the one before, no larger than the range allows; the largest one where nothing is fitted.

    With r = λ/(λ + s), α̃ = (1 − r)·(qᵀy/s), and α̃ᵀ(QᵀQ + λI)⁻¹α̃ = Σ (1 − r)²(qᵀy)²/s²/(λ + s).
    """
    left = model.shrinkage(np.array([before]))[0]
    kept = 1 - left
    error, parameters = model.at(before)
    falling = float(np.sum(kept**2 / model.lengths))
    bent = float(np.sum(kept**3 * model.along**2 / model.lengths**2))
    largest = LARGEST_SHARE * float(model.lengths.max())
    numerator, denominator = falling * error, (model.weight - parameters) * bent
    return numerator / denominator if numerator < largest * denominator else largest


def gcv(model: Directions, penalty: float) -> float:
    """Return GCV (27)."""
    return float(CrossValidation(**vars(model)).values(np.array([penalty]))[0])


def bic(model: Directions, penalty: float) -> float:
    """Return M log(‖y − Qα̃‖²/M) + g log M."""
    error, parameters = model.at(penalty)
    return model.weight * float(np.log(max(error / model.weight, _TINY))) + parameters * float(np.log(model.weight))


def mdl(model: Directions, penalty: float) -> float:
    """Return gMDL: with S = ‖y − Qα̃‖²/(M − g), M/2 log S + g/2 log((yᵀy − ‖y − Qα̃‖²)/(gS)) + log M.

    Where less than the share g/M of yᵀy is explained, it is that of no model, M/2 log(yᵀy/M) + log(M)/2.
    """
    n, (error, g) = model.weight, model.at(penalty)
    if model.square - error <= g / n * model.square:
        return n / 2 * float(np.log(max(model.square / n, _TINY))) + float(np.log(n)) / 2
    noise = max(error / (n - g), _TINY)
    signal = (model.square - error) / max(g, _TINY)
    return n / 2 * float(np.log(noise)) + g / 2 * float(np.log(signal / noise)) + float(np.log(n))


PENALTIES: dict[RegularizationRule, Callable[[Directions, float], float]] = {
    "gcv": least_gcv,
    "evidence": largest_evidence,
    "re-estimation": re_estimated,
}
"""λ of a step, from its model and the λ of the step before."""

SCORES: dict[SizeRule, Callable[[Directions, float], float]] = {
    "gcv": gcv,
    "bic": bic,
    "mdl": mdl,
    "cv": gcv,
    "stationary": gcv,
}
"""The score of a step on its path, from its model and λ; with "cv" and "stationary" it is only reported."""

SCORE_NAMES: dict[SizeRule, str] = {"gcv": "GCV", "bic": "BIC", "mdl": "MDL", "cv": "GCV", "stationary": "GCV"}
"""The scores in words."""
