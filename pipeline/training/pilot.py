"""The pilot of a new model: its first rows, from which the metric is learned before the training proper."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.executor import MemoryNeed
from ridgestream.pipeline.base.memory_plan import MetricPlan
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES
from ridgestream.pipeline.dataset.feature_map_growth import Encodings
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.kernels import Kernel, has_gamma, make_kernel
from ridgestream.pipeline.metric.learning import KernelFamily, LearnedMetric, learn_metric
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.sums.row_set import RowSet
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.request import MetricRequest, Request
from ridgestream.stores.catalog.models import ModelRecord


@dataclass(frozen=True)
class Pilot:
    """The first rows of a new model, and the metric that was learned from them."""

    rows: RowSet
    """The rows, standardized."""
    family: KernelFamily
    """The kernels that were compared."""
    learned: LearnedMetric
    """The metric."""

    @property
    def gamma(self) -> float | None:
        """The γ of the best round; None for a kernel without, or if no round could be judged."""
        return self.learned.best.gamma if self.learned.best else None

    def metric(self, gamma: float | None) -> Metric:
        """Return the metric; where γ is chosen, scaled so that it becomes one over the number of features."""
        if gamma is None or not self.family.chooses:
            return self.learned.metric
        return self.learned.metric.scaled(float(np.sqrt(gamma * self.family.n_features)))


def with_metric(
    encodings: Encodings,
    context: TrainingContext,
    request: Request,
    choose: Callable[[Pilot], float | None] = lambda pilot: pilot.gamma,
) -> Encodings:
    """Return the feature maps of a training with the metric that the request asks a new model to learn.

    The pilot is the first `metric_options.rows` rows of the ledger. Its kernel has the γ that the request gives; if it
    gives none, the best of several, and `choose` may choose another one for the method. Raises MemoryRefused, with the
    numbers, if the sums do not fit.
    """
    wanted, plan = request.metric, plan_pilot(request, context.record, encodings.first.n_features)
    if wanted is None or plan is None:
        return encodings
    plan.check(context.memory_limit_bytes)
    context.executor.admit([MemoryNeed(plan.total_bytes)])
    pilot = _learn(encodings.first, context, request, wanted)
    gamma = choose(pilot)
    _report(pilot, gamma, context)
    return encodings.measured_by(pilot.metric(gamma))


def _learn(first: FeatureMap, context: TrainingContext, request: Request, wanted: MetricRequest) -> Pilot:
    rows = context.rows((entry.segment for entry in context.ledger.entries), first, wanted.options.rows)
    family, diagonal = _family(request, first.n_fitted), wanted.is_diagonal(first.n_features)
    return Pilot(rows, family, learn_metric(rows, family, wanted.options, context.report, diagonal=diagonal))


def plan_pilot(request: Request, record: ModelRecord | None, n_features: int) -> MetricPlan | None:
    """Return the memory of learning the metric; None where there is none to learn."""
    if request.metric is None or record is not None:
        return None
    return MetricPlan(request.metric.options.basis, n_features, BLOCK_BYTES)


def check_pilot_memory(request: Request, record: ModelRecord | None, limit_bytes: int) -> None:
    """Raise MemoryRefused, with the numbers, if the metric cannot be learned within the limit; reads no row."""
    if plan := plan_pilot(request, record, n_features=1):
        plan.check(limit_bytes)


def _family(request: Request, n_features: int) -> KernelFamily:
    """Return the kernels that the pilot compares: those of the request, or any γ if it gives none."""

    def make(gamma: float | None) -> Kernel:
        own = request.kernel_grid[0]
        return make_kernel(request.kernel, own if gamma is None else {**own, "gamma": gamma}, n_features)

    if not has_gamma(request.kernel):
        return KernelFamily(make, n_features, chooses=False)
    given = tuple(parameters["gamma"] for parameters in request.kernel_grid if "gamma" in parameters)
    return KernelFamily(make, n_features, chooses=not given, given=given or (None,))


def _report(pilot: Pilot, gamma: float | None, context: TrainingContext) -> None:
    """Report the result, or warn of a pilot that taught nothing."""
    best, kept = pilot.learned.best, [each for each in pilot.learned.rounds if each.kept]
    if best is None:
        context.report.warn(events.METRIC_NOT_JUDGED, rows=pilot.rows.n_rows)
        return
    context.report.say(
        events.METRIC_LEARNED,
        rows=pilot.rows.n_rows,
        rounds=len(kept),
        gamma=gamma,
        pilot_gamma=best.gamma,
        pilot_regularization=best.regularization,
        pilot_mse_left_out=best.errors.random,
        pilot_mse_later=best.errors.later,
    )
