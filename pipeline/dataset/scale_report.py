"""What a person should know of the columns when a feature map is fitted, and when an open scale is fixed later."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.dataset.feature_map_fit import find_scaling, sum_categories
from ridgestream.pipeline.features.columns import NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.sums.moments import Moments, merge_moments
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.segments.segment_format import SegmentFacts
from ridgestream.stores.segments.segments import SegmentSource

LARGE_SHARE = 0.1
"""A scale rests on few rows if one of them alone makes up more than this share of the variance …"""

MOST_OF_ROWS = 20.0
"""… and more than so many times what a row does on average."""

RARE_ROWS = 10.0
"""A category is rare in fewer rows, of weight one …"""

ENOUGH_ROWS = 100.0
"""… if there are so many in all."""

_NAMED = 10
"""Columns or categories that are named at most."""


def report_fitted(
    segments: SegmentSource, ledger: Ledger, scaling_rows: int | None, feature_map: FeatureMap, report: Reporter
) -> None:
    """Report what is unusual in the columns of a new model's feature map."""
    facts = list(find_scaling(segments, [entry.segment for entry in ledger.entries], scaling_rows).values())
    n_numeric = len(feature_map.numeric)
    moments = merge_moments([Moments.from_array(f.moments[:, :n_numeric]) for f in facts], n_numeric)
    _report_uninformative(feature_map, moments, facts, report)
    calendar = [f"{c.name} ({', '.join(c.cycles)})" for c in feature_map.numeric if not c.is_linear]
    if calendar:
        report.say(events.FEATURES_TIMES_AS_CALENDAR, columns=_named(calendar))
    _report_few_rows(_names_of_few(feature_map.numeric, moments), report)
    rare = list(_rare_categories(feature_map, facts))
    if rare:
        report.say(events.FEATURES_CATEGORIES_RARE, categories=len(rare), rows=_named(rare))


def _report_uninformative(
    feature_map: FeatureMap, moments: Moments, facts: Sequence[SegmentFacts], report: Reporter
) -> None:
    """Report the columns without a value among the rows to standardize by, and those that have one value only."""
    different = np.where(moments.count > 0, 2 - moments.constant(), 0).tolist()
    present = [sum_categories(facts, position).values() for position in range(len(feature_map.categorical))]
    different += [sum(weight > 0 for weight in weights) for weights in present]
    names = [c.name for c in feature_map.numeric] + [c.name for c in feature_map.categorical]
    valueless, constant = ([name for name, n in zip(names, different, strict=True) if n == values] for values in (0, 1))
    if valueless:
        report.warn(events.FEATURES_COLUMNS_WITHOUT_VALUES, columns=", ".join(valueless))
    if constant:
        report.say(events.FEATURES_COLUMNS_CONSTANT, columns=", ".join(constant))


def _report_few_rows(names: Sequence[str], report: Reporter) -> None:
    if names:
        report.say(events.FEATURES_SCALE_FROM_FEW_ROWS, columns=_named(names))


def _names_of_few(columns: Sequence[NumericColumn], moments: Moments) -> list[str]:
    """Return the columns, scaled by values with these moments, whose scale rests on few rows or two values."""
    each = zip(columns, moments.deviation().tolist(), rests_on_few(moments).tolist(), strict=True)
    return [column.name for column, scale, few in each if few and column.is_linear and column.scale == scale]


def rests_on_few(moments: Moments) -> npt.NDArray[np.bool_]:
    """Return for which columns a few rows make up most of the variance, or there are two values only, with fractions.

    Two whole numbers are taken for a flag or a code. Rows are taken to be of weight one.
    """
    up, down = moments.maximum - moments.mean, moments.mean - moments.minimum
    with np.errstate(invalid="ignore", over="ignore"):  # columns without values
        share = np.maximum(LARGE_SHARE, MOST_OF_ROWS / np.maximum(moments.count, 1.0))
        rests = np.maximum(up, down) ** 2 > share * moments.squares
        fractions = (moments.minimum % 1 != 0) | (moments.maximum % 1 != 0)
    return np.asarray((rests | (moments.two_valued() & fractions)) & ~moments.constant())


def _rare_categories(feature_map: FeatureMap, facts: Sequence[SegmentFacts]) -> Iterator[str]:
    """Yield the categories that few rows have, with their number."""
    for position, column in enumerate(feature_map.categorical):
        weights = sum_categories(facts, position)
        if sum(weights.values()) >= ENOUGH_ROWS:
            rare = ((category, weight) for category, weight in weights.items() if 0 < weight < RARE_ROWS)
            yield from (f"{column.name}={category} ({weight:g})" for category, weight in rare)


@dataclass
class OpenScales:
    """The scales that a training fixes: of columns that have had one value, or none, in all rows before."""

    feature_map: FeatureMap
    """The feature map so far."""
    opened: list[str] = field(default_factory=list)
    """The columns that now have a scale, each with the partition that it comes from."""
    few: list[str] = field(default_factory=list)
    """Those whose scale rests on few rows."""

    def add(self, entry: LedgerEntry, facts: SegmentFacts) -> None:
        """Fix the scales of columns that vary from this partition on."""
        before = self.feature_map
        moments = Moments.from_array(facts.moments[:, : len(before.numeric)])
        self.feature_map = before.opened(moments)
        if self.feature_map is before:
            return
        pairs = enumerate(zip(before.numeric, self.feature_map.numeric, strict=True))
        new = [position for position, (was, now) in pairs if was.distinct < now.distinct == 2]
        columns = [self.feature_map.numeric[position] for position in new]
        self.opened += [f"{column.name} (scale {column.scale:.4g}, from {entry.name})" for column in columns]
        self.few += _names_of_few(columns, moments.take(new))

    def report(self, report: Reporter) -> None:
        """Report the columns."""
        if self.opened:
            report.say(events.FEATURES_SCALE_FIXED_LATER, columns=_named(self.opened))
        _report_few_rows(self.few, report)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
