"""Widths and penalties that the learner chooses on a pilot's rows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.jobs.recording import Notes

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.events import STEP_TRY_CELLS
from ridgestream.pipeline.kernels import RBF, Kernel
from ridgestream.pipeline.metric.candidate import JudgedErrors
from ridgestream.pipeline.metric.contest import KernelFamily
from ridgestream.pipeline.metric.learning import LearnedMetric, Round
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import LEARNED
from ridgestream.pipeline.online.experts.cells import Cells
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.sums.row_set import ArrayRows
from ridgestream.pipeline.training.online import choice
from ridgestream.pipeline.training.online.cell_trial import CellTrial, try_cells
from ridgestream.pipeline.training.online.choice import FirstRows, LearnerTrials, Trial, choose_for_learner
from ridgestream.pipeline.training.pilot import Pilot
from ridgestream.pipeline.training.request import Choice, OnlineRequest

N = 400
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = np.sin(3 * X[:, 0]) + 0.2 * RNG.normal(size=N)
REQUEST = OnlineRequest(
    name="m",
    kernel="rbf",
    kernel_parameters={},
    regularization=1e-5,
    max_basis=60,
    novelty_threshold=1e-2,
    usefulness_threshold=1e-4,
    scaling_rows=100,
    chooses=frozenset({"kernel.gamma", "regularization"}),
)


def pilot(gamma: float = 0.5, *, n_rows: int = N, is_full: bool = False, chooses: bool = True) -> Pilot:
    errors = JudgedErrors(0.3, 0.3, 0.3, n_rows // 5)
    best = Round(n_rows, 25, gamma, 1e-3, errors, kept=True)
    family = KernelFamily(lambda given: RBF(gamma=given or gamma), 2, chooses=chooses, given=(gamma,))
    learned = LearnedMetric(Metric.standardized(2), best, (best,))
    return Pilot(ArrayRows(X[:n_rows], Y[:n_rows]), n_rows, is_full=is_full, family=family, learned=learned)


def fake_errors(monkeypatch: pytest.MonkeyPatch, errors: dict[float, float]) -> None:
    def run(_: LearnerTrials, kernel: Kernel) -> Trial:
        error = errors.get(kernel.parameters()["gamma"], 9.0)
        return Trial(JudgedErrors(error, 0.0, error, N // 5), 2.0)

    monkeypatch.setattr(LearnerTrials, "run", run)


def test_a_width_that_suits_the_target_is_found_from_a_wide_one_on() -> None:
    """sin(3x) wants a narrower kernel than γ = 1/16; each doubling is tried as long as it gains."""
    notes = Notes()
    chosen = choose_for_learner(pilot(1 / 16), REQUEST, notes)
    assert chosen.gamma is not None
    assert chosen.gamma >= 0.125
    assert 1e-3 <= chosen.regularization * N <= 10


def test_the_penalty_is_that_of_the_best_trial_for_as_many_rows_as_the_pilot_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_errors(monkeypatch, {0.5: 1.0, 1.0: 0.8})
    assert choose_for_learner(pilot(), REQUEST, Notes()) == Choice(1.0, 2.0 / N, 1_000)


@pytest.mark.parametrize(("is_full", "gamma"), [(False, 0.5), (True, 1.0)])
def test_of_widths_about_as_good_the_narrowest_is_taken_if_more_rows_may_follow(
    is_full: bool, gamma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_errors(monkeypatch, {0.25: 1.01, 0.5: 1.0, 1.0: 1.03, 2.0: 1.03})
    assert choose_for_learner(pilot(is_full=is_full), REQUEST, Notes()).gamma == gamma


def test_where_neighbours_are_no_better_a_far_narrower_kernel_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the pilot's own model is 0.3."""
    fake_errors(monkeypatch, {8.0: 0.5, 16.0: 0.4})
    notes = Notes()
    assert choose_for_learner(pilot(2.0**-13), REQUEST, notes).gamma == 16.0
    assert "pilot.learner_falls_short" not in notes.codes


def test_no_kernel_narrower_than_one_far_worse_than_the_best_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_errors(monkeypatch, {0.25: 0.8, 0.5: 0.7, 1.0: 0.9, 4.0: 1.3, 16.0: 1.5, 64.0: 0.1})
    notes = Notes()
    assert choose_for_learner(pilot(), REQUEST, notes).gamma == 0.5
    assert notes.codes.count("pilot.width_tried") == 5


def test_a_learner_far_worse_than_the_pilot_s_own_model_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_errors(monkeypatch, {})
    notes = Notes()
    choose_for_learner(pilot(), REQUEST, notes)
    assert "pilot.learner_falls_short" in notes.codes


def test_a_given_gamma_is_tried_alone_for_its_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_errors(monkeypatch, {0.5: 1.0, 1.0: 0.1})
    notes = Notes()
    assert choose_for_learner(pilot(chooses=False), REQUEST, notes) == Choice(0.5, 2.0 / N, 1_000)


def test_with_few_rows_the_pilot_s_choice_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(choice.LearnerTrials, "run")
    few = pilot(n_rows=choice.FEWEST_ROWS - 1)
    assert choose_for_learner(few, REQUEST, Notes()) == few.choice


def test_each_of_few_rows_judges_once_besides_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    judged, losses = [], LearnerTrials.losses

    def recorded(trials: LearnerTrials, kernel: Kernel, penalties: Sequence[float]) -> Floats:
        judged.append(losses(trials, kernel, penalties))
        return judged[-1]

    monkeypatch.setattr(LearnerTrials, "losses", recorded)
    trials, kernel = LearnerTrials(FirstRows(pilot(), N), REQUEST), RBF(gamma=2.0)
    few = trials.run(kernel).errors
    assert np.sum(judged, axis=0)[0, :, 2].tolist() == [N // 5, N]
    monkeypatch.setattr(choice, "FEW_ROWS", N - 1)
    many = trials.run(kernel).errors
    assert (few.later_rows, many.later_rows, many.random) == (N // 5, N // 5, 0.0)
    assert few.random == pytest.approx(many.later, rel=0.5)


def test_a_learner_that_breaks_down_is_not_chosen() -> None:
    trial = LearnerTrials(FirstRows(pilot(), N), REQUEST).run(RBF(gamma=1e-300))
    assert trial.error > 0.3


def test_experts_are_judged_in_cells_and_their_penalty_is_that_of_a_cell_s_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request, tried = replace(REQUEST, experts=4, max_basis=20), []
    run = LearnerTrials.run

    def recorded(trials: LearnerTrials, kernel: Kernel) -> Trial:
        tried.append((trials.n_learners, run(trials, kernel)))
        return tried[-1][1]

    monkeypatch.setattr(LearnerTrials, "run", recorded)
    chosen = choose_for_learner(pilot(), request, Notes())
    assert {n for n, _ in tried} == {4}
    assert chosen.regularization in {penalty * 4 / N for penalty in choice.EXPERT_PENALTIES}
    assert min(trial.error for _, trial in tried) < 0.3


@pytest.mark.parametrize("is_moving", [False, True])
def test_widths_are_tried_in_cells_that_have_enough_rows_of_each_kind(is_moving: bool) -> None:
    """Even where all of the last rows lie in a few cells."""
    rows = replace(pilot(), rows=ArrayRows(np.sort(X, axis=0), Y)) if is_moving else pilot()
    centres = rows.rows.take(np.arange(0, N, 10)).features
    every = LearnerTrials(FirstRows(rows, N), replace(REQUEST, experts=len(centres)), centres)
    some = replace(every, fewest_rows=N // 8)
    learned, cells = np.isin(Cells.of(centres).nearest(some.learned.features), some.tried_cells), some.tried_cells
    assert learned.sum() >= N // 8
    assert learned.sum() < N // 4 or is_moving
    assert len(cells) < len(every.tried_cells) == len(centres)
    errors, all_errors = some.run(RBF(gamma=2.0)).errors, every.run(RBF(gamma=2.0)).errors
    assert N // 40 <= errors.later_rows < all_errors.later_rows == N // 5
    assert errors.later == pytest.approx(all_errors.later, rel=1.0)


def test_a_cell_learns_the_same_whether_or_not_others_are_tried() -> None:
    centres, settings = X[:8], OnlineSettings(kernel=RBF(gamma=2.0), max_basis=20)
    rows, first = pilot().rows, FirstRows(pilot(), N).trial()
    routed = Cells.of(centres).nearest(first.group(first.of(rows.take(np.arange(N))), LEARNED).features)
    some, every = (
        rows.reduce(try_cells, CellTrial(first, settings, centres, routed, cells), STEP_TRY_CELLS, parts=1).packed
        for cells in (np.array([2, 5]), np.arange(8))
    )
    assert [len(packed) > 0 for packed in some] == [cell in (2, 5) for cell in range(8)]
    assert all(np.array_equal(some[cell], every[cell]) for cell in (2, 5))
