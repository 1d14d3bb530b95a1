"""Time stamps as points on circles, against the calendar of the standard library."""

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.features.calendar import CYCLES, DAY_OF_YEAR, HOUR, WEEKDAY, circle_points, has_hours

MOMENTS = st.datetimes(datetime(1800, 1, 1), datetime(2300, 1, 1), timezones=st.just(UTC))


def share_of_cycle(cycle: str, moment: datetime) -> float:
    if cycle == HOUR:
        return (moment.hour * 3600 + moment.minute * 60 + moment.second) / 86_400
    if cycle == WEEKDAY:
        return moment.weekday() / 7
    first, last = date(moment.year, 1, 1), date(moment.year + 1, 1, 1)
    return (moment.date() - first) / (last - first)


@pytest.mark.parametrize("cycle", CYCLES)
@given(moment=MOMENTS)
def test_a_moment_is_where_the_calendar_has_it(cycle: str, moment: datetime) -> None:
    seconds = (moment.replace(microsecond=0) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    angle = 2 * np.pi * share_of_cycle(cycle, moment)
    (point,) = circle_points(cycle, np.array([seconds + 0.5]))
    np.testing.assert_allclose(point, [np.sin(angle), np.cos(angle)], atol=1e-12)


def test_the_last_moment_of_a_cycle_is_beside_the_first() -> None:
    begin = datetime(2024, 1, 1, tzinfo=UTC).timestamp()  # a Monday
    steps = {HOUR: timedelta(seconds=1), WEEKDAY: timedelta(days=1), DAY_OF_YEAR: timedelta(days=1)}
    for cycle, step in steps.items():
        before, at, after = circle_points(cycle, begin + step.total_seconds() * np.array([-1.0, 0.0, 1.0]))
        assert np.linalg.norm(at - before) == pytest.approx(np.linalg.norm(after - at), rel=0.01)


@pytest.mark.parametrize("cycle", CYCLES)
def test_bits_do_not_depend_on_the_rows_beside(cycle: str) -> None:
    seconds = np.random.default_rng(0).uniform(-1e9, 3e9, 1000)
    whole = circle_points(cycle, seconds)
    parts = [circle_points(cycle, seconds[start : start + 7]) for start in range(0, 1000, 7)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1.0)


@pytest.mark.parametrize("cycle", CYCLES)
def test_a_missing_time_is_the_middle_of_the_circle(cycle: str) -> None:
    points = circle_points(cycle, np.array([np.nan, 0.0]))
    assert points[0].tolist() == [0.0, 0.0]
    assert np.linalg.norm(points[1]) == pytest.approx(1.0)


def test_days_have_no_hours() -> None:
    days = 86_400.0 * np.array([0.0, -3.0, np.nan, 20_000.0])
    assert not has_hours(days)
    assert has_hours(days + 1.0)
