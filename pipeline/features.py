"""From raw columns to standardized features: numbers scaled, categories turned into scaled indicators, targets scaled.

A FeatureMap is frozen at a model's first training, so that no later partition can change what earlier rows meant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.arrays import Floats, Integers
from ridgestream.pipeline.classes import Label, count_outputs, scores_of, signs_of, spread_of
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
    classes: tuple[Label, ...] = ()
    """The classes that are learned each against the rest, sorted; empty if the targets are anything else."""

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.centre)

    @property
    def n_outputs(self) -> int:
        """The number of the learner's outputs."""
        return len(self.target_centre)

    @classmethod
    def freeze(
        cls,
        numeric: Sequence[str],
        categorical: Sequence[str],
        moments: Moments,
        targets: Moments | None,
        weights_of: Sequence[Mapping[str, float]],
        categories: Sequence[Sequence[str]],
        classes: Sequence[Label] = (),
    ) -> Self:
        """Standardize by these moments and category weights; `targets` None leaves classes as they are.

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
        outputs = count_outputs(len(classes))
        return cls(
            tuple(numeric),
            tuple(categorical),
            tuple(tuple(values) for values in categories),
            tuple(float(v) for v in centre),
            tuple(float(v) for v in scale),
            tuple(float(v) for v in targets.mean) if targets else (0.0,) * outputs,
            tuple(float(v) for v in targets.deviation()) if targets else (1.0,) * outputs,
            tuple(classes),
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

    def check_classes(self, present: Sequence[Label]) -> None:
        """Raise InputError for the first class that is not among this map's."""
        unseen = [label for label in present if label not in self.classes]
        if self.classes and unseen:
            raise InputError(
                f"the target has the class {unseen[0]!r}, which the model had not when it was first trained; begin a "
                "new model with --new-model, or correct the rows"
            )

    def class_positions(self, codes: Floats, table: Sequence[Label]) -> Integers:
        """Return the positions (rows,) among this map's classes of codes of `table` (rows,); −1 for no class of it."""
        known = {label: position for position, label in enumerate(self.classes)}
        positions = np.array([known.get(label, -1) for label in table], dtype=np.int64)
        return positions[codes.astype(np.int64)]

    def targets(self, kept: Floats, table: Sequence[Label]) -> Floats:
        """Return targets as they are predicted, (rows, n_outputs), from those of the store: classes become ±1."""
        return signs_of(self.class_positions(kept[:, 0], table), len(self.classes)) if self.classes else kept

    def class_scores(self, outputs: Floats) -> Floats:
        """Return each class's score (rows, n_classes) from outputs (rows, n_outputs); without classes, the outputs."""
        return scores_of(outputs, len(self.classes))

    def class_deviations(self, deviations: Floats) -> Floats:
        """Return each class's deviation from those of the outputs, shaped as `class_scores` does."""
        return spread_of(deviations, len(self.classes))

    def scaled_targets(self, targets: Floats) -> Floats:
        """Return targets in the learner's units, shape (rows, n_targets)."""
        return np.asarray((targets - np.array(self.target_centre)) / np.array(self.target_scale))

    def raw_targets(self, scaled: Floats) -> Floats:
        """Return predictions in the user's units, shape (rows, n_targets)."""
        return np.asarray(scaled * np.array(self.target_scale) + np.array(self.target_centre))

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it; without classes, as releases that have none know it."""
        plain = asdict(self)
        return plain if self.classes else {key: value for key, value in plain.items() if key != "classes"}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Make it from what `as_dict` returned, or JSON made of that."""
        tables = tuple(tuple(values) for values in plain["categories"])
        return cls(**{key: tuple(value) for key, value in plain.items()} | {"categories": tables})
