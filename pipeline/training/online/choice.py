"""The settings of the online learner that a pilot chooses, judged by the learner itself on the pilot's first rows.

A dictionary that rows are selected for, one after another, wants a narrower kernel than one drawn at random, by which
the pilot judges; by how much depends on its size and on the thresholds. It wants another penalty, too.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import cast

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputWarning, NumericalBreakdown
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.kernels import KERNELS, Kernel
from ridgestream.pipeline.metric.candidate import JudgedErrors, Verdict
from ridgestream.pipeline.metric.split import FOLDS, JUDGES, LATER_SHARE, LEARNED
from ridgestream.pipeline.models.model_record import Learner
from ridgestream.pipeline.online.experts.cells import Cells
from ridgestream.pipeline.online.experts.local_experts import LocalExperts
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.online.selection_rule import Selection
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.sums.row_block import RowBlock, choose_rows
from ridgestream.pipeline.sums.row_set import ArrayRows
from ridgestream.pipeline.training.online.cell_trial import CellTrial, TrialRows, try_cells
from ridgestream.pipeline.training.online.cells import centres_of
from ridgestream.pipeline.training.pilot import NARROWER_LOSS, Pilot
from ridgestream.pipeline.training.request import MAX_BASIS, REGULARIZATION, Choice, OnlineRequest

JUDGED_ROWS = 16_384
"""The first rows of the pilot that one learner is judged on, at most. Of local experts, those of cells drawn at random
that have as many of all the pilot's rows, so that a cell has as many as it will.
"""

JUDGED_BYTES = 64 * 2**20
"""Their features, at most."""

PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1_000.0)
"""Values of λn, of which the best judges a width."""

EXPERT_PENALTIES = PENALTIES[:4]
"""Those of a cell's learner, which has few rows."""

LEAST_GAIN = 0.01
"""By which share of the error another width must be better."""

FAR = 2.0
"""By which factor of the error of the pilot's own model the learner's is far from it."""

FAR_FROM_MEAN = 0.05
"""The least difference of the two, in units of the targets' variance, that is worth a warning."""

FEW_ROWS = 2_000
"""With so many rows or fewer, each of them judges, too, learners that have not learned its fold: a fifth is noise."""

FEWEST_ROWS = 10
"""With fewer rows, the pilot's own choice stands."""

LARGEST_BASIS = 1_000
"""The largest dictionary of a learner that is judged."""


WIDTHS = 4
"""The widths that are tried where the width is chosen, as a rule."""


@dataclass(frozen=True)
class Trial:
    """What the learner's trial with one kernel came to."""

    errors: JudgedErrors
    """The mean squared errors on the rows that judge; infinite where the learner broke down."""
    penalty: float
    """The λn with which they are least."""

    @property
    def error(self) -> float:
        """The error on all rows that judge."""
        return self.errors.pooled


@dataclass(frozen=True)
class FirstRows:
    """The first rows of a pilot."""

    pilot: Pilot
    """The pilot."""
    count: int
    """Their number, those of weight zero included."""

    def trial(self, *, leaves_out: bool = False) -> TrialRows:
        """Return what processes need to know of them."""
        learned = self.pilot.learned
        return TrialRows(learned.metric, self.count, learned.is_sorted, leaves_out)

    @cached_property
    def block(self) -> RowBlock:
        """Those of weight above zero, measured by the pilot's metric."""
        return self.trial().of(self.pilot.rows.take(np.arange(self.count)))

    @property
    def row_set(self) -> ArrayRows:
        """The same as a row set."""
        return ArrayRows(self.block.features, self.block.targets, self.block.weights)


@dataclass(frozen=True)
class LearnerTrials:
    """The rows on which kernels are tried, and the learner that tries them."""

    rows: FirstRows
    """The first rows of the pilot."""
    request: OnlineRequest
    """The learner's settings."""
    centres: Floats | None = None
    """The centres of cells that have a learner each; None for one learner."""
    leaves_out: bool = False
    """Whether rows left out at random judge, besides the last ones."""
    fold: int | None = None
    """Which fold of few rows judges instead; None for none."""
    fewest_rows: int | None = None
    """Cells drawn at random are tried that have at least so many of the rows that are learned, and a fifth as many of
    those that judge; None for all cells, and for one learner.
    """

    @property
    def n_learners(self) -> int:
        """The number of learners that share the rows."""
        return 1 if self.centres is None else len(self.centres)

    def run(self, kernel: Kernel) -> Trial:
        """Return the errors on the rows that judge, having learned the others in their order.

        They are those of the best penalty of several on the dictionary that was selected, since the λ of a whole stream
        is too small for its first rows.
        """
        penalties = PENALTIES if self.centres is None else EXPERT_PENALTIES
        try:
            with one_blas_thread(), warnings.catch_warnings():
                warnings.simplefilter("ignore", InputWarning)  # a width that suits no row is not taken
                losses = np.sum([trials.losses(kernel, penalties) for trials in (self, *self._folds())], axis=0)
        except NumericalBreakdown:
            return Trial(JudgedErrors(inf, inf, inf, 0), 1.0)
        done = [Trial(_errors(each), p) for each, p in zip(losses, penalties, strict=True)][::-1]
        return done[Verdict.of([trial.errors for trial in done]).index]

    def losses(self, kernel: Kernel, penalties: Sequence[float]) -> Floats:
        """Return Σw, Σw·loss and the number of rows of each judge, by penalty, shape (n_penalties, n_judges, 3)."""
        rows_each = len(self.learned.features) / self.n_learners
        learner = self._learned(self._settings(kernel, rows_each))
        losses = []
        for penalty in penalties:
            learner.set_regularization(penalty / rows_each)
            losses.append([_losses(learner, rows) for rows in self._judges])
        return np.array(losses)

    def _folds(self) -> "list[LearnerTrials]":
        """Return the trials in which each fold of few rows judges; none of cells, or of what is compared with them."""
        is_alone = self.centres is None and not self.leaves_out
        folds = FOLDS if is_alone and len(self.rows.block.features) <= FEW_ROWS else 0
        return [replace(self, fold=fold) for fold in range(folds)]

    @cached_property
    def learned(self) -> RowBlock:
        """The rows that are learned."""
        return self._group(LEARNED)

    @cached_property
    def _routed(self) -> Integers:
        """The cell of each row that is learned."""
        return self._cells.nearest(self.learned.features)

    @cached_property
    def _cells(self) -> Cells:
        return Cells.of(cast("Floats", self.centres))

    @cached_property
    def tried_cells(self) -> Integers:
        """The cells that are tried, in ascending order."""
        order = np.random.default_rng(self.request.pilot_options.random_seed).permutation(self.n_learners)
        if self.fewest_rows is None:
            return np.sort(order)
        fewest = self.fewest_rows * np.array([1.0, LATER_SHARE])
        routed = (self._routed, np.concatenate(self._judges_routed))
        counts = (np.cumsum(np.bincount(cells, minlength=self.n_learners)[order]) for cells in routed)
        return np.sort(order[: 1 + max(map(np.searchsorted, counts, fewest))])

    @cached_property
    def _judges(self) -> list[RowBlock]:
        """The rows of each judge, of cells those of the ones that are tried."""
        if self.fewest_rows is None:
            return self._every_judge
        tried = (np.flatnonzero(np.isin(routed, self.tried_cells)) for routed in self._judges_routed)
        return [choose_rows(rows, own) for rows, own in zip(self._every_judge, tried, strict=True)]

    @cached_property
    def _every_judge(self) -> list[RowBlock]:
        """The rows of each judge, those of cells that are not tried included."""
        return [self._group(judge) for judge in JUDGES]

    @cached_property
    def _judges_routed(self) -> list[Integers]:
        """The cell of each of these rows."""
        return [self._cells.nearest(rows.features) for rows in self._every_judge]

    @property
    def _trial_rows(self) -> TrialRows:
        return replace(self.rows.trial(leaves_out=self.leaves_out), fold=self.fold)

    def _group(self, group: int) -> RowBlock:
        return self._trial_rows.group(self.rows.block, group)

    def _settings(self, kernel: Kernel, n_rows: float) -> OnlineSettings:
        given = 0.0 if REGULARIZATION in self.request.chooses else self.request.regularization
        return OnlineSettings(
            kernel=kernel,
            regularization=max(given, 1.0 / n_rows),
            max_basis=min(self.request.max_basis or LARGEST_BASIS, LARGEST_BASIS),
            novelty_threshold=self.request.novelty_threshold,
            usefulness_threshold=self.request.usefulness_threshold,
            selection=cast("Selection", self.request.selection),
        )

    def _learned(self, settings: OnlineSettings) -> Learner:
        """Return the learner with these settings after the rows that are learned."""
        pilot = self.rows.pilot
        if self.centres is not None:
            trial = CellTrial(self._trial_rows, settings, self.centres, self._routed, self.tried_cells)
            tried = pilot.rows.reduce(try_cells, trial, events.STEP_TRY_CELLS, parts=1)
            return LocalExperts.from_state(replace(trial.state, n_targets=pilot.rows.n_targets, packed=tried.packed))
        empty, learned = OnlineState.empty(settings, pilot.rows.n_features, pilot.rows.n_targets), self.learned
        return OnlineLSSVM.from_state(empty).partial_fit(learned.features, learned.targets, learned.weights)


def _losses(learner: Learner, rows: RowBlock) -> tuple[float, float, float]:
    """Return the sum of the weights of rows, that of their weighted squared errors, and their number."""
    losses = np.mean((learner.predict(rows.features) - rows.targets) ** 2, axis=1)
    weights = np.ones(len(losses)) if rows.weights is None else rows.weights
    return float(weights.sum()), float(weights @ losses), float(len(losses))


def _errors(losses: Floats) -> JudgedErrors:
    """Return the mean errors on the last rows and on those left out at random, from the sums of both, (2, 3)."""
    (later_weight, later, rows), (random_weight, random, _) = losses.tolist()
    mean = random / random_weight if random_weight else 0.0
    return JudgedErrors(later / later_weight, mean, (later + random) / (later_weight + random_weight), int(rows))


def choose_for_learner(pilot: Pilot, request: OnlineRequest, report: Reporter) -> Choice:
    """Return the γ and λ of least error on the rows that judge; O(max_basis²) a row and γ.

    These are the last ones and, if there are few, all of them, fold by fold.

    From the pilot's γ on by doubling and halving, where γ is chosen; of widths that are about as good, the narrowest if
    more rows may follow. The penalty λn is that of as many rows as the pilot has, whatever the rows of the first
    training. Where the dictionary is given, or there are few rows, both are the pilot's; where neither is open, no
    row is read. Local experts are judged in their cells, which the choice returns.
    """
    choice = replace(pilot.choice, regularization=pilot.penalty / max(pilot.rows.n_rows, 1))
    is_open = _chooses_width(pilot, request) or REGULARIZATION in request.chooses
    if request.selection == "fixed" or not is_open:
        return choice
    rows = first_rows(pilot, JUDGED_ROWS if request.experts == 1 else pilot.rows.n_rows)
    if len(rows.block.features) < FEWEST_ROWS:
        return choice
    centres = centres_of(rows.row_set, request, report) if request.experts > 1 else None
    trials = LearnerTrials(rows, sized(request, choice), centres, fewest_rows=None if centres is None else JUDGED_ROWS)
    gamma, trial = best_width(pilot, trials, report, pilot.gamma)
    own = pilot.learned.best.errors.later if pilot.learned.best else trial.errors.later
    if _is_far(pilot, trial) and trial.errors.later > own + FAR_FROM_MEAN:
        report.warn(events.PILOT_LEARNER_FALLS_SHORT, mse_later=trial.errors.later, mse_later_of_sums=own)
    regularization = trial.penalty * trials.n_learners / pilot.rows.n_rows
    return replace(choice, gamma=gamma, regularization=regularization, experts=trials.n_learners, centres=centres)


def count_trial_rows(request: OnlineRequest, n_rows: int) -> int:
    """Return how many rows learners learn, as a rule, while `choose_for_learner` has a pilot of so many rows."""
    widths = count_widths(request)
    if request.selection == "fixed" or not (widths > 1 or REGULARIZATION in request.chooses):
        return 0
    learned = round((1 - LATER_SHARE) * (min(n_rows, JUDGED_ROWS) if request.experts == 1 else n_rows))
    return widths * min(learned, JUDGED_ROWS)


def count_widths(request: OnlineRequest) -> int:
    """Return how many widths are tried, as a rule: 1 where it is given, or the kernel has none."""
    is_given = any("gamma" in given for given in request.kernel_grid)
    return 1 if is_given or not KERNELS[request.kernel].is_stationary else WIDTHS


def best_width(
    pilot: Pilot, trials: LearnerTrials, report: Reporter, first: float | None
) -> tuple[float | None, Trial]:
    """Return the best γ from `first` on, with its trial; `first` where γ is given, or the kernel has no width."""
    results: dict[float | None, Trial] = {}
    best = wanted = first
    while wanted not in results:
        results[wanted] = trials.run(pilot.family.make(wanted))
        report.say(events.PILOT_WIDTH_TRIED, gamma=wanted, mse_later=results[wanted].errors.later)
        if results[wanted].error < (1 - LEAST_GAIN) * results[best].error:
            best = wanted
        following = _following_width(pilot, results, best) if _chooses_width(pilot, trials.request) else None
        wanted = best if following is None else following
    if pilot.is_full and best is not None:
        most = (1 + NARROWER_LOSS) * results[best].error
        best = max(gamma for gamma, trial in results.items() if gamma is not None and trial.error <= most)
    return best, results[best]


def _following_width(pilot: Pilot, results: Mapping[float | None, Trial], best: float | None) -> float | None:
    """Return the γ to be tried next: a neighbour of the best or, while that is far from the pilot's, a narrow one.

    Where a kernel is so wide that all rows look alike, none is new to the dictionary, and its neighbours are no better.
    One that is too narrow is far worse than the best, and a narrower one is not tried.
    """
    neighbour = pilot.family.neighbour(results, best)
    if neighbour is not None or not _is_far(pilot, results[best]):
        return neighbour
    narrowest = max(results, key=lambda gamma: gamma or 0.0)
    is_too_narrow = results[narrowest].error > FAR * results[best].error
    return None if is_too_narrow else pilot.family.far_narrower(results)


def _chooses_width(pilot: Pilot, request: OnlineRequest) -> bool:
    """Return whether γ is chosen, and is a width: a kernel of the inner product has none."""
    return pilot.family.chooses and KERNELS[request.kernel].is_stationary


def _is_far(pilot: Pilot, trial: Trial) -> bool:
    """Return whether a trial's error is a multiple of that of the pilot's own model on its later rows."""
    return pilot.learned.best is not None and trial.errors.later > FAR * pilot.learned.best.errors.later


def sized(request: OnlineRequest, choice: Choice) -> OnlineRequest:
    """Return the request with the chosen size of the dictionary, where it is chosen."""
    return replace(request, max_basis=choice.max_basis) if MAX_BASIS in request.chooses else request


def first_rows(pilot: Pilot, most: int) -> FirstRows:
    """Return the pilot's first rows: `most`, or JUDGED_BYTES."""
    return FirstRows(pilot, min(pilot.rows.n_rows, most, JUDGED_BYTES // (8 * max(pilot.rows.n_features, 1))))
