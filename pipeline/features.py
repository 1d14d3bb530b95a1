"""From raw columns to standardized features: numbers scaled, categories turned into scaled indicators, targets scaled.

A FeatureMap is frozen at a model's first training, so that no later partition can change what earlier rows meant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.arrays import Floats
from ridgestream.pipeline.errors import InputError
from ridgestream.pipeline.moments import Moments


@dataclass(frozen=True)
class FeatureMap:
    """Raw columns to features: numeric columns first, then the indicators of each categorical column."""

    numeric: tuple[str, ...]
    """The numeric columns."""
    categorical: tuple[str, ...]
    """The categorical columns."""
    categories: tuple[tuple[str, ...], ...]
    """For each categorical column, the value of each indicator."""
    centre: tuple[float, ...]
    """What is subtracted from each feature, in its raw units, n_features numbers."""
    scale: tuple[float, ...]
    """What each feature is divided by then; one for a column that was constant when the map was frozen."""
    target_centre: tuple[float, ...]
    """What is subtracted from each target; zero for classes."""
    target_scale: tuple[float, ...]
    """What each target is divided by then; one for classes."""

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.centre)

    @classmethod
    def freeze(
        cls,
        numeric: Sequence[str],
        categorical: Sequence[str],
        moments: Moments,
        targets: Moments | None,
        weights_of: Sequence[Mapping[str, float]],
        categories: Sequence[Sequence[str]],
    ) -> Self:
        """Standardize by these moments and category weights; `targets` None leaves one target as it is.

        `weights_of` holds, for each categorical column, the weight of the rows with each value among the rows that the
        moments were taken of; `categories` every value that gets an indicator.
        """
        centre, scale = list(moments.mean), list(moments.deviation())
        for values, weights in zip(categories, weights_of, strict=True):
            total = sum(weights.values())
            shares = np.array([weights.get(value, 0.0) / total if total else 0.0 for value in values])
            spread = np.sqrt(shares * (1 - shares))
            centre += list(shares)
            scale += list(np.where(spread > 0, spread, 1.0))
        return cls(
            tuple(numeric),
            tuple(categorical),
            tuple(tuple(values) for values in categories),
            tuple(float(v) for v in centre),
            tuple(float(v) for v in scale),
            tuple(float(v) for v in targets.mean) if targets else (0.0,),
            tuple(float(v) for v in targets.deviation()) if targets else (1.0,),
        )

    def code_maps(self, tables: Sequence[Sequence[str]]) -> list[npt.NDArray[np.int64]]:
        """Return, for each categorical column, the indicator of each code of `tables`.

        Raises InputError naming the column and the first value for which this map has no indicator.
        """
        maps = []
        for name, values, table in zip(self.categorical, self.categories, tables, strict=True):
            known = {value: position for position, value in enumerate(values)}
            unseen = [value for value in table if value not in known]
            if unseen:
                raise InputError(
                    f"column {name!r} has the category {unseen[0]!r}, which the model has not seen when it was first "
                    "trained; begin a new model with --new-model, or correct the rows"
                )
            maps.append(np.array([known[value] for value in table], dtype=np.int64))
        return maps

    def features(
        self,
        numeric: npt.NDArray[np.floating],
        codes: npt.NDArray[np.int32],
        maps: Sequence[npt.NDArray[np.int64]],
    ) -> Floats:
        """Return standardized features, shape (rows, n_features), float64; O(n_features) a row."""
        features = np.zeros((len(numeric), self.n_features))
        features[:, : numeric.shape[1]] = numeric
        first, every = numeric.shape[1], np.arange(len(numeric))
        for position, (values, positions) in enumerate(zip(self.categories, maps, strict=True)):
            if len(numeric):
                features[every, first + positions[codes[:, position]]] = 1.0
            first += len(values)
        features -= np.array(self.centre)
        features /= np.array(self.scale)
        return features

    def scaled_targets(self, targets: Floats) -> Floats:
        """Return targets in the learner's units, shape (rows, n_targets)."""
        return np.asarray((targets - np.array(self.target_centre)) / np.array(self.target_scale))

    def raw_targets(self, scaled: Floats) -> Floats:
        """Return predictions in the user's units, shape (rows, n_targets)."""
        return np.asarray(scaled * np.array(self.target_scale) + np.array(self.target_centre))

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Make it from what `as_dict` returned, or JSON made of that."""
        tables = tuple(tuple(values) for values in plain["categories"])
        return cls(**{key: tuple(value) for key, value in plain.items()} | {"categories": tables})
