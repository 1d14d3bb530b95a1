"""The circles of time stamps as nodes of an ONNX graph; see `features.calendar`.

Days are distinguished by integers: those since the first of March of the year 0, in cycles of 400 years, as in Howard
Hinnant's "chrono-compatible low-level date algorithms".
"""

import numpy as np
from onnx import TensorProto

from ridgestream.pipeline.exports.onnx.graph import Graph, Value
from ridgestream.pipeline.features.calendar import DAY_SECONDS, HOUR, THURSDAY, WEEKDAY

_MARCH_OF_YEAR_0 = 719_468
"""Days from then to 1970."""

_CYCLE_DAYS, _CENTURY_DAYS, _FOUR_YEARS_DAYS = 146_097, 36_524, 1_460
_MARCH_TO_JANUARY, _JANUARY_TO_MARCH = 306, 59
"""Days from the first of one month to that of the other, without a leap day."""


def add_circle(graph: Graph, cycle: str, seconds: str, missing: float) -> str:
    """Add sine and cosine (rows, 2) of time stamps (rows,), seconds since 1970; `missing` where they are NaN."""
    is_missing = graph.add("IsNaN", seconds)
    whole = graph.add("Floor", graph.add("Where", is_missing, 0.0, seconds))
    angle = _add_angle(graph, cycle, graph.add("Cast", whole, to=TensorProto.INT64))
    # as sines alone: onnxruntime had no cosine of doubles for long
    points = [graph.add("Sin", angle), graph.add("Sin", graph.add("Add", angle, np.pi / 2))]
    columns = [graph.add("Unsqueeze", graph.add("Where", is_missing, missing, p), np.array([1])) for p in points]
    return graph.add("Concat", *columns, axis=1)


def _add_angle(graph: Graph, cycle: str, seconds: str) -> str:
    """Add the angle (rows,) of whole seconds since 1970."""
    if cycle == HOUR:
        return _add_turn(graph, graph.add("Mod", seconds, DAY_SECONDS), DAY_SECONDS)
    days = _divide(graph, seconds, DAY_SECONDS)
    if cycle == WEEKDAY:
        return _add_turn(graph, graph.add("Mod", graph.add("Add", days, THURSDAY), 7), 7)
    return _add_turn(graph, *_add_day_of_year(graph, days))


def _add_turn(graph: Graph, position: str, length: Value) -> str:
    """Add 2π position / length."""
    as_double = graph.add("Cast", position, to=TensorProto.DOUBLE)
    lengths = graph.add("Cast", length, to=TensorProto.DOUBLE)
    return graph.add("Div", graph.add("Mul", as_double, 2 * np.pi), lengths)


def _add_day_of_year(graph: Graph, days: str) -> tuple[str, str]:
    """Add the day of the year (rows,), from 0, of days since 1970, and the length of that year (rows,)."""
    day = graph.add("Mod", graph.add("Add", days, _MARCH_OF_YEAR_0), _CYCLE_DAYS)
    leaps = [(-1, _FOUR_YEARS_DAYS), (1, _CENTURY_DAYS), (-1, _CYCLE_DAYS - 1)]
    year = _divide(graph, _add_quotients(graph, day, day, leaps), 365)
    since_march = _add_quotients(graph, graph.add("Sub", day, graph.add("Mul", year, 365)), year, [(-1, 4), (1, 100)])
    is_later = graph.add("GreaterOrEqual", since_march, _MARCH_TO_JANUARY)
    leap = _add_leap(graph, graph.add("Add", year, graph.add("Cast", is_later, to=TensorProto.INT64)))
    before = graph.add("Add", graph.add("Add", since_march, _JANUARY_TO_MARCH), leap)
    day_of_year = graph.add("Where", is_later, graph.add("Sub", since_march, _MARCH_TO_JANUARY), before)
    return day_of_year, graph.add("Add", leap, 365)


def _add_leap(graph: Graph, year: str) -> str:
    """Add 1 (rows,) for leap years and 0 for others."""
    divides = [
        graph.add("Cast", graph.add("Equal", graph.add("Mod", year, by), 0), to=TensorProto.INT64)
        for by in (4, 100, 400)
    ]
    return graph.add("Add", graph.add("Sub", divides[0], divides[1]), divides[2])


def _add_quotients(graph: Graph, start: str, value: str, terms: list[tuple[int, int]]) -> str:
    """Add start + Σ sign ⌊value / divisor⌋ of terms (sign, divisor)."""
    for sign, divisor in terms:
        start = graph.add("Add" if sign > 0 else "Sub", start, _divide(graph, value, divisor))
    return start


def _divide(graph: Graph, value: str, divisor: int) -> str:
    """Add ⌊value / divisor⌋: integer division alone would round towards zero."""
    return graph.add("Div", graph.add("Sub", value, graph.add("Mod", value, divisor)), divisor)
