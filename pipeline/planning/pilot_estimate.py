"""How long the pilot of a new model will take, from what it counts and from the speed of its passes on a sample."""

from time import perf_counter

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.batch.method import PassPlan, sum_pass
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.metric.candidate import Candidate
from ridgestream.pipeline.metric.judged_sums import JudgedSumming, sum_judged
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import JUDGES, Split
from ridgestream.pipeline.planning.run_plan import RunPlan
from ridgestream.pipeline.planning.sample import Sample
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_set import RowSet
from ridgestream.pipeline.training.online.cell_number import count_number_trial_rows
from ridgestream.pipeline.training.online.choice import count_trial_rows
from ridgestream.pipeline.training.pilot import count_rows, pilot_costs
from ridgestream.pipeline.training.request import EXPERTS, OnlineRequest


def estimate_pilot(plan: RunPlan, sample: Sample, row_seconds: float, at_once: int) -> float:
    """Return the seconds of the pilot of a new model, as if all of its rounds were kept; 0 without a pilot.

    So many workers or threads share its passes, but neither the solutions nor the trials of learners, whose rows take
    `row_seconds`.
    """
    request = plan.trainer.request
    if plan.record is not None or request.pilot is None:
        return 0.0
    rows = sample.rows(sample.feature_map(request), first=True)
    costs = pilot_costs(request, rows.n_features, plan.rows)
    pace, solution = time_judging(rows, max(cost.n_basis for cost in costs))
    in_passes = sum(cost.rows * pace * PassPlan(cost.values, cost.products).row_seconds for cost in costs)
    solving = sum(cost.solutions * solution * cost.n_basis**3 for cost in costs)
    trials = 0
    if isinstance(request, OnlineRequest):
        count = count_number_trial_rows if EXPERTS in request.chooses else count_trial_rows
        trials = count(request, min(count_rows(request.pilot, rows.n_features), plan.rows))
    return in_passes / at_once + solving + trials * row_seconds


def time_judging(rows: RowSet, n_basis: int) -> tuple[float, float]:
    """Return the seconds of a pass over those planned for it, and those of a solution over n_basis³.

    Both are measured with this number of vectors, but no more than half of the rows.
    """
    n_basis, metric = max(1, min(n_basis, rows.n_rows // 2)), Metric.standardized(rows.n_features)
    vectors = rows.take(np.arange(n_basis)).features
    basis = Basis(RBF(1.0 / rows.n_features), vectors, np.zeros(rows.n_features))
    summing = JudgedSumming(metric, (basis,), Split(rows.n_rows), rows.n_targets)
    started = perf_counter()
    sums = rows.reduce(sum_judged, summing, events.STEP_CALIBRATE)
    summed = perf_counter()
    Candidate.best(metric, basis, next(summing.by_basis(sums)), (1.0,))
    solved = perf_counter()
    pace = (summed - started) / rows.n_rows / sum_pass(n_basis).row_seconds
    return pace, (solved - summed) / len(JUDGES) / n_basis**3
