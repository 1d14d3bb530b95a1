"""From raw columns to features: numbers first, then the circles of time stamps, then indicators of categories.

They are standardized, and then transformed by the model's metric if it has learned one.

A FeatureMap is fitted once, at a model's first training, so that no later partition changes the meaning of earlier
rows. It may be extended by indicators of new categories, and a column that has had one value only may get its scale:
both are zero in every earlier row.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.features.calendar import circle_points
from ridgestream.pipeline.features.columns import CategoricalColumn, NumericColumn
from ridgestream.pipeline.features.compression import Compression
from ridgestream.pipeline.features.flat_additions import FlatAdditions
from ridgestream.pipeline.features.flat_encoding import FlatEncoding
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.sums.moments import Moments

UNSEEN_REMEDY = (
    "begin a new model with --new-model, correct the rows, or choose a policy for such rows: "
    'source.unseen_categories = "ignore" or "extend"'
)
"""What to do about a category that a model does not know."""

_CLASS_WEIGHTS = "class_weights"
"""The key of the weights of classes in the JSON, absent where there are none."""

_SPREADS = "spreads"
"""The key of each numeric column's spread in the JSON, absent where none is compressed."""


@dataclass(frozen=True)
class FeatureMap:
    """The columns of a model's rows, and its targets."""

    numeric: tuple[NumericColumn, ...]
    """The columns of numbers, booleans and time stamps."""
    categorical: tuple[CategoricalColumn, ...]
    """The categorical columns, one feature for each of their categories."""
    target: TargetMap
    """The targets."""
    extended_by: int = 0
    """How many indicators were added after the map was fitted."""
    metric: Metric | None = None
    """The learned metric; None for that of the standardized features."""

    @property
    def n_features(self) -> int:
        """The number of features."""
        return self._ends[-1]

    @property
    def n_fitted(self) -> int:
        """The number of features when the map was fitted; a kernel's default scale depends on it."""
        return self.n_features - self.extended_by

    @cached_property
    def centre(self) -> Floats:
        """What is subtracted from each raw feature, shape (n_features,)."""
        return self._per_feature([c.centre for c in self.linear], 0.0, [c.centre for c in self.categorical])

    @cached_property
    def scale(self) -> Floats:
        """What divides each centred feature, before it is compressed, shape (n_features,)."""
        return self._per_feature([c.scale for c in self.linear], 1.0, [c.scale for c in self.categorical])

    def _per_feature(self, linear: Sequence[float], circles: float, categorical: Sequence[tuple[float, ...]]) -> Floats:
        between = (circles,) * (2 * len(self.circles))
        return np.array([*linear, *between, *chain.from_iterable(categorical)], dtype=np.float64)

    @cached_property
    def linear(self) -> tuple[NumericColumn, ...]:
        """The numeric columns whose value is a feature."""
        return tuple(self.numeric[position] for position in self._linear_positions)

    @cached_property
    def _linear_positions(self) -> list[int]:
        return [position for position, column in enumerate(self.numeric) if column.is_linear]

    @cached_property
    def compressed(self) -> tuple[tuple[int, float], ...]:
        """The position and the spread of each compressed feature."""
        return tuple((position, column.spread) for position, column in enumerate(self.linear) if column.spread)

    @cached_property
    def circles(self) -> tuple[tuple[int, str], ...]:
        """The position of its numeric column and the name of each circle, two features."""
        return tuple((position, cycle) for position, column in enumerate(self.numeric) for cycle in column.cycles)

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """Where each categorical column begins among the features, and where the last one ends."""
        first = len(self.linear) + 2 * len(self.circles)
        return tuple(accumulate((len(c.categories) for c in self.categorical), initial=first))

    def with_booleans(self, names: Sequence[str]) -> Self:
        """Return the map that fills missing values of these columns as booleans."""
        return replace(self, numeric=tuple(c.with_boolean_fill() if c.name in names else c for c in self.numeric))

    def opened(self, moments: Moments) -> Self:
        """Return the map after rows whose numeric columns have these moments; see `NumericColumn.opened`."""
        extremes = zip(self.numeric, moments.minimum.tolist(), moments.maximum.tolist(), strict=True)
        news = [position for position, (column, *each) in enumerate(extremes) if column.is_opened_by(*each)]
        if not news:
            return self
        numeric = list(self.numeric)
        for position in news:
            numeric[position] = numeric[position].opened(moments.take([position]))
        return replace(self, numeric=tuple(numeric))

    def compressed_by(self, compressions: Mapping[int, Compression]) -> Self:
        """Return the map with numeric columns compressed, by their position among those whose value is a feature."""
        numeric = list(self.numeric)
        for linear, compression in compressions.items():
            position = self._linear_positions[linear]
            numeric[position] = numeric[position].compressed(compression)
        return replace(self, numeric=tuple(numeric))

    def unseen(self, tables: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """Return, for each categorical column, the values of its table in `tables` that have no indicator."""
        return [column.unseen(table) for column, table in zip(self.categorical, tables, strict=True)]

    def check_categories(self, tables: Sequence[Sequence[str]], remedy: str = UNSEEN_REMEDY) -> None:
        """Raise InputError naming the column and the first value that has no indicator."""
        for column, values in zip(self.categorical, self.unseen(tables), strict=True):
            if values:
                raise InputError(
                    f"column {column.name!r} has the category {values[0]!r}, which the model had not seen when it was "
                    f"first trained; {remedy}"
                )

    def extended(self, tables: Sequence[Sequence[str]]) -> Self:
        """Return the map with an indicator for each value of `tables` that has none, after its column's others."""
        unseen = self.unseen(tables)
        if not any(unseen):
            return self
        columns = tuple(column.extended(values) for column, values in zip(self.categorical, unseen, strict=True))
        extended = replace(self, categorical=columns, extended_by=self.extended_by + sum(map(len, unseen)))
        return extended.measured_as(self)

    def measured_as(self, before: Self) -> Self:
        """Return the map with the metric of one that it extends; each further feature is an axis of average weight."""
        metric = before.metric.extended(before.added_features(self)) if before.metric else None
        return replace(self, metric=metric)

    def added_features(self, extended: Self) -> Integers:
        """Return the positions, for `numpy.insert`, of the features that a map extended from this one has in addition.

        Shape (n_added,); ascending.
        """
        pairs = zip(self.categorical, extended.categorical, strict=True)
        counts = [len(after.categories) - len(before.categories) for before, after in pairs]
        return np.repeat(np.array(self._ends[1:], dtype=np.int64), counts)

    def code_maps(self, tables: Sequence[Sequence[str]]) -> list[npt.NDArray[np.int64]]:
        """Return each categorical column's `code_map` of its table in `tables`."""
        return [column.code_map(table) for column, table in zip(self.categorical, tables, strict=True)]

    def features(
        self,
        numeric: npt.NDArray[np.floating],
        codes: npt.NDArray[np.int32],
        maps: Sequence[npt.NDArray[np.int64]],
    ) -> Floats:
        """Return the features of rows, shape (rows, n_features), float64; O(n_features) a row, or O(n_features²).

        `numeric` (rows, n_numeric) has NaN and `codes` (rows, n_categorical) −1 where a value is missing, which is
        filled. `maps` are the `code_maps` of the tables of `codes`.
        """
        features, circles, linear = np.zeros((len(numeric), self.n_features)), self.circles, self._linear_positions
        features[:, : len(linear)] = numeric if len(linear) == len(self.numeric) else numeric[:, linear]
        self._fill_missing(features)
        for start, (position, cycle) in enumerate(circles):
            first = len(linear) + 2 * start
            features[:, first : first + 2] = circle_points(cycle, numeric[:, position].astype(np.float64))
        ranges = zip(self.categorical, pairwise(self._ends), maps, strict=True)
        for position, (column, (start, stop), code_map) in enumerate(ranges):
            column.set_indicators(features[:, start:stop], codes[:, position], code_map)
        features -= self.centre
        features /= self.scale
        for position, spread in self.compressed:
            features[:, position] = np.arcsinh(features[:, position]) / spread
        return self.metric.apply(features) if self.metric else features

    def _fill_missing(self, features: Floats) -> None:
        """Replace NaN in the numeric features by each column's fill."""
        linear = self.linear
        missing = np.isnan(features[:, : len(linear)])
        for position in np.flatnonzero(missing.any(axis=0)):
            features[missing[:, position], position] = linear[position].fill

    def hashed_form(self) -> object:
        """Return what `hash_of` hashes: the same for a map of any version."""
        later = (*([self.metric.root] if self.metric else ()), *([self.target.class_weights] if self._weighs else ()))
        later += (self._additions,) if self._additions.as_dict() else ()
        later += (self._spreads,) if any(self._spreads) else ()
        return (self._flat(), *later) if later else self._flat()

    @property
    def _weighs(self) -> bool:
        return bool(self.target.class_weights)

    @property
    def _spreads(self) -> tuple[float, ...]:
        return tuple(column.spread for column in self.numeric)

    @property
    def _additions(self) -> FlatAdditions:
        return FlatAdditions.of(self.numeric, self.categorical)

    def _flat(self) -> FlatEncoding:
        return FlatEncoding.of(self.numeric, self.categorical, self.target, self.extended_by)

    def as_dict(self) -> dict[str, Any]:
        """Return the map as a JSON object, without its metric, which is an array."""
        weights = {_CLASS_WEIGHTS: self.target.class_weights} if self._weighs else {}
        spreads = {_SPREADS: self._spreads} if any(self._spreads) else {}
        return self._flat().as_dict() | self._additions.as_dict() | weights | spreads

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], metric: Floats | None = None) -> Self:
        """Read the JSON object of `as_dict`, and R of a learned metric; raises InputError for anything else."""
        own = (_CLASS_WEIGHTS, _SPREADS)
        rest, added = FlatAdditions.split({key: value for key, value in plain.items() if key not in own})
        flat = FlatEncoding.from_dict(rest)
        added.check(len(flat.numeric), [len(categories) for categories in flat.categories])
        numeric = _with_spreads(added.numeric_columns(flat.numeric_columns()), plain)
        columns = numeric, added.categorical_columns(flat.categorical_columns())
        target = replace(flat.target_map(), class_weights=_read_weights(plain, flat))
        feature_map = cls(*columns, target, flat.extended_by, None if metric is None else Metric(metric))
        if metric is not None and len(metric) != feature_map.n_features:
            raise InputError(f"a metric of {len(metric)} features is none of {feature_map.n_features}")
        return feature_map


def _with_spreads(columns: Sequence[NumericColumn], plain: Mapping[str, Any]) -> tuple[NumericColumn, ...]:
    """Return the columns with the spreads of a map's JSON; raises InputError for others than one a column."""
    spreads = plain.get(_SPREADS, (0.0,) * len(columns))
    is_listed = isinstance(spreads, list | tuple) and len(spreads) == len(columns)
    if not is_listed or not all(type(spread) in (int, float) and 0 <= spread < math.inf for spread in spreads):
        raise InputError(f"this is no feature map: its spreads are {spreads!r:.100}")
    return tuple(replace(column, spread=spread) for column, spread in zip(columns, spreads, strict=True))


def _read_weights(plain: Mapping[str, Any], flat: FlatEncoding) -> tuple[float, ...]:
    """Return the weights of classes of a map's JSON; raises InputError for others than a positive one a class."""
    weights = tuple(plain.get(_CLASS_WEIGHTS, ()))
    is_sound = all(type(weight) in (int, float) and 0 < weight < math.inf for weight in weights)
    if not (is_sound and len(weights) in (0, len(flat.classes) or 2)):
        raise InputError(f"this is no feature map: its weights of classes are {weights!r:.100}")
    return weights
