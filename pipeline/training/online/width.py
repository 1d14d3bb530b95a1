"""The width of the online learner's kernel after a learned metric, judged by the learner itself on the pilot's rows.

A dictionary that rows are selected for, one after another, wants a narrower kernel than one drawn at random, by which
the metric is learned; by how much depends on its size and on the thresholds.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputWarning, NumericalBreakdown
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.kernels import KERNELS, Kernel
from ridgestream.pipeline.metric.split import LATER_SHARE
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.sums.row_block import RowBlock, drop_absent
from ridgestream.pipeline.training.pilot import Pilot
from ridgestream.pipeline.training.request import OnlineRequest

JUDGED_ROWS = 16_384
"""The first rows of the pilot that the learner is judged on, at most."""

JUDGED_BYTES = 64 * 2**20
"""Their features, at most."""

PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Values of λn, of which the best judges a width."""

LEAST_GAIN = 0.01
"""By which share of the error another width must be better."""

FEWEST_ROWS = 50
"""With fewer rows, no width is judged."""

LARGEST_BASIS = 1_000
"""The largest dictionary of a learner that is judged."""


@dataclass(frozen=True)
class WidthTrial:
    """The rows on which kernels are tried, and the learner that tries them."""

    rows: RowBlock
    """The first rows of the pilot, after the metric."""
    request: OnlineRequest
    """The learner's settings."""

    def error(self, kernel: Kernel) -> float:
        """Return the mean squared error on the last fifth of the rows, having learned the others in their order.

        It is that of the best penalty of several on the dictionary that was selected, since the λ of a whole stream is
        too small for its first rows. Infinite where the learner breaks down.
        """
        features, targets, weights = self.rows.features, self.rows.targets, self.rows.weights
        cut = round((1 - LATER_SHARE) * len(features))
        learner = self._learner(kernel, cut)
        try:
            with one_blas_thread(), warnings.catch_warnings():
                warnings.simplefilter("ignore", InputWarning)  # a width that suits no row is not taken
                learner.partial_fit(features[:cut], targets[:cut], None if weights is None else weights[:cut])
                return min(self._later_error(learner, penalty / cut, cut) for penalty in PENALTIES)
        except NumericalBreakdown:
            return float("inf")

    def _learner(self, kernel: Kernel, n_rows: int) -> OnlineLSSVM:
        return OnlineLSSVM(
            kernel,
            regularization=max(self.request.regularization, 1.0 / n_rows),
            max_basis=min(self.request.max_basis or LARGEST_BASIS, LARGEST_BASIS),
            novelty_threshold=self.request.novelty_threshold,
            usefulness_threshold=self.request.usefulness_threshold,
            selection=self.request.selection,
            centre=np.zeros(self.rows.features.shape[1]),
        )

    def _later_error(self, learner: OnlineLSSVM, regularization: float, cut: int) -> float:
        learner.set_regularization(regularization)
        rows = self.rows
        losses: Floats = np.mean((learner.predict(rows.features[cut:]) - rows.targets[cut:]) ** 2, axis=1)
        return float(np.average(losses, weights=None if rows.weights is None else rows.weights[cut:]))


def choose_width(pilot: Pilot, request: OnlineRequest, report: Reporter) -> float | None:
    """Return the γ of least error on later rows, from the pilot's by doubling and halving; O(max_basis²) a row and γ.

    A kernel of the inner product has no width. Where γ is given, or the dictionary is, or where there are few rows, it
    is the pilot's.
    """
    if not (pilot.family.chooses and KERNELS[request.kernel].is_stationary and request.selection != "fixed"):
        return pilot.gamma
    trial = _trial(pilot, request)
    if len(trial.rows.features) < FEWEST_ROWS:
        return pilot.gamma
    errors: dict[float | None, float] = {}
    best = wanted = pilot.gamma
    while wanted is not None:
        errors[wanted] = trial.error(pilot.family.make(wanted))
        report.say(events.METRIC_WIDTH_TRIED, gamma=wanted, mse_later=errors[wanted])
        if errors[wanted] < (1 - LEAST_GAIN) * errors[best]:
            best = wanted
        wanted = pilot.family.neighbour(errors, best)
    return best


def _trial(pilot: Pilot, request: OnlineRequest) -> WidthTrial:
    count = min(pilot.rows.n_rows, JUDGED_ROWS, JUDGED_BYTES // (8 * max(pilot.rows.n_features, 1)))
    block = drop_absent(pilot.rows.take(np.arange(count)))
    return WidthTrial(replace(block, features=pilot.learned.metric.apply(block.features)), request)
