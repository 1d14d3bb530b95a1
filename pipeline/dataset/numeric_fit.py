"""Fits the numeric columns of a feature map: numbers and booleans, and time stamps as circles or elapsed time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.features.calendar import CYCLES, HOUR, has_hours
from ridgestream.pipeline.features.columns import NumericColumn
from ridgestream.pipeline.sums.moments import Moments
from ridgestream.stores.schema.column_rules import CALENDAR, COMMON, ELAPSED, RAW, ColumnRules
from ridgestream.stores.schema.column_types import BOOLEAN, TIMESTAMP
from ridgestream.stores.schema.schema import Feature, Schema
from ridgestream.stores.segments.segment_format import SegmentFacts
from ridgestream.stores.segments.segments import SegmentSource

_HOUR_ROWS = 65_536
"""Rows in which an hour of the day is looked for, at most."""


@dataclass(frozen=True)
class HoursReader:
    """Looks for time stamps with an hour of the day in the rows that fix the standardization."""

    segments: SegmentSource
    """The segments of the rows."""
    scaling: Mapping[int, SegmentFacts]
    """The statistics of these rows, by segment."""

    def has_hours(self, position: int) -> bool:
        """Return whether a value of a numeric column is not midnight; reads rows only if no extreme value is."""
        extremes = np.array([facts.moments[3:, position] for facts in self.scaling.values()])
        if has_hours(extremes[np.isfinite(extremes)]):
            return True
        rows = 0
        for number in self.scaling:
            segment = self.segments[number]
            some = segment.read(0, min(segment.rows, _HOUR_ROWS - rows))
            rows += len(some)
            if has_hours(some.numeric[:, position].astype(np.float64)):
                return True
            if rows >= _HOUR_ROWS:
                break
        return False


def fit_numeric(schema: Schema, rules: ColumnRules, moments: Moments, hours: HoursReader) -> tuple[NumericColumn, ...]:
    """Return the numeric columns of a schema, by the moments of the rows that fix the standardization."""
    common = np.array([rules.rule_of(feature) == COMMON for feature in schema.numeric], dtype=np.bool_)
    scale = _common_scale(moments, common)
    columns = []
    for position, feature in enumerate(schema.numeric):
        column = _standardized(feature, moments.take([position]))
        if feature.kind == TIMESTAMP:
            column = _with_calendar(column, rules.rule_of(feature), position, hours)
        elif rules.rule_of(feature) == RAW:
            column = replace(column, centre=0.0, scale=1.0, distinct=2)
        elif common[position] and scale is not None:
            column = replace(column, scale=scale, distinct=2)
        columns.append(column)
    return tuple(columns)


def _standardized(feature: Feature, moments: Moments) -> NumericColumn:
    """Return a column by the moments of its values (1,); the centre of equal values is exactly their value."""
    is_constant, count = bool(moments.constant()[0]), float(moments.count[0])
    centre = float(moments.minimum[0] if is_constant and count > 0 else moments.mean[0])
    column = NumericColumn.fit(feature.name, centre, float(moments.deviation()[0]), is_boolean=feature.kind == BOOLEAN)
    return replace(column, distinct=(2 - is_constant) if count > 0 else 0)


def _common_scale(moments: Moments, common: npt.NDArray[np.bool_]) -> float | None:
    """Return the root of the mean variance of the columns that share a scale; None if none of them varies."""
    varying = common & ~moments.constant()
    if not varying.any():
        return None
    return float(np.sqrt(np.mean(moments.deviation()[varying] ** 2)))


def _with_calendar(column: NumericColumn, rule: str | None, position: int, hours: HoursReader) -> NumericColumn:
    """Return a time stamp with its circles, but the hour of the day of days, and with its elapsed time if asked for."""
    if rule == ELAPSED:
        return column
    cycles = tuple(cycle for cycle in CYCLES if cycle != HOUR or hours.has_hours(position))
    if rule == CALENDAR:
        return replace(column, cycles=cycles, is_linear=False, distinct=2)
    return replace(column, cycles=cycles)
