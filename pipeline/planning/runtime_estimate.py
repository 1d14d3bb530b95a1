"""Estimates how long training takes on this machine by running the job's method, at its sizes, on a sample.

The sample is learned for a second or two. The cost of a row, O(n²) for n functions, does not depend on the number of
rows, nor does the cost of selection between passes; methods that hold all rows at once cost O(rows³).
"""

from contextlib import suppress
from time import perf_counter

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.memory_plan import BatchPlan
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.planning.sample import MOST_ROWS, Sample
from ridgestream.pipeline.planning.timing import BUDGET_SECONDS, Estimate, TimeIsUp, Timing
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import Summing
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.request import Request, without_pilot
from ridgestream.pipeline.training.trainer import train, trainer_of
from ridgestream.stores.segments.segments import Segments

_LEAST_ROWS = 2048
"""Fewest rows to learn, if there are as many."""

_DENSE_ROWS = 1000
"""Most rows to learn by methods that hold all rows at once."""


def plan_sample_rows(request: Request, n_rows: int) -> int:
    """Return how many rows to learn: as many as BUDGET_SECONDS allow, and enough for the vectors of a pass."""
    trainer = trainer_of(request)
    plan = trainer.plan_memory(None, n_rows, n_features=1, n_outputs=1)
    if not isinstance(plan, BatchPlan):
        return min(n_rows, MOST_ROWS)
    if trainer.is_dense:
        return min(n_rows, _DENSE_ROWS)
    passes = trainer.passes(None, n_rows, n_rows)
    fitting = int(0.5 * BUDGET_SECONDS / max(sum(each.row_seconds for each in passes), 1e-12))
    least = max(_LEAST_ROWS, 2 * plan.n_functions)
    return min(n_rows, MOST_ROWS, max(least, fitting))


def calibrate(sample: Sample, request: Request, n_rows: int, memory_limit_bytes: int) -> Estimate:
    """Learn the sample for BUDGET_SECONDS, and return the cost of `n_rows` rows that follows from it.

    A pilot that the request asks for is not run.
    """
    _warm_up()
    trainer, timing = trainer_of(without_pilot(request)), Timing()
    context = TrainingContext(
        segments=Segments(sample.root),
        ledger=sample.ledger,
        record=None,
        memory_limit_bytes=memory_limit_bytes,
        report=timing,
    )
    with suppress(TimeIsUp):
        train(trainer, context)
        timing.is_complete = True
    timing.stop()
    if timing.is_complete and sample.ledger.rows == n_rows:
        return timing.whole_estimate(n_rows)
    if trainer.shares_passes:
        return timing.passes_estimate(trainer, sample.ledger.rows, n_rows)
    return timing.stream_estimate(request.max_basis, n_rows)


def time_sums(sample: Sample, feature_map: FeatureMap, n_functions: int) -> float:
    """Return the seconds per row of summing the products with a dictionary of `n_functions` vectors."""
    rows, first = sample.rows(feature_map), sample.rows(feature_map, first=True)
    vectors = rows.take(np.resize(np.arange(rows.n_rows), n_functions)).features
    basis = Basis(RBF(1.0 / rows.n_features), vectors, np.zeros(rows.n_features))
    started = perf_counter()
    first.statistics((Summing(basis, first.n_targets),), events.STEP_CALIBRATE)
    return (perf_counter() - started) / max(1, first.n_rows)


def _warm_up() -> None:
    """Compile the learner: slow once after an installation, and no part of the cost of rows."""
    X = np.random.default_rng(0).normal(size=(512, 4))
    OnlineLSSVM(RBF(0.5), max_basis=16).partial_fit(X, np.sin(X[:, 0]))
