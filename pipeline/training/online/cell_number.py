"""The number of cells of a new model, judged by the learners themselves on rows left out of the pilot.

One dictionary is compared with cells that have ever fewer rows each. What is chosen is the number of rows of a cell:
the first training has as many cells as its own rows fill. Rows left out at random judge, and the last ones, which
decide where the two disagree: many cells remember places, which does not help where the rows of tomorrow lie elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan, sqrt
from typing import Any

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.reporter import Reporter, Silent
from ridgestream.pipeline.metric.candidate import Verdict
from ridgestream.pipeline.metric.split import FOLDS, LATER_SHARE
from ridgestream.pipeline.models.cell_trials import TRIAL
from ridgestream.pipeline.online.settings import CELL_THRESHOLDS
from ridgestream.pipeline.training.online.cells import centres_of
from ridgestream.pipeline.training.online.choice import (
    FirstRows,
    LearnerTrials,
    Trial,
    best_width,
    choose_for_learner,
    count_trial_rows,
    count_widths,
    first_rows,
    sized,
)
from ridgestream.pipeline.training.pilot import Pilot
from ridgestream.pipeline.training.request import EXPERT_BASIS, EXPERTS, MAX_BASIS, Choice, OnlineRequest

ROWS_A_VECTOR = 5
"""The rows of a cell for each vector that it may have are enough for it."""

ROWS_A_CELL = 128
"""So many rows are enough for any cell, since it takes few vectors for them."""

MOST_CELLS = 1_000
"""The largest number of cells that is chosen."""

FEWEST_CELLS = 3
"""The smallest number of several cells that is tried."""

RATIO = 3
"""The ratio of one number of cells to the next that is tried."""

LEAST_GAIN = 0.01
"""By which share of the error more cells must be better, besides one over the root of the number of rows that judge."""


@dataclass(frozen=True)
class NumberTrial:
    """What a number of cells came to."""

    n_cells: int
    """The number; 1 for one dictionary."""
    rows_each: float
    """The rows that a cell learned in the mean."""
    gamma: float | None
    """The best γ; None for a kernel without."""
    trial: Trial
    """Its trial."""

    @property
    def row(self) -> list[float]:
        """The values of TRIAL, as a record keeps them."""
        errors, gamma = self.trial.errors, nan if self.gamma is None else self.gamma
        return [self.n_cells, self.rows_each, gamma, self.trial.penalty, errors.random, errors.later]


def choose_number(pilot: Pilot, request: OnlineRequest, report: Reporter) -> Choice:
    """Return the settings of one dictionary or, where cells are better, of cells; O(max_basis²) a row, number and γ."""
    alone = replace(request, chooses=request.chooses - {EXPERTS})
    one = choose_for_learner(pilot, alone, report)
    numbers = _Numbers(pilot, alone, report)
    if not numbers.several:
        return one
    tried = numbers.try_all(one)
    best, table = best_number(tried), np.array([each.row for each in tried])
    return replace(one if best.n_cells == 1 else numbers.choice(best), trials=table)


def most_cells(n_rows: int, basis: int) -> int:
    """Return how many cells with dictionaries of at most this size so many rows can fill, at least 1."""
    return max(1, min(n_rows // min(ROWS_A_VECTOR * basis, ROWS_A_CELL), MOST_CELLS))


def cell_basis(request: OnlineRequest) -> int:
    """Return the size of the dictionary of a cell, if the number of cells is chosen."""
    return EXPERT_BASIS if MAX_BASIS in request.chooses or request.max_basis is None else request.max_basis


def count_number_trial_rows(request: OnlineRequest, n_rows: int) -> int:
    """Return how many rows learners learn, as a rule, while `choose_number` has a pilot of so many rows."""
    alone, learned = count_trial_rows(request, n_rows), round((1 - LATER_SHARE) * (1 - 1 / FOLDS) * n_rows)
    several = _numbers(most_cells(learned, cell_basis(request)))
    return alone + (1 + count_widths(request) * len(several)) * learned if several else alone


def _numbers(most: int) -> list[int]:
    """Return the numbers of more than one cell that are tried, up to `most`, ascending."""
    return [most // RATIO**power for power in range(10) if most // RATIO**power >= FEWEST_CELLS][::-1]


def best_number(tried: Sequence[NumberTrial]) -> NumberTrial:
    """Return the best number of cells, or one dictionary, the first of `tried`, if that is about as good."""
    verdict = Verdict.of([each.trial.errors for each in tried])
    errors = [each.trial.errors.later if verdict.by_later else each.trial.error for each in tried]
    later_rows = max(each.trial.errors.later_rows for each in tried)
    margin = LEAST_GAIN + 1 / sqrt(max(later_rows, 1))
    return tried[0] if errors[0] <= (1 + margin) * min(errors) else tried[verdict.index]


@dataclass(frozen=True)
class _Numbers:
    """Numbers of cells, tried on a pilot's rows."""

    pilot: Pilot
    request: OnlineRequest
    report: Reporter

    @property
    def basis(self) -> int:
        return cell_basis(self.request)

    @property
    def thresholds(self) -> dict[str, Any]:
        """Those of cells, as far as the request leaves them open."""
        return {name: value for name, value in CELL_THRESHOLDS.items() if name in self.request.chooses}

    @cached_property
    def rows(self) -> FirstRows:
        return first_rows(self.pilot, self.pilot.rows.n_rows)

    @cached_property
    def learned_rows(self) -> int:
        """The number of rows that a trial learns; the others judge."""
        return len(LearnerTrials(self.rows, self.request, leaves_out=True).learned.features)

    @property
    def several(self) -> list[int]:
        """The numbers of more than one cell that are tried, ascending."""
        return _numbers(most_cells(self.learned_rows, self.basis))

    def try_one(self, choice: Choice) -> NumberTrial:
        """Return the trial of one dictionary with its settings."""
        trials = LearnerTrials(self.rows, sized(self.request, choice), leaves_out=True)
        return self._done(trials, choice.gamma, trials.run(self.pilot.family.make(choice.gamma)))

    def try_all(self, choice: Choice) -> list[NumberTrial]:
        """Return the trials of one dictionary and of each number, with the best γ from that of the best before on."""
        request, tried = replace(self.request, max_basis=self.basis, **self.thresholds), [self.try_one(choice)]
        for number in self.several:
            trials = LearnerTrials(self.rows, request, self._centres(number, Silent()), leaves_out=True)
            first = min(tried, key=lambda each: each.trial.error).gamma
            tried.append(self._done(trials, *best_width(self.pilot, trials, Silent(), first)))
        return tried

    def choice(self, best: NumberTrial) -> Choice:
        """Return the settings of cells with so many rows each of the first training, or as these can fill."""
        number = min(round(self.pilot.n_all / best.rows_each), most_cells(self.pilot.n_all, self.basis))
        centres = self._centres(number, self.report)
        regularization = best.trial.penalty / best.rows_each
        return Choice(best.gamma, regularization, self.basis, len(centres), self.thresholds, centres)

    def _centres(self, number: int, report: Reporter) -> Floats:
        return centres_of(self.rows.row_set, replace(self.request, experts=number), report)

    def _done(self, trials: LearnerTrials, gamma: float | None, trial: Trial) -> NumberTrial:
        done = NumberTrial(trials.n_learners, self.learned_rows / trials.n_learners, gamma, trial)
        self.report.say(events.PILOT_CELLS_TRIED, **dict(zip(TRIAL, done.row, strict=True)))
        return done
