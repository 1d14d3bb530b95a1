"""The calendar of time stamps: the hour of the day, the day of the week and of the year, each as a point on a circle.

A circle has no end, so tomorrow lies among the days that were learned, where the time elapsed does not. Its points have
radius one: two of them are as far apart as two values of a standardized column are, on average.
"""

from functools import cache

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers

HOUR, WEEKDAY, DAY_OF_YEAR = "hour", "weekday", "day_of_year"
CYCLES = (HOUR, WEEKDAY, DAY_OF_YEAR)

DAY_SECONDS = 86_400
THURSDAY = 3
"""The weekday of the first of January 1970, from Monday, 0."""

_YEARS = (365, 366)


def circle_points(cycle: str, seconds: Floats) -> Floats:
    """Return sine and cosine of time stamps (rows,), seconds since 1970 in UTC, shape (rows, 2).

    Fractions of a second are dropped. NaN, a missing time, is the circle's middle.
    """
    missing = np.isnan(seconds)
    whole = np.floor(np.where(missing, 0.0, seconds)).astype(np.int64)
    points = _table(cycle)[_position(cycle, whole)]
    points[missing] = 0.0
    return points


def _position(cycle: str, seconds: Integers) -> Integers:
    """Return the row of `_table` of each time stamp."""
    days, second = np.divmod(seconds, DAY_SECONDS)
    if cycle == HOUR:
        return second
    if cycle == WEEKDAY:
        return np.asarray((days + THURSDAY) % 7)
    dates = days.astype("datetime64[D]")
    years = dates.astype("datetime64[Y]")
    begin, end = years.astype("datetime64[D]"), (years + 1).astype("datetime64[D]")
    is_leap = (end - begin).astype(np.int64) == _YEARS[1]
    return np.asarray((dates - begin).astype(np.int64) + np.where(is_leap, _YEARS[0], 0))


@cache
def _table(cycle: str) -> Floats:
    """Return the points of a circle, computed once: a sine may differ in its last bit from one array to another."""
    circles = {HOUR: (DAY_SECONDS,), WEEKDAY: (7,), DAY_OF_YEAR: _YEARS}[cycle]
    angles = np.concatenate([2 * np.pi * np.arange(length) / length for length in circles])
    return np.column_stack([np.sin(angles), np.cos(angles)])


def has_hours(seconds: Floats) -> bool:
    """Return whether a time stamp (rows,) is not midnight, so that the hour says something."""
    return bool((np.mod(seconds[~np.isnan(seconds)], DAY_SECONDS) != 0).any())
