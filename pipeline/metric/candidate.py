"""A model of the pilot, judged by the rows that it was not fitted to: a kernel, a metric, and the best λ for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import sqrt

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import map_in_threads
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.cholesky import pack
from ridgestream.pipeline.metric.comparison import JudgedModel
from ridgestream.pipeline.metric.gradients import Expansion
from ridgestream.pipeline.metric.judged_sums import GroupSums
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import JUDGES, LATER, LEARNED
from ridgestream.pipeline.selection.cross_validation import errors_above_rounding
from ridgestream.pipeline.selection.nested_models import NestedModels
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import NORMAL_MATRIX, BlockStatistics, PackedStatistics

SIZES = (200, 300, 500, 700, 1_000)
"""Numbers of first vectors whose models are judged; of a smaller dictionary, also all of them."""

NOISE = 0.02
"""The share of an error by which models of the same rows may differ by chance, beyond what the number of rows says."""


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

    @property
    def noise(self) -> float:
        """The share of the error that chance explains: 2 % and one over the root of the number of the last rows."""
        return NOISE + 1 / sqrt(max(self.later_rows, 1))

    def disagrees(self, best_later: float) -> bool:
        """Whether the last rows reject a choice by all of them: another's error there is below by more than noise."""
        return self.later * (1 - self.noise) > best_later

    def is_clearly_below(self, other: "JudgedErrors") -> bool:
        """Whether the error on all judging rows is below another one's by more than noise."""
        return self.pooled < (1 - other.noise) * other.pooled


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
    """Models with one kernel and metric, judged; of their sums it keeps those of few vectors."""

    metric: Metric
    """R."""
    basis: Basis
    """The kernel and the basis vectors, R applied."""
    learned: Floats | None
    """β (n_basis, n_targets) of the fit to the rows that do not judge; None where it broke down."""
    leading: GroupSums
    """The sums of each group, of the first SIZES[-1] vectors."""
    fits: tuple[Floats, ...]
    """β (n_basis, n_targets) of the fit without each group of JUDGES."""
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
        sums: GroupSums,
        regularizations: Sequence[float],
        threads: int = 1,
    ) -> "Candidate | None":
        """Return the candidate with the best of several ascending λ; None if none can be judged.

        O(judges · n_regularizations · n_basis³), which is shared by `threads`.
        """
        penalty = pack(basis.penalty())

        def fit_without(group: int) -> tuple[Fits, Floats]:
            fits = _fit_without(sums, group, penalty, regularizations)
            return fits, _squared_errors(sums[group], fits)

        fits, errors = zip(*map_in_threads(fit_without, JUDGES, min(threads, len(JUDGES))), strict=True)
        judged = _judge(sums, np.column_stack(errors))
        finite = [i for i, errors in enumerate(judged) if np.isfinite(errors.pooled)]
        if not finite:
            return None
        verdict = Verdict.of([judged[i] for i in finite])
        chosen = finite[verdict.index]
        return cls(
            metric,
            basis,
            learned=_try_fit(sums[LEARNED], penalty, regularizations[chosen]),
            leading=tuple(group.first(min(len(basis.vectors), SIZES[-1])) for group in sums),
            fits=tuple(fit for each in fits if (fit := each[chosen]) is not None),
            regularization=regularizations[chosen],
            errors=judged[chosen],
            by_later=verdict.by_later,
        )

    def errors_of_sizes(self) -> list[tuple[int, JudgedErrors]]:
        """Return the errors, with the same λ, of the models of the first vectors, by their number: those of SIZES.

        O(judges · n³) with n the largest size.
        """
        n_basis = len(self.leading[0].rhs)
        sizes = [*(size for size in SIZES if size < n_basis), n_basis]
        penalty = self.basis.penalty()[:n_basis, :n_basis]
        sums = [group.whole() for group in self.leading]
        total = reduce(BlockStatistics.merge, sums)
        squares = []
        for group in JUDGES:
            models = NestedModels.of(total.subtract(sums[group]), penalty, self.regularization)
            squares.append(models.squared_errors(sums[group]).sum(axis=1)[sizes])
        return list(zip(sizes, _judge(self.leading, np.column_stack(squares)), strict=True))

    @property
    def gamma(self) -> float | None:
        """The kernel's γ; None for a kernel without."""
        return self.basis.kernel.parameters().get("gamma")

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(group.rows for group in self.leading)

    def expansion(self) -> Expansion:
        """Return the model fitted to the rows that do not judge; raises NumericalBreakdown if that fit broke down."""
        if self.learned is None:
            raise NumericalBreakdown(
                f"the {NORMAL_MATRIX} of the rows that the metric is learned from is not positive definite within "
                "rounding; raise regularization"
            )
        return Expansion(self.metric, self.basis, self.learned)

    def judged_model(self) -> JudgedModel:
        """Return the models fitted without each judged group."""
        return JudgedModel(self.metric, self.basis, self.fits)


def _judge(sums: GroupSums, squares: Floats) -> list[JudgedErrors]:
    """Return each model's errors from its squared errors on the rows of each judge, shape (n_models, n_judges)."""
    weights = np.array([sums[group].weight for group in JUDGES]) * sums[LATER].rhs.shape[1]
    later_rows, total = sums[LATER].rows, float(weights.sum())
    means = np.divide(squares, weights, out=np.zeros_like(squares), where=weights > 0)
    pooled = squares.sum(axis=1) / total if total else np.full(len(squares), np.inf)
    each = zip(means.tolist(), pooled.tolist(), strict=True)
    return [JudgedErrors(later, random, both, later_rows) for (later, random), both in each]


Fits = list[Floats | None]
"""β of each λ; None where P is not positive definite within rounding, or there is no row."""


def _fit_without(sums: GroupSums, group: int, penalty: Floats, regularizations: Sequence[float]) -> Fits:
    """Return the fits without the rows of a group."""
    training = reduce(PackedStatistics.merge, sums).subtract(sums[group])
    return [_try_fit(training, penalty, each) for each in regularizations]


def _try_fit(sums: PackedStatistics, penalty: Floats, regularization: float) -> Floats | None:
    try:
        return _fit(sums, penalty, regularization) if sums.weight > 0 else None
    except NumericalBreakdown:
        return None


def _fit(sums: PackedStatistics, penalty: Floats, regularization: float) -> Floats:
    return sums.factorize(penalty, regularization).solve(sums.rhs)


def _squared_errors(held: PackedStatistics, fits: Fits) -> Floats:
    """Return Σ w(y − kᵀβ)² over targets and the rows of `held`, shape (n_fits,); infinite without a fit."""
    whole = held.whole()
    errors = [np.inf if fit is None else errors_above_rounding(whole, fit[:, np.newaxis]).item() for fit in fits]
    return np.array(errors)
