"""A model of the pilot, judged by the rows that it was not fitted to: a kernel, a metric, and the best λ for them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.metric.comparison import JudgedModel
from ridgestream.pipeline.metric.gradients import Expansion
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import JUDGES, LEARNED
from ridgestream.pipeline.selection.cross_validation import errors_above_rounding
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, FoldedStatistics


@dataclass(frozen=True)
class JudgedErrors:
    """Mean squared errors over rows and targets, each row predicted by a model fitted without its group."""

    later: float
    """On the last rows."""
    random: float
    """On rows left out at random."""
    pooled: float
    """On all of these."""


@dataclass(frozen=True)
class Candidate:
    """Models with one kernel and metric."""

    metric: Metric
    """R."""
    basis: Basis
    """The kernel and the basis vectors, R applied."""
    sums: FoldedStatistics
    """The sums over the rows of each group."""
    regularization: float
    """The λ of least pooled error."""
    errors: JudgedErrors
    """The errors with it."""

    @classmethod
    def best(
        cls,
        metric: Metric,
        basis: Basis,
        sums: FoldedStatistics,
        regularizations: Sequence[float],
    ) -> "Candidate | None":
        """Return the candidate with the λ of least pooled error, the largest of several; None if none can be judged.

        O(judges · n_regularizations · n_basis³).
        """
        penalty, total = basis.penalty(), sums.total()
        squares = _squared_errors(sums, penalty, regularizations)
        judged = np.array([sums.folds[group].weight for group in JUDGES]) * total.rhs.shape[1]
        pooled = squares.sum(axis=1) / judged.sum() if judged.sum() else np.full(len(squares), np.inf)
        chosen = max(range(len(pooled)), key=lambda i: (-pooled[i], regularizations[i]))
        if not np.isfinite(pooled[chosen]):
            return None
        each = zip(squares[chosen].tolist(), judged.tolist(), strict=True)
        later, random = (square / weight if weight else 0.0 for square, weight in each)
        errors = JudgedErrors(later, random, float(pooled[chosen]))
        return cls(metric, basis, sums, regularizations[chosen], errors)

    @property
    def gamma(self) -> float | None:
        """The kernel's γ; None for a kernel without."""
        return self.basis.kernel.parameters().get("gamma")

    def expansion(self) -> Expansion:
        """Return the model fitted to the rows that do not judge; O(n_basis³)."""
        learned = self.sums.folds[LEARNED]
        return Expansion(self.metric, self.basis, _solve(learned, self.basis.penalty(), self.regularization))

    def judged_model(self) -> JudgedModel:
        """Return the models fitted without each judged group; O(judges · n_basis³)."""
        penalty = self.basis.penalty()
        fits = (_solve(training, penalty, self.regularization) for _, training in _judgements(self.sums))
        return JudgedModel(self.metric, self.basis, tuple(fits))


def _judgements(sums: FoldedStatistics) -> Iterator[tuple[BlockStatistics, BlockStatistics]]:
    """Yield, for each judge, the sums of its rows and those of all other rows."""
    total = sums.total()
    for group in JUDGES:
        yield sums.folds[group], total.subtract(sums.folds[group])


def _squared_errors(sums: FoldedStatistics, penalty: Floats, regularizations: Sequence[float]) -> Floats:
    """Return Σ w(y − kᵀβ)² over targets and the rows of each judge, shape (n_regularizations, n_judges).

    Infinite where P is not positive definite within rounding.
    """
    errors = np.full((len(regularizations), len(JUDGES)), np.inf)
    for judge, (held, training) in enumerate(_judgements(sums)):
        for index, regularization in enumerate(regularizations):
            if training.weight > 0:
                try:
                    coefficients = _solve(training, penalty, regularization)
                except NumericalBreakdown:
                    continue
                errors[index, judge] = errors_above_rounding(held, coefficients[:, np.newaxis]).item()
    return errors


def _solve(sums: BlockStatistics, penalty: Floats, regularization: float) -> Floats:
    return sums.factorize(penalty, regularization).solve(sums.rhs)
