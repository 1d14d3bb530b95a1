"""From raw columns to standardized features: numbers scaled, categories turned into scaled indicators, targets scaled.

A FeatureMap is frozen at a model's first training, so that no later partition can change what earlier rows meant. It
may be extended by indicators of new categories, which are zero in every earlier row. A missing value becomes the mean
of the rows that the map was frozen by, or the most frequent value.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.features.one_vs_rest import Label, count_outputs, scores_of, signs_of, spread_of
from ridgestream.pipeline.sums.moments import Moments

OTHER_CATEGORIES = (
    "begin a new model with --new-model, correct the rows, or say what is to become of such rows: "
    'source.unseen_categories = "ignore" or "extend"'
)
"""What to do about a category that a model does not know."""


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
    fill: tuple[float, ...] = ()
    """What stands for a missing value of each numeric column, in its raw units; their centres if empty."""
    extended_by: int = 0
    """How many indicators came after the map was frozen."""

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.centre)

    @property
    def n_frozen(self) -> int:
        """The number of features when the map was frozen, which a kernel's own default scale is made of."""
        return len(self.centre) - self.extended_by

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
        booleans: Sequence[str] = (),
    ) -> Self:
        """Standardize by these moments and category weights; `targets` None leaves classes as they are.

        `weights_of` holds, for each categorical column, the weight of the rows with each value among the rows that the
        moments were taken of; `categories` every value that gets an indicator; `booleans` which numeric columns are
        zero and one. What was missing counts nowhere; a column of which there was no value has the centre 0, scale 1.
        """
        centre, scale = list(moments.mean), list(moments.deviation())
        for values, weights in zip(categories, weights_of, strict=True):
            total = sum(weights.values())
            shares = np.array([weights.get(value, 0.0) / total if total else 0.0 for value in values])
            spread = np.sqrt(shares * (1 - shares))
            centre += list(shares)
            scale += list(np.where(spread > 0, spread, 1.0))
        outputs = count_outputs(len(classes))
        frozen = cls(
            tuple(numeric),
            tuple(categorical),
            tuple(tuple(values) for values in categories),
            tuple(float(v) for v in centre),
            tuple(float(v) for v in scale),
            tuple(float(v) for v in targets.mean) if targets else (0.0,) * outputs,
            tuple(float(v) for v in targets.deviation()) if targets else (1.0,) * outputs,
            tuple(classes),
        )
        return frozen.with_booleans(booleans)

    def with_booleans(self, names: Sequence[str]) -> Self:
        """Return the map that fills these columns by their more frequent value, false if both are, others by the mean.

        Maps of releases that knew no missing values do not say which columns are booleans.
        """
        means = self.centre[: len(self.numeric)]
        fill = tuple(float(m > 0.5) if n in names else m for n, m in zip(self.numeric, means, strict=True))
        return replace(self, fill=() if fill == means else fill)

    def unseen(self, tables: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """Return, for each categorical column, the values of `tables` for which this map has no indicator."""
        return [
            tuple(value for value in table if value not in known)
            for known, table in zip(map(set, self.categories), tables, strict=True)
        ]

    def check_categories(self, tables: Sequence[Sequence[str]], remedy: str = OTHER_CATEGORIES) -> None:
        """Raise InputError naming the column and the first value for which this map has no indicator."""
        for name, values in zip(self.categorical, self.unseen(tables), strict=True):
            if values:
                raise InputError(
                    f"column {name!r} has the category {values[0]!r}, which the model has not seen when it was first "
                    f"trained; {remedy}"
                )

    def extended(self, tables: Sequence[Sequence[str]]) -> Self:
        """Return the map with an indicator for each value of `tables` that has none, after its column's others.

        It is neither centred nor scaled, so it is zero in every row that has another value.
        """
        unseen = self.unseen(tables)
        if not any(unseen):
            return self
        places = self._ends_of_columns([len(values) for values in unseen])
        return replace(
            self,
            categories=tuple((*old, *new) for old, new in zip(self.categories, unseen, strict=True)),
            centre=tuple(np.insert(self.centre, places, 0.0).tolist()),
            scale=tuple(np.insert(self.scale, places, 1.0).tolist()),
            extended_by=self.extended_by + len(places),
        )

    def places_of_new(self, extended: Self) -> Integers:
        """Return where the features of a map extended from this one are new, as places for `numpy.insert`."""
        return self._ends_of_columns(
            [len(new) - len(old) for old, new in zip(self.categories, extended.categories, strict=True)]
        )

    def _ends_of_columns(self, counts: Sequence[int]) -> Integers:
        """Return the end of each categorical column's indicators, as often as `counts` says."""
        ends = len(self.numeric) + np.cumsum([len(values) for values in self.categories], dtype=np.int64)
        return np.repeat(ends, counts)

    def code_maps(self, tables: Sequence[Sequence[str]]) -> list[npt.NDArray[np.int64]]:
        """Return, for each categorical column, the indicator of each code of `tables`, −1 for one that has none.

        The last entry is that of a missing value, whose code is −1: the most frequent value of the rows that the map
        was frozen by, the first of them in the order of text; −1 if there was none.
        """
        maps, first = [], len(self.numeric)
        for values, table in zip(self.categories, tables, strict=True):
            known = {value: position for position, value in enumerate(values)}
            found = [known.get(value, -1) for value in table]
            maps.append(np.array([*found, _most_frequent(values, self.centre[first:])], dtype=np.int64))
            first += len(values)
        return maps

    def features(
        self,
        numeric: npt.NDArray[np.floating],
        codes: npt.NDArray[np.int32],
        maps: Sequence[npt.NDArray[np.int64]],
    ) -> Floats:
        """Return standardized features, shape (rows, n_features), float64; O(n_features) a row.

        NaN among the numbers and the code −1 are missing values, which are filled. A category without an indicator has
        zero in all of its column's, standardized as they are.
        """
        if not self.categorical:
            return np.asarray((self._filled(numeric) - np.array(self.centre)) / np.array(self.scale))
        features = np.zeros((len(numeric), self.n_features))
        features[:, : numeric.shape[1]] = self._filled(numeric)
        first, every = numeric.shape[1], np.arange(len(numeric))
        for position, (values, positions) in enumerate(zip(self.categories, maps, strict=True)):
            indicators = positions[codes[:, position]]
            known = slice(None) if indicators.min(initial=0) >= 0 else indicators >= 0
            features[every[known], first + indicators[known]] = 1.0
            first += len(values)
        features -= np.array(self.centre)
        features /= np.array(self.scale)
        return features

    def _filled(self, numeric: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        absent = np.isnan(numeric)
        fill = np.array(self.fill or self.centre[: len(self.numeric)])
        return np.where(absent, fill, numeric) if absent.any() else numeric

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
        """Return it as JSON takes it; without what older releases have not, where there is none of it."""
        optional = ("classes", "fill", "extended_by")
        return {key: value for key, value in asdict(self).items() if value or key not in optional}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Make it from what `as_dict` returned, or JSON made of that; raise InputError for anything else."""
        try:
            tables = tuple(tuple(values) for values in plain["categories"])
            lists = {key: tuple(value) for key, value in plain.items() if not isinstance(value, int)}
            made = cls(**{**plain, **lists, "categories": tables})
            sound = made._is_sound()
        except (TypeError, ValueError, LookupError) as error:
            raise InputError(f"this is no feature map: {error}") from error
        if not sound:
            raise InputError("this is no feature map: its parts do not belong together")
        return made

    def _is_sound(self) -> bool:
        """Tell whether the parts are of their types and of sizes that belong together."""
        numbers = (*self.centre, *self.scale, *self.target_centre, *self.target_scale, *self.fill)
        names = (*self.numeric, *self.categorical, *(value for table in self.categories for value in table))
        n_features = len(self.numeric) + sum(map(len, self.categories))
        return (
            all(type(number) in (int, float) and abs(number) < math.inf for number in numbers)
            and all(type(name) is str for name in names)
            and all(isinstance(label, str | int | float) for label in self.classes)
            and len(self.categorical) == len(self.categories)
            and len(self.centre) == len(self.scale) == n_features
            and len(self.target_centre) == len(self.target_scale) > 0
            and (not self.classes or len(self.target_centre) == count_outputs(len(self.classes)))
            and len(self.fill) in (0, len(self.numeric))
            and all(number > 0 for number in (*self.scale, *self.target_scale))
            and type(self.extended_by) is int
            and 0 <= self.extended_by <= n_features
        )


def _most_frequent(values: Sequence[str], shares: Sequence[float]) -> int:
    """Return the position of the value with the largest share, of several the least; −1 if none has any."""
    best = min(range(len(values)), key=lambda i: (-shares[i], values[i]), default=-1)
    return best if best >= 0 and shares[best] > 0 else -1
