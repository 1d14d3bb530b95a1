"""Columns of a feature map: how each raw column becomes standardized features.

A number is one feature, centred and scaled by the statistics of the fitting rows, and compressed if some of its values
are far out. A time stamp is two features for each
of its circles, and one more if its elapsed time counts. A categorical column is one indicator for each known category,
which is 1 in the rows of that category and 0 elsewhere, and may be centred and scaled, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.features.compression import Compression
from ridgestream.pipeline.sums.moments import Moments

Codes = npt.NDArray[np.integer]


@dataclass(frozen=True)
class NumericColumn:
    """A number, boolean or timestamp."""

    name: str
    """The column's name."""
    centre: float
    """Subtracted from the value, in the column's own units."""
    scale: float
    """Divides the centred value; 1 for a column that was constant in the fitting rows."""
    fill: float
    """Replaces a missing value, in the column's own units."""
    cycles: tuple[str, ...] = ()
    """The circles of a time stamp, names of CYCLES."""
    is_linear: bool = True
    """Whether its standardized value is a feature; False for a time stamp of which only the circles are."""
    distinct: int = 2
    """How many different values the learned rows have, 2 for more; with fewer, the scale is open."""
    spread: float = 0.0
    """Of a compressed column, what divides asinh z, with z its standardized value; 0 for a column that is not."""

    @classmethod
    def fit(cls, name: str, mean: float, deviation: float, *, is_boolean: bool) -> Self:
        """Return the column standardized by this mean and standard deviation."""
        fill = float(mean > 0.5) if is_boolean else mean
        return cls(name, mean, deviation, fill)

    def with_boolean_fill(self) -> Self:
        """Return the column that fills by false or true: in older maps, a boolean's fill is its mean."""
        return self if self.fill in (0.0, 1.0) else replace(self, fill=float(self.centre > 0.5))

    def compressed(self, by: Compression) -> Self:
        """Return the column with its value compressed; a missing one is its median."""
        centre, fill = self.centre + self.scale * by.origin, self.centre + self.scale * by.median
        return replace(self, centre=centre, scale=self.scale * by.unit, fill=fill, spread=by.spread)

    def is_opened_by(self, low: float, high: float) -> bool:
        """Return whether rows with these extremes say more of an open scale; without values, low is above high."""
        is_known = self.distinct > 1 or (self.distinct == 1 and low == high == self.centre)
        return low <= high and not is_known

    def opened(self, moments: Moments) -> Self:
        """Return the column after rows whose values have these moments (1,): an open scale is fixed once they vary.

        The feature of every row before is zero, and remains zero, so that no kernel value between them changes. The
        scale of two values is their distance, as that of a plain indicator: the second one may be in a single row.
        """
        low, high, mean = (float(each[0]) for each in (moments.minimum, moments.maximum, moments.mean))
        if not self.is_opened_by(low, high):
            return self
        scale = high - low if moments.two_valued()[0] else float(moments.deviation()[0])
        if self.distinct:
            return replace(self, scale=scale if low < high else abs(low - self.centre), distinct=2)
        is_binary = (low, high) == (0.0, 1.0)
        centre = low if low == high else float(mean > 0.5) if is_binary else mean
        return replace(self, centre=centre, fill=centre, scale=scale, distinct=1 + (low < high))


@dataclass(frozen=True)
class CategoricalColumn:
    """A text or integer column, one indicator for each category."""

    name: str
    """The column's name."""
    categories: tuple[str, ...]
    """The category of each indicator."""
    centre: tuple[float, ...]
    """Subtracted from each indicator: its category's share of the fitting rows."""
    scale: tuple[float, ...]
    """Divides each centred indicator; 1 where all or none of the fitting rows had the category."""
    fill: int | None = None
    """The indicator of a missing value, −1 for none; None for that with the largest centre."""

    @classmethod
    def plain(cls, name: str, categories: Sequence[str], weights: Mapping[str, float]) -> Self:
        """Return the column whose indicators are 0 and 1; a missing value is the category of the largest weight."""
        fitted = cls.fit(name, categories, weights)
        zeros, ones = (0.0,) * len(categories), (1.0,) * len(categories)
        return cls(name, tuple(categories), zeros, ones, fitted.fill_indicator())

    @classmethod
    def fit(cls, name: str, categories: Sequence[str], weights: Mapping[str, float]) -> Self:
        """Return the column standardized by the weight of the fitting rows of each category.

        A category without a weight has an indicator that is neither centred nor scaled.
        """
        total = sum(weights.values())
        shares = np.array([weights.get(category, 0.0) / total if total else 0.0 for category in categories])
        spread = np.sqrt(shares * (1 - shares))
        scale = np.where(spread > 0, spread, 1.0)
        return cls(name, tuple(categories), tuple(shares.tolist()), tuple(scale.tolist()))

    def unseen(self, categories: Sequence[str]) -> tuple[str, ...]:
        """Return the categories that have no indicator, in their order."""
        known = set(self.categories)
        return tuple(category for category in categories if category not in known)

    def extended(self, categories: Sequence[str]) -> Self:
        """Return the column with further indicators, last, which are neither centred nor scaled.

        So each of them is zero in every row of another category.
        """
        added = len(categories)
        return replace(
            self,
            categories=(*self.categories, *categories),
            centre=self.centre + (0.0,) * added,
            scale=self.scale + (1.0,) * added,
        )

    def code_map(self, table: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the indicator of each code of a category table, shape (len(table) + 1,); −1 for none.

        The last entry belongs to the code −1, a missing value: it is the most frequent category of the fitting rows.
        """
        indicators = {category: indicator for indicator, category in enumerate(self.categories)}
        codes = [indicators.get(category, -1) for category in table]
        return np.array([*codes, self.fill_indicator()], dtype=np.int64)

    def set_indicators(self, features: Floats, codes: Codes, code_map: npt.NDArray[np.int64]) -> None:
        """Set the indicators of rows to 1 in `features` (rows, n_categories), all zero before.

        `codes` (rows,) are those of the table of `code_map`. A row of a category without indicator stays all zero.
        """
        indicators = code_map[codes]
        rows = np.arange(len(indicators))
        known = slice(None) if indicators.min(initial=0) >= 0 else indicators >= 0
        features[rows[known], indicators[known]] = 1.0

    def fill_indicator(self) -> int:
        """Return `fill`, or the indicator with the largest share, of several the first in text order; −1 for none."""
        if self.fill is not None:
            return self.fill
        every = range(len(self.categories))
        best = min(every, key=lambda i: (-self.centre[i], self.categories[i]), default=-1)
        return best if best >= 0 and self.centre[best] > 0 else -1
