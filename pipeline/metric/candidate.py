"""A model of the pilot, judged by the rows that it was not fitted to: a kernel, a metric, and the best λ for them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.metric.comparison import JudgedModel
from ridgestream.pipeline.metric.gradients import Expansion
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import JUDGES, LATER, LEARNED
from ridgestream.pipeline.selection.cross_validation import errors_above_rounding
from ridgestream.pipeline.selection.nested_models import NestedModels
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, FoldedStatistics

LATER_NOISE = 0.02
"""The share of an error on the last rows by which models may differ there before these rows alone decide."""


@dataclass(frozen=True)
class JudgedErrors:
    """Mean squared errors over rows and targets, each row predicted by a model fitted without its group."""

    later: float
    """On the last rows."""
    random: float
    """On rows left out at random."""
    pooled: float
    """On all of these."""
    later_rows: int
    """The number of the last rows."""

    def disagrees(self, best_later: float) -> bool:
        """Whether the last rows reject a choice by all of them: another one's error there is below, by more than noise.

        Noise is 2 % and one over the root of their number.
        """
        return self.later * (1 - LATER_NOISE - 1 / sqrt(max(self.later_rows, 1))) > best_later


@dataclass(frozen=True)
class Verdict:
    """Which of several models is best."""

    pooled: int
    """The index of the one of least error on all judged rows, the last of equals."""
    later: int
    """The index of the one of least error on the last rows, the last of equals."""
    by_later: bool
    """Whether the last rows decided against the rows left out at random."""

    @property
    def index(self) -> int:
        """The index of the best one: no other than these two is, whatever models follow."""
        return self.later if self.by_later else self.pooled

    @classmethod
    def of(cls, errors: Sequence[JudgedErrors]) -> "Verdict":
        """Return the model of least pooled error, the last of equals, unless the last rows disagree: they decide then.

        Tomorrow's rows follow the last ones, which rows left out at random do not where the data change with time.
        """
        reverse = range(len(errors) - 1, -1, -1)
        pooled, later = (min(reverse, key=key) for key in (lambda i: errors[i].pooled, lambda i: errors[i].later))
        return cls(pooled, later, errors[pooled].disagrees(errors[later].later))


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
    """The λ that is best."""
    errors: JudgedErrors
    """The errors with it."""
    by_later: bool = False
    """Whether the last rows chose it, or λ, against the rows left out at random."""

    @classmethod
    def best(
        cls,
        metric: Metric,
        basis: Basis,
        sums: FoldedStatistics,
        regularizations: Sequence[float],
    ) -> "Candidate | None":
        """Return the candidate with the best of several ascending λ; None if none can be judged.

        O(judges · n_regularizations · n_basis³).
        """
        judged = _judge(sums, _squared_errors(sums, basis.penalty(), regularizations))
        finite = [i for i, errors in enumerate(judged) if np.isfinite(errors.pooled)]
        if not finite:
            return None
        verdict = Verdict.of([judged[i] for i in finite])
        chosen = finite[verdict.index]
        return cls(metric, basis, sums, regularizations[chosen], judged[chosen], verdict.by_later)

    def errors_of_sizes(self, sizes: Sequence[int]) -> list[JudgedErrors]:
        """Return the errors, with the same λ, of the models of the first vectors, as many as each of `sizes`.

        O(judges · n³) with n the largest size.
        """
        first, penalty = np.arange(max(sizes)), self.basis.penalty()
        sums, penalty = self.sums.choose(first), penalty[np.ix_(first, first)]
        squares = [
            NestedModels.of(training, penalty, self.regularization).squared_errors(held).sum(axis=1)[list(sizes)]
            for held, training in _judgements(sums)
        ]
        return _judge(sums, np.column_stack(squares))

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


def _judge(sums: FoldedStatistics, squares: Floats) -> list[JudgedErrors]:
    """Return each model's errors from its squared errors on the rows of each judge, shape (n_models, n_judges)."""
    weights = np.array([sums.folds[group].weight for group in JUDGES]) * sums.folds[LATER].rhs.shape[1]
    later_rows, total = sums.folds[LATER].rows, float(weights.sum())
    means = np.divide(squares, weights, out=np.zeros_like(squares), where=weights > 0)
    pooled = squares.sum(axis=1) / total if total else np.full(len(squares), np.inf)
    each = zip(means.tolist(), pooled.tolist(), strict=True)
    return [JudgedErrors(later, random, both, later_rows) for (later, random), both in each]


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
