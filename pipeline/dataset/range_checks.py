"""Refuses finite values too far from a model's standardization, before they enter a sum, by column or partition."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from ridgestream.pipeline.base.array_checks import LARGEST_VALUE, Floats, Integers
from ridgestream.pipeline.base.errors import TOO_LARGE, InputError, NumericalBreakdown
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.sums.moments import Moments
from ridgestream.stores.catalog.ledger import LedgerEntry
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.requests.activity import ACTIVITY
from ridgestream.stores.segments.segments import SegmentSource

LARGEST_PREDICTION = 10 * LARGEST_VALUE
"""No target is beyond LARGEST_VALUE, so that a prediction beyond this is an overflow or close to one."""


def check_range(moments: Floats, feature_map: FeatureMap, targets: Sequence[str]) -> None:
    """Raise InputError naming the first column of a partition with a value beyond LARGEST_VALUE once standardized.

    `moments` are those of its numeric columns and targets, shape (5, n). Classes are not standardized.
    """
    statistics = Moments.from_array(moments)
    columns = [(column.name, column.centre, column.scale) for column in feature_map.numeric]
    if not feature_map.target.classes:
        columns += zip(targets, feature_map.target.centre, feature_map.target.scale, strict=True)
    if _are_near(statistics, columns):
        return
    for position, (name, centre, scale) in enumerate(columns):
        extremes = statistics.minimum[position], statistics.maximum[position]
        farthest = max(extremes, key=lambda value: abs(value - centre))
        if statistics.count[position] > 0 and not abs(farthest - centre) / scale <= LARGEST_VALUE:
            raise InputError(
                f"column {name!r} has the value {float(farthest)!r}, which is too far from the rows that the model was "
                f"standardized by (mean {centre:.6g}, deviation {scale:.6g}): at most {LARGEST_VALUE:g} deviations can "
                "be computed with; correct the rows"
            )


def _are_near(statistics: Moments, columns: Sequence[tuple[str, float, float]]) -> bool:
    """Return whether no column has a value beyond LARGEST_VALUE: a quick look at all columns together."""
    n = len(columns)
    centre, scale = np.array([column[1:] for column in columns]).reshape(n, 2).T
    with np.errstate(all="ignore"):
        low, high = ((extreme[:n] - centre) / scale for extreme in (statistics.minimum, statistics.maximum))
        near = (np.abs(low) <= LARGEST_VALUE) & (np.abs(high) <= LARGEST_VALUE)
    return bool((near | (statistics.count[:n] == 0)).all())


def check_ranges(
    segments: SegmentSource, entries: Sequence[LedgerEntry], feature_map: FeatureMap, targets: Sequence[str]
) -> None:
    """Raise InputError naming the first partition with a value too far out for the model; no row is read."""
    for entry in ACTIVITY.counted(entries, "the ranges of partitions"):
        try:
            check_range(segments[entry.segment].facts().moments, feature_map, targets)
        except InputError as error:
            raise InputError(_told(entry, error)) from error


@contextmanager
def naming_partition(entries: Sequence[LedgerEntry], segment: int) -> Iterator[None]:
    """Add the partition's name and a remedy to an InputError or NumericalBreakdown raised while it is learned."""
    try:
        yield
    except (InputError, NumericalBreakdown) as error:
        if any(str(error).startswith(_place(entry)) for entry in entries):
            raise
        raise type(error)(_told(next(e for e in entries if e.segment == segment), error)) from error
    except OverflowError as error:
        raise NumericalBreakdown(TOO_LARGE) from error


def check_errors(errors: Mapping[int, float], entries: Sequence[LedgerEntry]) -> None:
    """Raise NumericalBreakdown naming the first partition whose rows cannot be predicted within float64.

    `errors` are the prediction errors by segment: an unbounded kernel overflows on rows far from the learned ones.
    """
    overflowing = {segment for segment, error in errors.items() if not np.isfinite(error)}
    if overflowing:
        entry = next(entry for entry in entries if entry.segment in overflowing)
        raise NumericalBreakdown(
            f"{_place(entry)}: rows lie so far from those that the model knows that their predictions leave float64: "
            f"correct them, choose the rbf kernel, {_remedy(entry)}"
        )


def _told(entry: LedgerEntry, error: Exception) -> str:
    return f"{_place(entry)}: {error}, {_remedy(entry)}"


def _place(entry: LedgerEntry) -> str:
    return f"partition {entry.name}" if entry.content_sha256 else entry.name


def _remedy(entry: LedgerEntry) -> str:
    """Return what to do about a partition that was ingested, or rows of an array, that cannot be learned."""
    if not entry.content_sha256:
        return "or leave these rows out"
    return f"or leave the partition out (ridgestream quarantine JOB.toml {entry.name} --reason WHY)"


def check_predictions(predictions: Floats, file: str, numbers: Integers) -> None:
    """Raise PartitionError naming the file and the first row with a prediction or deviation beyond float64.

    `predictions` (rows, n) are those of the rows with these numbers (rows,) in `file`.
    """
    if predictions.size and not np.abs(predictions).max() <= LARGEST_PREDICTION:
        row = int(np.argmin((np.abs(predictions) <= LARGEST_PREDICTION).all(axis=1)))
        raise PartitionError(
            f"{file}: row {numbers[row]} lies so far from the rows that the model knows that its prediction leaves "
            "float64; correct it, or choose the rbf kernel"
        )
