"""How long a run will take, estimated from a sample of its rows."""

from dataclasses import dataclass

from ridgestream.pipeline.base.errors import DictionaryError, InputError, NumericalBreakdown
from ridgestream.pipeline.planning.pilot_estimate import estimate_pilot
from ridgestream.pipeline.planning.run_plan import RunPlan
from ridgestream.pipeline.planning.runtime_estimate import calibrate, time_sums
from ridgestream.pipeline.planning.sample import Sample
from ridgestream.pipeline.planning.timing import Estimate
from ridgestream.pipeline.training.online.shared_cells import EVERY_WORKERS_SECONDS


@dataclass(frozen=True)
class RunEstimate:
    """The seconds that each step of a run will take."""

    ingest_seconds: float
    """Those of the ingest."""
    pilot_seconds: float
    """Those of the pilot of a new model; 0 without one."""
    train_seconds: float | None
    """Those of training; None if the sample could not be learned."""
    refit_seconds: float
    """Those of the refit; 0 without one."""
    based_on: str
    """What they were estimated from, or why there is no estimate of training."""


def estimate_run(plan: RunPlan, sample: Sample, workers: int, at_once: int) -> RunEstimate:
    """Learn the sample and return how long the run will take on this many workers.

    The pilot's passes and the learners of cells are shared by `at_once`: these workers, or the threads of this process.
    Raises DictionaryError for a given dictionary that the run would refuse, too.
    """
    ingest_seconds = sample.ingest_row_seconds * sum(plan.fresh_rows) / workers
    try:
        estimate = calibrate(sample, plan.trainer.request, plan.rows_per_pass, plan.memory_limit_bytes)
    except (InputError, NumericalBreakdown) as error:
        if isinstance(error, DictionaryError) and plan.record is None:
            raise
        return RunEstimate(ingest_seconds, 0.0, None, 0.0, f"no estimate of learning: {error}")
    pilot_seconds = estimate_pilot(plan, sample, estimate.row_seconds, at_once)
    return RunEstimate(
        ingest_seconds=ingest_seconds,
        pilot_seconds=pilot_seconds,
        train_seconds=_train_seconds(plan, estimate, workers, at_once),
        refit_seconds=_refit_seconds(plan, sample, workers),
        based_on=f"the first {estimate.rows:,} rows, learned in {estimate.seconds:.1f} s by one process of this "
        f"machine; {'O(rows³)' if plan.trainer.is_dense else 'O(rows · n²)'}"
        + ("; a pilot all of whose rounds are kept" if pilot_seconds else ""),
    )


def _train_seconds(plan: RunPlan, estimate: Estimate, workers: int, at_once: int) -> float:
    """Return the seconds of training: workers share passes and cells, neither a stream nor the selection of a pass."""
    if plan.shares_cells:
        each = min(EVERY_WORKERS_SECONDS, estimate.row_seconds)
        row_seconds = each + (estimate.row_seconds - each) / min(at_once, plan.experts)
        return row_seconds * plan.rows_per_pass + estimate.fixed_seconds
    shared = min(workers, max(1, plan.tasks_per_pass)) if plan.trainer.shares_passes else 1
    if plan.trainer.shares_passes and not plan.reads_all_rows:
        selecting = sum(each.row_seconds for each in plan.trainer.passes(None, plan.rows_per_pass, plan.rows_per_pass))
        share = sum(each.row_seconds for each in plan.passes) / max(selecting, 1e-12)
        return estimate.row_seconds * share * plan.rows_per_pass / shared
    return estimate.row_seconds * plan.rows_per_pass / shared + estimate.fixed_seconds


def _refit_seconds(plan: RunPlan, sample: Sample, workers: int) -> float:
    if not (plan.refits or plan.tries_refit):
        return 0.0
    row_seconds = time_sums(sample, sample.feature_map(plan.trainer.request), plan.max_basis)
    return row_seconds * plan.rows / workers
