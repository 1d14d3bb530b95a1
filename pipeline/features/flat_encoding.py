"""The stored form of a feature map: parallel lists over its columns, as JSON has them since version 0.1.0.

Checkpoints are found again by a hash of this form, so that it must not change while `FeatureMap` may. What maps have
beyond it is in `flat_additions.py`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, ClassVar, Self

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.features.columns import CategoricalColumn, NumericColumn
from ridgestream.pipeline.features.one_vs_rest import Label, count_outputs
from ridgestream.pipeline.features.target_map import TargetMap

_OPTIONAL = ("classes", "fill", "extended_by")
"""Keys that are absent from the JSON where they are empty, as in stores older than they are."""


@dataclass(frozen=True)
class FlatEncoding:
    """A feature map as parallel tuples: the numeric columns first, then the indicators of each categorical column."""

    hashed_as: ClassVar[str] = "FeatureMap"

    numeric: tuple[str, ...]
    """The names of the numeric columns."""
    categorical: tuple[str, ...]
    """The names of the categorical columns."""
    categories: tuple[tuple[str, ...], ...]
    """For each categorical column, the category of each indicator."""
    centre: tuple[float, ...]
    """The centre of each feature, n_features numbers."""
    scale: tuple[float, ...]
    """The scale of each feature, n_features numbers."""
    target_centre: tuple[float, ...]
    """The centre of each output."""
    target_scale: tuple[float, ...]
    """The scale of each output."""
    classes: tuple[Label, ...] = ()
    """The classes, if each is learned against the rest."""
    fill: tuple[float, ...] = ()
    """What replaces a missing value of each numeric column; empty if it is the centre in all of them."""
    extended_by: int = 0
    """How many indicators were added after the map was fitted."""

    @classmethod
    def of(
        cls,
        numeric: Sequence[NumericColumn],
        categorical: Sequence[CategoricalColumn],
        target: TargetMap,
        extended_by: int,
    ) -> Self:
        """Return the flat form of these columns and targets."""
        means = tuple(column.centre for column in numeric)
        fill = tuple(column.fill for column in numeric)
        return cls(
            numeric=tuple(column.name for column in numeric),
            categorical=tuple(column.name for column in categorical),
            categories=tuple(column.categories for column in categorical),
            centre=(*means, *chain.from_iterable(column.centre for column in categorical)),
            scale=(
                *(column.scale for column in numeric),
                *chain.from_iterable(column.scale for column in categorical),
            ),
            target_centre=target.centre,
            target_scale=target.scale,
            classes=target.classes,
            fill=() if fill == means else fill,
            extended_by=extended_by,
        )

    def numeric_columns(self) -> tuple[NumericColumn, ...]:
        """Return the numeric columns."""
        n_numeric = len(self.numeric)
        fill = self.fill or self.centre[:n_numeric]
        features = zip(self.numeric, self.centre[:n_numeric], self.scale[:n_numeric], fill, strict=True)
        return tuple(NumericColumn(*feature) for feature in features)

    def categorical_columns(self) -> tuple[CategoricalColumn, ...]:
        """Return the categorical columns."""
        ends = accumulate(map(len, self.categories), initial=len(self.numeric))
        tables = zip(self.categorical, self.categories, pairwise(ends), strict=True)
        return tuple(
            CategoricalColumn(name, categories, self.centre[start:stop], self.scale[start:stop])
            for name, categories, (start, stop) in tables
        )

    def target_map(self) -> TargetMap:
        """Return the map of the targets."""
        return TargetMap(self.target_centre, self.target_scale, self.classes)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object, without optional keys that are empty."""
        return {key: value for key, value in asdict(self).items() if value or key not in _OPTIONAL}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Read the JSON object of `as_dict`; raises InputError for anything else."""
        try:
            tables = tuple(tuple(categories) for categories in plain["categories"])
            lists = {key: tuple(value) for key, value in plain.items() if not isinstance(value, int)}
            encoding = cls(**{**plain, **lists, "categories": tables})
            is_sound = all(encoding._checks())
        except (TypeError, ValueError, LookupError) as error:
            raise InputError(f"this is no feature map: {error}") from error
        if not is_sound:
            raise InputError("this is no feature map: its parts do not belong together")
        return encoding

    def _checks(self) -> Iterator[bool]:
        """Yield whether the parts are of their types, and of sizes that belong together."""
        numbers = (*self.centre, *self.scale, *self.target_centre, *self.target_scale, *self.fill)
        yield all(type(number) in (int, float) and abs(number) < math.inf for number in numbers)
        yield all(type(name) is str for name in (*self.numeric, *self.categorical, *chain(*self.categories)))
        yield all(isinstance(label, str | int | float) for label in self.classes)
        yield len(self.categorical) == len(self.categories)
        n_features = len(self.numeric) + sum(map(len, self.categories))
        yield len(self.centre) == len(self.scale) == n_features
        yield len(self.target_centre) == len(self.target_scale) > 0
        yield not self.classes or len(self.target_centre) == count_outputs(len(self.classes))
        yield len(self.fill) in (0, len(self.numeric))
        yield all(number > 0 for number in (*self.scale, *self.target_scale))
        yield type(self.extended_by) is int and 0 <= self.extended_by <= n_features
