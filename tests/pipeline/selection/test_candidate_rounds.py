"""Look-ahead: draws depend on seed, round and rows alone; rows are fetched once for many rounds; the plan of passes."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.selection.candidate_rounds import (
    IDLE_ROUNDS,
    AllCandidates,
    DrawnCandidates,
    count_passes,
    cut_idle,
    draw_round,
    largest_pass,
    plan_look_ahead,
)
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import ArrayRows

Integers = npt.NDArray[np.int64]


class CountedRows(ArrayRows):
    """Rows that count how often they are fetched."""

    times = 0

    def take(self, places: Integers) -> RowBlock:
        type(self).times += 1
        return super().take(places)


def draw_rows(n: int, weights: npt.NDArray[np.float64] | None = None) -> CountedRows:
    return CountedRows(np.random.default_rng(1).standard_normal((n, 3)), np.zeros((n, 1)), weights)


@given(seed=st.integers(0, 2**40), number=st.integers(0, 5000), n_rows=st.integers(1, 10**7), wanted=st.integers(1, 80))
def test_a_round_is_drawn_without_repeats_and_reproducibly(seed: int, number: int, n_rows: int, wanted: int) -> None:
    drawn = draw_round(seed, number, n_rows, wanted)
    assert len(drawn) == min(n_rows, wanted)
    assert (np.diff(drawn) > 0).all()
    assert 0 <= drawn[0] <= drawn[-1] < n_rows
    assert (drawn == draw_round(seed, number, n_rows, wanted)).all()


def test_rounds_and_streams_differ() -> None:
    draws = [draw_round(seed, number, 10**6, 59, stream) for seed in (0, 1) for number in (0, 1) for stream in (0, 1)]
    assert len({tuple(draw.tolist()) for draw in draws}) == 8


def test_candidates_of_rounds_are_the_drawn_rows_without_chosen_and_absent_ones() -> None:
    weights = np.ones(50)
    weights[::7] = 0.0
    rows, chosen = draw_rows(50, weights), np.array([4, 11, 30])
    candidates = DrawnCandidates(rows, 9, 12).of_rounds(0, 5, 40, chosen)
    assert candidates.rounds is not None
    for number, columns in enumerate(candidates.rounds):
        drawn = draw_round(9, number, 50, 12)
        assert candidates.places[columns].tolist() == [p for p in drawn if weights[p] > 0 and p not in chosen]
    assert (candidates.features == rows.features[candidates.places]).all()
    assert (np.diff(candidates.places) > 0).all()


@pytest.mark.parametrize("size", [1, 3, 16])
def test_rows_are_fetched_once_for_several_rounds(size: int) -> None:
    rows = draw_rows(1000)
    source = DrawnCandidates(rows, 0, 20)
    CountedRows.times = 0
    ahead = [source.of_rounds(first, size, 48 - first, np.arange(0)) for first in range(0, 48, size)]
    assert CountedRows.times == 1
    straight = DrawnCandidates(rows, 0, 20).of_rounds(0, 48, 1, np.arange(0))
    assert straight.rounds is not None
    rounds = [part.places[columns].tolist() for part in ahead for columns in part.rounds or ()]
    assert rounds == [straight.places[columns].tolist() for columns in straight.rounds]
    source.of_rounds(48, 2, 1, np.arange(0))
    assert CountedRows.times == 3


def test_all_candidates_are_all_rows_of_positive_weight_without_the_chosen_ones() -> None:
    candidates = AllCandidates(draw_rows(6, np.array([1.0, 0.0, 2.0, 1.0, 0.0, 1.0]))).of_rounds(0, 2, 2, np.array([3]))
    assert candidates.places.tolist() == [0, 2, 5]
    assert candidates.weights.tolist() == [1.0, 2.0, 1.0]
    assert candidates.rounds is None


@given(max_basis=st.integers(1, 5000), share=st.floats(0, 1), candidates=st.integers(1, 500))
def test_the_plan_never_has_more_rounds_than_are_left(max_basis: int, share: float, candidates: int) -> None:
    n_basis = int(share * (max_basis - 1))
    assert 1 <= plan_look_ahead(max_basis, n_basis, candidates) <= max_basis - n_basis


def test_the_more_vectors_the_more_rounds_share_a_pass() -> None:
    plans = [plan_look_ahead(10**6, n_basis) for n_basis in (0, 500, 2000, 10_000)]
    assert plans == sorted(set(plans))
    assert plan_look_ahead(10**6, 500, 1) > plan_look_ahead(10**6, 500, 59)


def test_passes_are_counted() -> None:
    assert count_passes(20, 0, 59, 8) == 3
    assert count_passes(20, 20, 59, None) == 0
    assert count_passes(500, 0, 59, 1) == 500 > count_passes(500, 0, 59, None) > 50


@pytest.mark.parametrize("look_ahead", [None, 1, 8, 1000])
@pytest.mark.parametrize("max_basis", [1, 20, 700])
def test_the_largest_pass_is_planned(max_basis: int, look_ahead: int | None) -> None:
    n_basis, largest = 0, 0
    while n_basis < max_basis:
        ahead = min(look_ahead or plan_look_ahead(max_basis, n_basis), max_basis - n_basis)
        largest = max(largest, n_basis + 59 * ahead)
        n_basis += ahead
    assert largest <= largest_pass(max_basis, 10**6, 59, look_ahead) <= largest + 59 + (look_ahead or 8)
    assert largest_pass(max_basis, 300, 59, look_ahead) <= max_basis + 300
    assert largest_pass(max_basis, 300, "all", look_ahead) == 300


@pytest.mark.parametrize(
    ("rounds", "last", "until", "n_kept", "is_exhausted"),
    [
        ([0, 1, 2], -1, 3, 3, False),
        ([], -1, IDLE_ROUNDS - 1, 0, False),
        ([], 4, 5 + IDLE_ROUNDS, 0, True),
        ([5, 6], 4, 7 + IDLE_ROUNDS, 2, True),
        ([5, 5 + IDLE_ROUNDS], 4, 6 + IDLE_ROUNDS, 2, False),
        ([5, 6 + IDLE_ROUNDS], 4, 7 + IDLE_ROUNDS, 1, True),
    ],
)
def test_choices_after_too_many_idle_rounds_do_not_count(
    rounds: list[int], last: int, until: int, n_kept: int, is_exhausted: bool
) -> None:
    assert cut_idle(np.array(rounds, dtype=np.int64), last, until) == (n_kept, is_exhausted)
