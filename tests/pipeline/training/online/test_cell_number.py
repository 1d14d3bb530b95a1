"""The number of cells, chosen by rows left out of a pilot."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.jobs.recording import Notes

from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.metric.candidate import JudgedErrors
from ridgestream.pipeline.metric.contest import KernelFamily
from ridgestream.pipeline.metric.learning import LearnedMetric, Round
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.sums.row_set import ArrayRows
from ridgestream.pipeline.training.online.cell_number import (
    ROWS_A_CELL,
    NumberTrial,
    best_number,
    choose_number,
    count_number_trial_rows,
    most_cells,
)
from ridgestream.pipeline.training.online.choice import Trial, choose_for_learner, count_trial_rows
from ridgestream.pipeline.training.pilot import Pilot
from ridgestream.pipeline.training.request import EXPERTS, THRESHOLDS, OnlineRequest

N = 600
RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, size=(N, 2))
REQUEST = OnlineRequest(
    name="m",
    kernel="rbf",
    kernel_parameters={},
    regularization=1e-5,
    max_basis=8,
    novelty_threshold=1e-2,
    usefulness_threshold=1e-4,
    scaling_rows=100,
    chooses=frozenset({"kernel.gamma", "regularization", EXPERTS}),
)


def pilot(targets: np.ndarray[tuple[int], np.dtype[np.float64]], n_all: int = N) -> Pilot:
    errors = JudgedErrors(0.3, 0.3, 0.3, N // 5)
    best = Round(N, 25, 1.0, 1e-3, errors, kept=True)
    family = KernelFamily(lambda given: RBF(gamma=given or 1.0), 2)
    learned = LearnedMetric(Metric.standardized(2), best, (best,))
    return Pilot(ArrayRows(X, targets), n_all, is_full=n_all > N, family=family, learned=learned)


WAVES = np.sin(4 * X[:, 0]) * np.cos(4 * X[:, 1])
"""Far more bumps than a dictionary of eight vectors can follow."""


def trial(n_cells: int, pooled: float, later: float) -> NumberTrial:
    return NumberTrial(n_cells, 1_000 / n_cells, 1.0, Trial(JudgedErrors(later, pooled, pooled, 10_000), 0.1))


@pytest.mark.parametrize(
    ("tried", "best"),
    [
        ([(1, 1.0, 1.0), (4, 0.8, 0.8), (12, 0.5, 0.5)], 12),
        ([(1, 1.0, 1.0), (4, 0.99, 0.99), (12, 0.985, 0.985)], 1),  # one dictionary is as good
        ([(1, 1.0, 1.0), (4, 0.80, 0.8), (12, 0.79, 0.79)], 12),
        ([(1, 1.0, 0.9), (4, 0.8, 0.9), (12, 0.5, 1.2)], 1),  # cells remember places: later rows decide
        ([(1, 1.0, 1.0), (4, np.inf, np.inf), (12, 0.5, 0.5)], 12),
    ],
)
def test_the_best_number_is_taken_unless_one_dictionary_is_about_as_good(
    tried: Sequence[tuple[int, float, float]], best: int
) -> None:
    assert best_number([trial(*each) for each in tried]).n_cells == best


GIVEN = {"kernel_parameters": {"gamma": 1.0}}


@pytest.mark.parametrize(
    ("changes", "alone", "numbers"),
    [
        ({}, 4 * 0.8, 1 + 4 * 2),
        (GIVEN, 0.8, 1 + 2),
        ({"kernel": "linear"}, 0.8, 1 + 2),
        ({**GIVEN, "chooses": frozenset({"max_basis", EXPERTS})}, 0, 1 + 1),
        ({"max_basis": 30}, 4 * 0.8, 1 + 4),
    ],
)
def test_the_rows_of_trials_are_counted_before_them(changes: dict[str, Any], alone: float, numbers: int) -> None:
    request = replace(REQUEST, **changes)
    assert count_trial_rows(request, N) == round(alone * N)
    assert count_number_trial_rows(request, N) == round(alone * N) + numbers * round(0.64 * N)
    assert count_trial_rows(replace(request, selection="fixed"), N) == 0


@pytest.mark.parametrize(
    ("n_rows", "basis", "most"),
    [(10, 200, 1), (50_000, 10, 1_000), (50_000, 200, 390), (4_000, 8, 100), (10**9, 100, 1_000)],
)
def test_every_cell_has_its_rows(n_rows: int, basis: int, most: int) -> None:
    assert most_cells(n_rows, basis) == most


def test_cells_are_scaled_to_the_rows_of_the_first_training() -> None:
    """The rows of a cell, and its penalty, are those of the trial, whatever the number of rows."""
    chosen, notes = [], Notes()
    for n_all in (N, 4 * N):
        chosen.append(choose_number(pilot(WAVES, n_all), REQUEST, notes))
        assert chosen[-1].trials is not None
        best = min(chosen[-1].trials.tolist(), key=lambda row: row[4])
        assert best[0] > 1
        assert chosen[-1].experts <= n_all // 40
        assert chosen[-1].regularization == best[3] / best[1]
    assert chosen[1].experts >= 3.9 * chosen[0].experts
    assert chosen[0].centres is not None
    assert chosen[0].centres.shape == (chosen[0].experts, 2)
    tried = [facts["cells"] for code, facts in notes.events if code == "pilot.cells_tried"]
    assert tried == 2 * [1, 3, 9]


def test_one_dictionary_is_taken_where_it_is_as_good_with_the_settings_that_it_has_without_a_choice() -> None:
    flat = pilot(0.1 * X[:, 0] + 0.5 * RNG.normal(size=N))
    chosen = choose_number(flat, REQUEST, Notes())
    assert chosen.trials is not None
    assert chosen == choose_for_learner(flat, replace(REQUEST, chooses=REQUEST.chooses - {EXPERTS}), Notes())
    assert (chosen.experts, chosen.centres) == (1, None)


def test_where_rows_do_not_fill_two_cells_none_are_tried() -> None:
    notes = Notes()
    open_size = replace(REQUEST, chooses=REQUEST.chooses | {"max_basis"})
    few = replace(pilot(WAVES), rows=ArrayRows(X[:300], WAVES[:300]))
    chosen = choose_number(few, open_size, notes)
    assert 3 * ROWS_A_CELL > 300
    assert (chosen.experts, chosen.trials) == (1, None)
    assert "pilot.cells_tried" not in notes.codes


def test_rows_that_are_all_alike_make_one_cell_or_few() -> None:
    rows = replace(pilot(WAVES), rows=ArrayRows(np.repeat(X[:2], N // 2, axis=0), np.repeat(WAVES[:2], N // 2)))
    assert choose_number(rows, REQUEST, Notes()).experts <= 2


def test_cells_have_lower_thresholds_unless_others_are_given() -> None:
    given = choose_number(pilot(WAVES), REQUEST, Notes())
    opened = choose_number(pilot(WAVES), replace(REQUEST, chooses=REQUEST.chooses | THRESHOLDS), Notes())
    assert (given.experts > 1, given.thresholds) == (True, {})
    assert (opened.experts > 1, opened.thresholds) == (True, {"novelty_threshold": 1e-3, "usefulness_threshold": 1e-5})
    request = replace(REQUEST, chooses=REQUEST.chooses | {"novelty_threshold"}).with_choice(opened)
    assert (request.novelty_threshold, request.usefulness_threshold) == (1e-3, 1e-4)
