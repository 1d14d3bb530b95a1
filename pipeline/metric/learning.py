"""Learning a metric from the first rows of a model, the pilot: a recursive feature machine on block sums.

Each round fits a kernel model with the metric so far, and measures distances by its gradients from then on. Rounds are
kept while the error on rows left out falls by more than its uncertainty. Early rounds use fewer rows and vectors: the
metric is rough anyway, and they cost a sixteenth.

Departures from Radhakrishnan et al. (2024): a subset of regressors instead of all rows, the width and λ of each round
chosen by rows left out, and the rounds stopped by them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.reporter import Reporter, Silent
from ridgestream.pipeline.metric.candidate import Candidate, JudgedErrors
from ridgestream.pipeline.metric.column_shares import BinTask, sum_by_bins
from ridgestream.pipeline.metric.comparison import Comparison, compare_models
from ridgestream.pipeline.metric.contest import REGULARIZATIONS, Contest, KernelFamily, near_regularizations
from ridgestream.pipeline.metric.gradients import GradientTask, sum_gradients
from ridgestream.pipeline.metric.judged_sums import JudgedSumming, sum_judged
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.settings import AUTO, FULL_FEATURES, STANDARDIZED, MetricName, MetricSettings
from ridgestream.pipeline.metric.split import Split
from ridgestream.pipeline.metric.target_order import TargetOrder, find_target_order
from ridgestream.pipeline.selection.starts.random_rows import draw_rows
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import RowSet, Sums

Summed = TypeVar("Summed", bound=Sums)

STRIDES = (4, 2, 1)
"""The stages use every fourth row and vector, every second, and all."""

FEW_ROWS = 5_000
"""A stage with fewer rows is left out, unless it is the last one."""

FEATURES_BASIS = 500
"""The vectors by which features are compared, at most."""

PART_ROWS = 16_384
"""Rows of a part of a pass, at least: a task returns all sums of its part."""


@dataclass(frozen=True)
class Round:
    """One round: a metric, and how well a model with it predicts rows left out."""

    rows: int
    """The rows used."""
    n_basis: int
    """The vectors used."""
    gamma: float | None
    """The kernel's γ; None for a kernel without."""
    regularization: float
    """λ per row."""
    errors: JudgedErrors
    """The errors on rows left out, in standardized units."""
    kept: bool
    """Whether the metric was kept."""
    by_later: bool = False
    """Whether the last rows chose its γ or λ against the rows left out at random."""


@dataclass(frozen=True)
class LearnedMetric:
    """The result."""

    metric: Metric
    """The metric."""
    best: Round | None
    """The last round that was kept; None where there were too few rows to judge any."""
    rounds: tuple[Round, ...]
    """All rounds."""
    sizes: tuple[tuple[int, JudgedErrors], ...] = ()
    """The errors of the best round's model with fewer vectors, by their number."""
    order: TargetOrder | None = None
    """The order of the rows' targets."""

    @property
    def is_sorted(self) -> bool:
        """Whether the rows are sorted by target, so that random rows judged in place of the last ones."""
        return self.order is not None and self.order.is_sorted

    @property
    def is_target_constant(self) -> bool:
        """Whether the rows all have the same target, so that nothing can be learned from them."""
        return self.order is not None and self.order.is_constant


@dataclass(frozen=True)
class StageShape:
    """The sizes of a stage, which the number of rows and the settings decide."""

    stride: int
    """One row and one vector of so many are used."""
    n_basis: int
    """The vectors, if as many different ones can be drawn."""
    rounds: int
    """The most rounds."""
    compares: bool
    """Whether each round compares several γ, or only the first one does."""


@dataclass(frozen=True)
class Stage:
    """Rounds with the same rows and vectors."""

    split: Split
    """Which rows are used, and which of them judge."""
    vectors: Floats
    """The basis vectors, standardized, shape (n_basis, n_features)."""
    shape: StageShape
    """What the number of rows decides."""

    @property
    def widths_at_once(self) -> int:
        """How many γ a pass compares: the sums of an early stage take as much memory as those of one γ in the last."""
        return self.split.stride**2


def learn_metric(
    rows: RowSet,
    family: KernelFamily,
    settings: MetricSettings,
    report: Reporter,
    *,
    form: MetricName,
    narrower_loss: float = 0.0,
    threads: int = 1,
) -> LearnedMetric:
    """Return the metric learned from `rows`, the pilot; O(rounds · rows · basis · (basis + n_features + n_targets)).

    "standardized" has no rounds: only γ and λ are judged. "auto" compares forms in each round, and in the first also
    the weights of what each column explains, by itself and with another. A given γ is that of the kernel after the
    metric, which the rounds learn with their own. With `narrower_loss`, the best γ is the narrowest, by doubling, whose
    error is above the least by at most this share.

    Where all rows have the same target, nothing is learned and nothing judged. Memory O(basis²). The result depends on
    the rows in their order and on the settings, not on the `threads`. Raises InputError if no row can be drawn.
    """
    rounds, of_rounds = (0, family) if form == STANDARDIZED else (settings.rounds, family.of_rounds())
    learning = _Learning(rows, of_rounds, report, form, threads)
    if learning.order.is_constant:
        return learning.result()
    with one_blas_thread():
        stages = plan_stages(rows, of_rounds, settings, rounds=rounds, is_sorted=learning.order.is_sorted)
        for stage in stages:
            learning.run(stage)
        if family != of_rounds:
            learning.take(stages[-1], family.given)
        if narrower_loss:
            learning.narrow(stages[-1], narrower_loss)
        return learning.result()


def judge_features(
    rows: RowSet, family: KernelFamily, settings: MetricSettings, threads: int = 1
) -> JudgedErrors | None:
    """Return the errors of the best model of these features, all weighed alike; None if none can be judged.

    It has the rows of a metric's first stage and at most FEATURES_BASIS vectors.
    """
    few = replace(settings, basis=min(settings.basis, FEATURES_BASIS))
    learning = _Learning(rows, family.of_rounds(), Silent(), STANDARDIZED, threads)
    if not learning.order.is_constant:
        with one_blas_thread():
            learning.run(plan_stages(rows, family, few, rounds=0, is_sorted=learning.order.is_sorted)[0])
    return learning.best.errors if learning.best else None


def plan_stages(
    rows: RowSet, family: KernelFamily, settings: MetricSettings, *, rounds: int, is_sorted: bool
) -> list[Stage]:
    """Return the stages: a quarter of the rows and vectors for half of the rounds, then half of them, then all.

    Stages that would have few rows are left out.
    """
    gamma = family.first_grid()[0]
    drawn = draw_rows(rows, family.make(gamma), settings.bounded_basis(rows.n_rows), settings.random_seed).vectors
    return [
        Stage(
            Split(rows.n_rows, shape.stride, settings.random_seed, is_sorted),
            drawn[: max(1, len(drawn) // shape.stride)],
            shape,
        )
        for shape in stage_shapes(rows.n_rows, settings, rounds)
    ]


def stage_shapes(n_rows: int, settings: MetricSettings, rounds: int) -> list[StageShape]:
    """Return the shapes of the stages of so many rounds on so many rows, at least one."""
    strides = [stride for stride in STRIDES if stride == 1 or n_rows // stride >= FEW_ROWS]
    shapes: list[StageShape] = []
    for stride in strides:
        some = rounds if stride == 1 else (rounds + 1) // 2
        n_basis = max(1, settings.bounded_basis(n_rows) // stride)
        shapes.append(StageShape(stride, n_basis, some, compares=stride > 1 or len(strides) == 1))
        rounds -= some
    return shapes


def forms_of(form: MetricName, n_features: int, *, compares: bool, is_weighed: bool) -> tuple[MetricName, ...]:
    """Return what a round compares of its gradients: "auto" is both forms at first, then that of the metric so far."""
    if form != AUTO:
        return (form,)
    if n_features > FULL_FEATURES:
        return ("diagonal",)
    if compares:
        return ("full", "diagonal")
    return ("diagonal",) if is_weighed else ("full",)


class _Learning:
    """The course of the rounds."""

    def __init__(self, rows: RowSet, family: KernelFamily, report: Reporter, form: MetricName, threads: int) -> None:
        self._rows, self._family, self._report, self._form, self._threads = rows, family, report, form, threads
        self._metric = Metric.standardized(rows.n_features)
        self.best: Round | None = None
        self._kept: Candidate | None = None
        self._rounds: list[Round] = []
        self.order = self._reduce(find_target_order, rows.n_targets, events.STEP_TARGET_ORDER)

    def result(self) -> LearnedMetric:
        sizes = self._kept.errors_of_sizes() if self._kept else ()
        return LearnedMetric(self._metric, self.best, tuple(self._rounds), tuple(sizes), self.order)

    def run(self, stage: Stage) -> None:
        """Carry out the rounds of a stage, from the best metric so far, until one is not kept."""
        first = REGULARIZATIONS if self.best is None else near_regularizations(self.best.regularization, 2)
        candidate = self._judge(stage, self._metric, self._first_gammas(), first, widens=True)
        for _ in range(stage.shape.rounds):
            if candidate is None:
                return
            self._keep(stage, candidate)
            candidate = self._follow(stage, candidate)
        if candidate is not None:
            self._keep(stage, candidate)

    def take(self, stage: Stage, gammas: tuple[float | None, ...]) -> None:
        """Take the best of these γ, and its λ, for the kernel after the metric."""
        if (candidate := self._judge(stage, self._metric, gammas, REGULARIZATIONS, widens=False)) is not None:
            self._keep(stage, candidate)

    def narrow(self, stage: Stage, loss: float) -> None:
        """Take the narrowest γ, by doubling, whose error is above that of the best by at most this share."""
        if self._kept is None or self.best is None:
            return
        most = (1 + loss) * self.best.errors.pooled
        while (gamma := self._family.narrower(self._kept.gamma)) is not None:
            near = near_regularizations(self._kept.regularization, 2)
            [(_, candidate)] = self._candidates(stage, self._metric, (gamma,), near)
            if candidate is None or candidate.errors.pooled > most:
                return
            self._keep(stage, candidate)

    def _first_gammas(self) -> tuple[float | None, ...]:
        return self._family.first_grid() if self.best is None else self._family.around(self.best.gamma)

    def _follow(self, stage: Stage, candidate: Candidate) -> Candidate | None:
        """Return the next round's candidate: the last one that improves on this one and on those before it, if any."""
        gamma, near = candidate.gamma, near_regularizations(candidate.regularization, 1)
        gammas = self._family.around(gamma) if stage.shape.compares else (gamma,)
        best: Candidate | None = None
        for metric in self._learned(stage, candidate):
            best = self._improve(stage, best or candidate, metric, gammas, near) or best
        if self._form == AUTO and stage.shape.compares and candidate.metric.is_standardized:
            metric, gammas = self._of_columns(stage), self._family.first_grid()
            best = self._improve(stage, best or candidate, metric, gammas, REGULARIZATIONS) or best
        return best

    def _learned(self, stage: Stage, candidate: Candidate) -> Iterator[Metric]:
        """Yield the metrics of the model's gradients that the next round compares.

        With few rows for its features, a matrix learns the noise of all pairs of them.
        """
        task, metric = GradientTask(candidate.expansion(), stage.split), candidate.metric
        products = self._reduce(sum_gradients, task, events.STEP_METRIC_GRADIENTS).products
        is_weighed = metric.is_diagonal and not metric.is_standardized
        for form in forms_of(self._form, metric.n_features, compares=stage.shape.compares, is_weighed=is_weighed):
            yield Metric.of_gradients(products, diagonal=form == "diagonal")

    def _of_columns(self, stage: Stage) -> Metric:
        """Return the weights of what each column explains, by itself and with another.

        Where the rows are few for the features, a model of all of them has gradients of little but noise, and a wide
        one none of what takes turns in a few of them.
        """
        task = BinTask(stage.split, self._rows.n_features, self._rows.n_targets)
        return Metric.of_weights(self._reduce(sum_by_bins, task, events.STEP_COLUMN_SHARES).shares)

    def _improve(
        self,
        stage: Stage,
        candidate: Candidate,
        metric: Metric,
        gammas: Sequence[float | None],
        regularizations: Sequence[float],
    ) -> Candidate | None:
        """Return the best candidate with this metric if it improves on the one before."""
        following = self._judge(stage, metric, gammas, regularizations, widens=stage.shape.compares)
        if following is None:
            return None
        comparison = Comparison(candidate.judged_model(), following.judged_model(), stage.split)
        if self._reduce(compare_models, comparison, events.STEP_METRIC_COMPARISON).is_improvement:
            return following
        self._record(stage, following, kept=False)
        return None

    def _judge(
        self,
        stage: Stage,
        metric: Metric,
        gammas: Sequence[float | None],
        regularizations: Sequence[float],
        *,
        widens: bool,
    ) -> Candidate | None:
        """Return the best candidate with this metric; if `widens`, the grid continues as `_following` says."""
        contest, wanted = Contest(), tuple(gammas)
        while wanted:
            for gamma, candidate in self._candidates(stage, metric, wanted, regularizations):
                contest.enter(gamma, candidate)
            following = self._following(contest) if widens else None
            wanted = () if following is None else (following,)
        best = contest.best
        return replace(best, by_later=best.by_later or contest.verdict.by_later) if best else None

    def _following(self, contest: Contest) -> float | None:
        """Return the γ to be judged next: a neighbour of the best; at first, if all are alike, a far narrower one."""
        neighbour = self._family.neighbour(contest.entered, contest.best.gamma) if contest.best else None
        if neighbour is None and self.best is None and contest.is_flat:
            return self._family.far_narrower(contest.entered)
        return neighbour

    def _candidates(
        self, stage: Stage, metric: Metric, gammas: Sequence[float | None], regularizations: Sequence[float]
    ) -> Iterator[tuple[float | None, Candidate | None]]:
        """Yield each γ with its candidate of the best λ: as many from a pass as its memory allows."""
        vectors = metric.apply(stage.vectors)
        bases = tuple(Basis(self._family.make(g), vectors, np.zeros(vectors.shape[1])) for g in gammas)
        together = (bases[start : start + stage.widths_at_once] for start in range(0, len(bases), stage.widths_at_once))
        summings = [JudgedSumming(metric, some, stage.split, self._rows.n_targets) for some in together]
        passes = self._rows.reduce_each(sum_judged, summings, events.STEP_METRIC_SUMS, self._parts)
        sums = chain.from_iterable(summing.by_basis(next(passes)) for summing in summings)
        for gamma, basis in zip(gammas, bases, strict=True):
            # no name is kept for the sums, which would be in memory with the next ones
            yield gamma, Candidate.best(metric, basis, next(sums), regularizations, self._threads)

    def _keep(self, stage: Stage, candidate: Candidate) -> None:
        self._metric, self._kept = candidate.metric, candidate
        self.best = self._record(stage, candidate, kept=True)

    def _record(self, stage: Stage, candidate: Candidate, *, kept: bool) -> Round:
        gamma = candidate.gamma
        rows, chosen = candidate.rows, (gamma, candidate.regularization, candidate.errors)
        done = Round(rows, len(stage.vectors), *chosen, kept=kept, by_later=candidate.by_later)
        self._rounds.append(done)
        self._report.say(
            events.METRIC_ROUND,
            number=len(self._rounds),
            rows=rows,
            n_basis=done.n_basis,
            gamma=gamma,
            regularization=done.regularization,
            mse_left_out=done.errors.random,
            mse_later=done.errors.later,
            kept=kept,
        )
        return done

    def _reduce(
        self, function: Callable[[Any, Iterable[RowBlock]], Summed], argument: object, step: events.Step
    ) -> Summed:
        """Return the function over all rows of the pilot, in parts that the rows alone determine."""
        return self._rows.reduce(function, argument, step, self._parts)

    @property
    def _parts(self) -> int:
        return max(1, self._rows.n_rows // PART_ROWS)
