"""The trivial model with which every error is compared: the constant that fits the learned rows best.

In regression it is the mean of each target, in classification the class of the largest weight. Its errors on rows of
the store follow from the moments of their targets, without reading a row; an evaluation sums them beside the model's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.features.one_vs_rest import Label, signs_of
from ridgestream.pipeline.sums.moments import Moments
from ridgestream.stores.catalog.models import TARGET_MOMENTS, ModelRecord
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.segment_format import SegmentFacts
from ridgestream.stores.segments.segments import SegmentSource

_ROUNDING = 1e-12
"""A target is its constant if it differs by at most this share of it, as equal targets and their mean may."""

_SURE = 2.0
"""Standard errors by which a model has to be better than a constant."""

_TIE = 1e-9
"""A share of the trivial error that is none: weights summed in another order differ by less."""


@dataclass(frozen=True)
class TargetMoments:
    """Weighted moments of targets, mergeable; of classes, those of an indicator of each."""

    weight: float = 0.0
    """The sum of weights."""
    means: tuple[float, ...] = ()
    """The mean of each target, or the share of each class; empty without rows."""
    squares: tuple[float, ...] = ()
    """Their weighted sums of squared deviations from the mean."""

    @classmethod
    def of(cls, moments: Moments) -> Self:
        """Return the moments of targets, none of which is missing."""
        if not moments.count[0] > 0:
            return cls()
        return cls(float(moments.count[0]), tuple(moments.mean.tolist()), tuple(moments.squares.tolist()))

    @classmethod
    def of_classes(cls, weights: Sequence[float]) -> Self:
        """Return the moments of rows with this weight of each class."""
        total = sum(weights)
        if not total > 0:
            return cls()
        shares = tuple(weight / total for weight in weights)
        return cls(total, shares, tuple(total * share * (1 - share) for share in shares))

    def merge(self, other: Self) -> Self:
        """Return the moments of both sets of rows (Chan, Golub & LeVeque 1979)."""
        if not (self.weight and other.weight):
            return self if self.weight else other
        weight = self.weight + other.weight
        share = other.weight / weight
        deltas = [b - a for a, b in zip(self.means, other.means, strict=True)]
        means = tuple(a + delta * share for a, delta in zip(self.means, deltas, strict=True))
        sums = zip(self.squares, other.squares, deltas, strict=True)
        squares = tuple(a + b + delta * delta * self.weight * share for a, b, delta in sums)
        return type(self)(weight, means, squares)

    def constant(self, *, classes: bool) -> Floats | None:
        """Return the outputs (n_outputs,) of the constant that fits these rows best; None without rows."""
        if not self.weight:
            return None
        largest = np.array([self.means.index(max(self.means))])
        return signs_of(largest, len(self.means))[0] if classes else np.array(self.means)

    def constant_errors(self, rows: Self, *, classes: bool) -> tuple[float, ...]:
        """Return that constant's errors on other rows, from their moments; empty if there are no rows on either side.

        With `classes`, it is the misclassified fraction, else the mean squared error of each target.
        """
        if not (self.weight and rows.weight):
            return ()
        if classes:
            return (1.0 - rows.means[self.means.index(max(self.means))],)
        sums = zip(self.means, rows.means, rows.squares, strict=True)
        return tuple(_mean_square(constant, mean, squares / rows.weight) for constant, mean, squares in sums)

    def as_array(self) -> Floats:
        """Return weight, means and squares, shape (3, n)."""
        return np.array([(self.weight,) * len(self.means), self.means, self.squares])

    @classmethod
    def from_array(cls, array: Floats) -> Self:
        """Return the moments from the result of `as_array`."""
        weights, means, squares = array.tolist()
        return cls(weights[0], tuple(means), tuple(squares))


def constant_outputs(constant: Floats, targets: Floats) -> Floats:
    """Return a constant (n_outputs,) as outputs (rows, n_outputs); equal targets, but for rounding, as they are."""
    return np.where(np.abs(targets - constant) <= _ROUNDING * np.abs(constant), targets, constant)


def _mean_square(constant: float, mean: float, variance: float) -> float:
    error, rounding = variance + (mean - constant) * (mean - constant), _ROUNDING * constant
    return error if error > rounding * rounding else 0.0


def skill_of(error: float | None, trivial_error: float | None) -> float | None:
    """Return 1 − error / trivial error, in regression R²; None without errors, or where the constant makes none."""
    return 1 - error / trivial_error if error is not None and trivial_error else None


def is_no_better(error: float, trivial_error: float, chance: float = 0.0) -> bool:
    """Return whether a model is no better than a constant, except by what chance, a standard error, may do.

    Where the constant makes no error, nothing can be better, which says nothing of the model.
    """
    return trivial_error > 0 and trivial_error - error <= max(_SURE * chance, _TIE * trivial_error)


def segment_targets(
    segments: SegmentSource, schema: Schema, record: ModelRecord, numbers: Iterable[int]
) -> list[TargetMoments]:
    """Return the moments of the targets of each segment, with the classes of a model; no row is read."""
    classes = record.encoding.get("classes") or ()
    return [_moments_of(segments[number].facts(), schema, classes) for number in numbers]


def merge_targets(parts: Iterable[TargetMoments]) -> TargetMoments:
    """Return the moments of all parts, merged from left to right."""
    return reduce(TargetMoments.merge, parts, TargetMoments())


def _moments_of(facts: SegmentFacts, schema: Schema, classes: Sequence[Label]) -> TargetMoments:
    if classes:
        weights = dict(zip(facts.classes, facts.class_counts, strict=True))
        return TargetMoments.of_classes([weights.get(label, 0.0) for label in classes])
    moments = Moments.from_array(facts.moments[:, -len(schema.targets) :])
    if schema.classifies:
        weight, positive = float(moments.count[0]), float(moments.count[0] * (1 + moments.mean[0]) / 2)
        return TargetMoments.of_classes([weight - positive, positive])
    return TargetMoments.of(moments)


def learned_targets(segments: SegmentSource, schema: Schema, record: ModelRecord) -> TargetMoments:
    """Return the moments of the targets that the model has learned; of older releases' models, from the segments."""
    stored = record.arrays.get(TARGET_MOMENTS)
    if stored is None:
        known = [number for number in record.learned if number in segments]
        return merge_targets(segment_targets(segments, schema, record, known))
    n_classes = len(record.encoding.get("classes") or ()) or 2
    if stored.shape != (3, n_classes if schema.classifies else len(schema.targets)):
        raise ModelError(f"the model {record.name!r} is damaged: {TARGET_MOMENTS} has the shape {stored.shape}")
    return TargetMoments.from_array(np.asarray(stored, dtype=np.float64))
