"""The pilot of a new model: its first rows, from which metric and settings are chosen before the training proper."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.executor import MemoryNeed, in_threads
from ridgestream.pipeline.base.memory_plan import MetricPlan, check_plans, threads_within
from ridgestream.pipeline.base.reporter import Fact
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES
from ridgestream.pipeline.dataset.feature_map_growth import Encodings
from ridgestream.pipeline.dataset.stored_rows import StoredRows
from ridgestream.pipeline.features.compression import Compression, fit_compression
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.kernels import KERNELS, Kernel, has_gamma, make_kernel
from ridgestream.pipeline.metric.candidate import JudgedErrors
from ridgestream.pipeline.metric.contest import KernelFamily
from ridgestream.pipeline.metric.cost import StageCost, stage_costs
from ridgestream.pipeline.metric.learning import LearnedMetric, judge_features, learn_metric
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.settings import AUTO, MetricName, MetricSettings
from ridgestream.pipeline.metric.split import LATER_SHARE
from ridgestream.pipeline.online.settings import CELL_THRESHOLDS, OnlineSettings
from ridgestream.pipeline.sums.row_block import drop_absent
from ridgestream.pipeline.sums.row_set import RowSet
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.request import (
    EXPERT_BASIS,
    EXPERTS,
    LARGEST_CHOSEN,
    MAX_BASIS,
    REGULARIZATION,
    THRESHOLDS,
    Choice,
    Request,
)
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.schema.column_rules import OF_NEW_MODELS, STANDARDIZED, ColumnRules
from ridgestream.stores.schema.schema import Schema

FLAT_SHARE = 0.01
"""A dictionary is large enough if a larger one lowers the error on rows left out by less than this share."""

MOST_VALUES = 2**24
"""The most values of features of a pilot: its time is proportional to them, and it has fewer rows of many features."""

NARROWER_LOSS = 0.05
"""The share by which a narrower kernel may be worse on the pilot's rows where more rows follow: they will favour it."""

COMPARED_BYTES = 64 * 2**20
"""The features of the rows, spread evenly over a pilot, in which values far out are looked for, at most."""

FEWEST_ROWS = 1_000
"""The rows of a pilot of any number of features, if there are as many."""


@dataclass(frozen=True)
class Pilot:
    """The first rows of a new model, and what was learned from them."""

    rows: RowSet
    """The rows, standardized."""
    n_all: int
    """The number of rows of the first training."""
    is_full: bool
    """Whether it has all the rows that it asks for: others may follow."""
    family: KernelFamily
    """The kernels that were compared."""
    learned: LearnedMetric
    """The metric, its rounds, and the errors of smaller dictionaries."""

    @property
    def gamma(self) -> float | None:
        """The γ of the best round; None for a kernel without, or if no round could be judged."""
        return self.learned.best.gamma if self.learned.best else None

    @property
    def penalty(self) -> float:
        """The best λn; the noise of a standardized target if no round could be judged."""
        best = self.learned.best
        return best.regularization * (1 - LATER_SHARE) * best.rows if best else 1.0

    @property
    def max_basis(self) -> int:
        """The least of the sizes judged whose error is flat; the largest to be chosen if none is."""
        errors = [(size, errors.pooled) for size, errors in self.learned.sizes if size <= LARGEST_CHOSEN]
        least = min((error for _, error in errors), default=0.0)
        flat = next((size for size, error in errors if error <= (1 + FLAT_SHARE) * least), LARGEST_CHOSEN)
        return flat if errors and flat < errors[-1][0] else LARGEST_CHOSEN

    @property
    def choice(self) -> Choice:
        """The settings that suit a dictionary drawn at random, with λ for all rows of the first training."""
        return Choice(self.gamma, self.penalty / max(self.n_all, 1), self.max_basis)

    def scale(self, gamma: float | None) -> float:
        """Return the factor of all distances by which a chosen γ becomes one over the number of features."""
        return float(np.sqrt(gamma * self.family.n_features)) if gamma is not None and self.family.chooses else 1.0

    def metric(self, gamma: float | None) -> Metric:
        """Return the metric; where γ is chosen, scaled so that it becomes one over the number of features."""
        return self.learned.metric.scaled(self.scale(gamma))


RequestKind = TypeVar("RequestKind", bound=Request)


def run_pilot(
    encodings: Encodings,
    context: TrainingContext,
    request: RequestKind,
    choose: Callable[[Pilot], Choice] | None = None,
) -> tuple[Encodings, RequestKind, Choice | None]:
    """Return the feature maps of a training with the metric of a new model, and the request with its chosen settings.

    The choice is returned, too, its cells measured by that metric; None without a pilot.

    Where the metric is "auto", columns with values far out are compressed. The pilot is the first
    `metric_options.rows` rows of the ledger, fewer of more than 335 features. Its kernel has the γ that the request
    gives; if it gives none, the best of several; `choose` chooses the settings for the method. The default takes those
    of the pilot's own model; of widths that are about as good, the narrowest if more rows may follow. With a learned
    metric, the chosen γ is part of it. Raises MemoryRefused, with the numbers, if the sums do not fit.
    """
    settings, plan = request.pilot, plan_pilot(request, context.record, encodings.first.n_features, context.ledger.rows)
    if settings is None or plan is None:
        return encodings, request, None
    check_plans([plan], context.memory_limit_bytes)
    context.executor.admit([MemoryNeed(plan.total_bytes)])
    threads = threads_within(plan, context.memory_limit_bytes, context.executor.threads)
    context = replace(context, executor=in_threads(context.executor, threads))
    encodings = _compressed(encodings, context, request, settings, threads)
    pilot = _learn(encodings.first, context, request, settings, threads, 0.0 if choose else NARROWER_LOSS)
    choice = choose(pilot) if choose and not pilot.learned.is_target_constant else pilot.choice
    _report(pilot, choice, request, context)
    if request.metric is None:
        return encodings, request.with_choice(choice), choice
    centres = None if choice.centres is None else choice.centres * pilot.scale(choice.gamma)
    measured = replace(choice, gamma=None, centres=centres)
    return encodings.measured_by(pilot.metric(choice.gamma)), request.with_choice(measured), measured


def _learn(
    first: FeatureMap,
    context: TrainingContext,
    request: Request,
    settings: MetricSettings,
    threads: int,
    narrower_loss: float,
) -> Pilot:
    rows = _first_rows(first, context, settings)
    family, form = kernel_family(request, first.n_fitted), _form(request)
    is_full = rows.n_rows >= count_rows(settings, first.n_features)
    narrower_loss = narrower_loss if is_full else 0.0
    learned = learn_metric(
        rows, family, settings, context.report, form=form, narrower_loss=narrower_loss, threads=threads
    )
    return Pilot(rows, context.ledger.rows, is_full, family, learned)


def _first_rows(first: FeatureMap, context: TrainingContext, settings: MetricSettings) -> StoredRows:
    numbers = (entry.segment for entry in context.ledger.entries)
    return context.rows(numbers, first, count_rows(settings, first.n_features))


def _compressed(
    encodings: Encodings, context: TrainingContext, request: Request, settings: MetricSettings, threads: int
) -> Encodings:
    """Return the maps with those columns compressed that have values far out; none where the job states the metric.

    Where they are far out on one side, distances are from the median or from the other end, as rows left out prefer.
    """
    if request.metric is None or request.metric.name != AUTO:
        return encodings
    rows = _first_rows(encodings.first, context, settings)
    stride = 1 + 8 * rows.n_rows * rows.n_features // COMPARED_BYTES
    features = drop_absent(rows.take(np.arange(0, rows.n_rows, stride))).features
    positions = _compressible(encodings.known, context.ledger.schema, request.rules.within(OF_NEW_MODELS))
    found = _fit_compressions(features, positions, one_sided=False)
    if not found:
        return encodings
    names = ", ".join(encodings.first.linear[position].name for position in found)
    context.report.say(events.FEATURES_COMPRESSED, columns=names)
    from_median = encodings.compressed_by(found)
    if not KERNELS[request.kernel].is_stationary:  # others measure from the origin, which should be amid the values
        return from_median
    one_sided = _fit_compressions(features, found, one_sided=True)
    if one_sided == found:
        return from_median
    from_one_end = encodings.compressed_by(one_sided)
    errors = [_judge(each.first, context, request, settings, threads) for each in (from_median, from_one_end)]
    return from_one_end if _is_clearly_better(*errors) else from_median


def _fit_compressions(features: Floats, positions: Iterable[int], *, one_sided: bool) -> dict[int, Compression]:
    """Return how those of the columns are compressed that have values far out, by their positions."""
    fitted = {position: fit_compression(features[:, position], one_sided=one_sided) for position in positions}
    return {position: compression for position, compression in fitted.items() if compression is not None}


def _judge(
    first: FeatureMap, context: TrainingContext, request: Request, settings: MetricSettings, threads: int
) -> JudgedErrors | None:
    family = kernel_family(request, first.n_fitted)
    return judge_features(_first_rows(first, context, settings), family, settings, threads)


def _is_clearly_better(before: JudgedErrors | None, after: JudgedErrors | None) -> bool:
    return before is not None and after is not None and after.is_clearly_below(before)


def _compressible(known: FeatureMap, schema: Schema | None, rules: ColumnRules) -> list[int]:
    """Return the positions, among the linear columns, of standardized numbers that have no rule of their own."""
    numeric = schema.numeric if schema else ()
    names = {each.name for each in numeric if rules.rule_of(each) == STANDARDIZED} - (rules.columns or {}).keys()
    linear = enumerate(known.linear)
    return [position for position, column in linear if column.name in names and column.distinct == 2]


def _form(request: Request) -> MetricName:
    return request.metric.name if request.metric else "standardized"


def bounding_values(*, has_cells: bool = False) -> dict[str, Any]:
    """Return the values of settings that are "auto" by which a training is planned; a pilot chooses no larger ones."""
    most = EXPERT_BASIS if has_cells else LARGEST_CHOSEN
    thresholds = {name: getattr(OnlineSettings, name) for name in THRESHOLDS} | (CELL_THRESHOLDS if has_cells else {})
    return {REGULARIZATION: OnlineSettings.regularization, MAX_BASIS: most, **thresholds}


def plan_pilot(request: Request, record: ModelRecord | None, n_features: int, n_rows: int) -> MetricPlan | None:
    """Return the memory of a pilot of a store with this many rows; None where there is nothing to choose or learn."""
    settings = request.pilot
    if settings is None or record is not None:
        return None
    rows = min(count_rows(settings, n_features), n_rows)
    return MetricPlan(settings.bounded_basis(rows), n_features, BLOCK_BYTES)


def pilot_costs(request: Request, n_features: int, n_rows: int) -> list[StageCost]:
    """Return what judging the models of a pilot costs at most, in a store with this many rows; nothing without one."""
    settings = request.pilot
    if settings is None:
        return []
    rows, family = min(count_rows(settings, n_features), n_rows), kernel_family(request, n_features)
    return stage_costs(rows, family, settings, _form(request))


def count_rows(settings: MetricSettings, n_features: int) -> int:
    """Return the number of rows of a pilot, if the store has as many."""
    return min(settings.rows, max(MOST_VALUES // max(n_features, 1), FEWEST_ROWS))


def kernel_family(request: Request, n_features: int) -> KernelFamily:
    """Return the kernels that the pilot compares: those of the request, or any γ if it gives none."""

    def make(gamma: float | None) -> Kernel:
        own = request.kernel_grid[0]
        return make_kernel(request.kernel, own if gamma is None else {**own, "gamma": gamma}, n_features)

    if not has_gamma(request.kernel):
        return KernelFamily(make, n_features, chooses=False)
    given = tuple(parameters["gamma"] for parameters in request.kernel_grid if "gamma" in parameters)
    return KernelFamily(make, n_features, chooses=not given, given=given or (None,))


def _report(pilot: Pilot, choice: Choice, request: Request, context: TrainingContext) -> None:
    """Report what was learned and chosen, or warn of a pilot that taught nothing."""
    if pilot.learned.is_target_constant:
        context.report.warn(events.PILOT_TARGET_CONSTANT, rows=pilot.rows.n_rows)
        return
    if pilot.learned.is_sorted:
        context.report.warn(events.PILOT_ROWS_SORTED, rows=pilot.rows.n_rows)
    best, kept = pilot.learned.best, [each for each in pilot.learned.rounds if each.kept]
    if best is None:
        context.report.warn(events.METRIC_NOT_JUDGED, rows=pilot.rows.n_rows)
        return
    judged: dict[str, Fact] = {"mse_left_out": best.errors.random, "mse_later": best.errors.later}
    if request.metric is not None:
        context.report.say(events.METRIC_LEARNED, rows=pilot.rows.n_rows, rounds=len(kept), **judged)
    context.report.say(events.PILOT_CHOSEN, rows=pilot.rows.n_rows, **_chosen(pilot, choice, request), **judged)
    if best.by_later and not pilot.learned.is_sorted:
        context.report.warn(events.PILOT_LATER_ROWS_DISAGREE, **judged)


def _chosen(pilot: Pilot, choice: Choice, request: Request) -> dict[str, Fact]:
    """Return the settings that were chosen, by name; those that the job gives are left out.

    With a learned metric, γ is the one that scales it.
    """
    values: dict[str, Fact] = {name: getattr(choice, name) for name in (EXPERTS, REGULARIZATION, MAX_BASIS)}
    name = "gamma" if request.metric is None else "gamma_within_metric"
    gamma: dict[str, Fact] = {name: choice.gamma} if pilot.family.chooses else {}
    return gamma | {name: value for name, value in values.items() if name in request.chooses}
