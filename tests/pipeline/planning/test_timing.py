"""The time of a stream from that of its first rows: the dictionary grows as it did there, or no more."""

import pytest

from ridgestream.pipeline.planning.timing import Timing, _Piece


@pytest.mark.parametrize(
    ("sizes", "max_basis", "factor"),
    [
        ((50, 50, 50, 50), 1000, 1.0),
        ((10, 20, 30, 40), 1000, 2.0**2),
        ((10, 20, 30, 40), 60, 1.5**2),
        ((40,), 1000, 8.0**2),
        ((0, 0), None, 1.0),
    ],
)
def test_a_late_row_costs_what_the_dictionary_that_is_in_reach_costs(
    sizes: tuple[int, ...], max_basis: int | None, factor: float
) -> None:
    """Pieces of 100 rows, a tenth of a second each, of 800 rows."""
    timing = Timing(_pieces=[_Piece(100, 0.1, n_basis) for n_basis in sizes])
    estimate = timing.stream_estimate(max_basis, 800)
    assert estimate.rows == 100 * len(sizes)
    assert estimate.row_seconds == pytest.approx(0.001 * factor)


def test_a_training_that_was_timed_to_its_end_costs_what_it_took() -> None:
    timing = Timing(started=2.0, stopped=5.0, _pass_seconds=[0.5, 1.5])
    estimate = timing.whole_estimate(1000)
    assert (estimate.row_seconds, estimate.fixed_seconds, estimate.seconds) == (0.002, 1.0, 3.0)
