"""Alarms of drift: how many of 1,000 calm nights are reported, and how many nights 50 synthetic drifts take to be.

    python tests/benchmarks/drift_alarms.py

A feed has 24 columns of eight kinds (normal, long-tailed, whole numbers, mostly zeros, a rare flag, uniform, one that
lacks a twentieth of its values, twelve categories) and a target. Its training rows fix the bins, and each night brings
one partition. Calm nights have 4 to 50,000 rows, evenly on a logarithmic scale, or all the same few; their errors are
those of a classifier that misclassifies a fifth, and of a regression with residuals of a t distribution (five degrees
of freedom). Drifts begin after 20 calm nights and last. Prints one JSON object: for each feed the partitions reported,
for each drift the number of its partitions that it takes to be reported, None if 60 do not suffice.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

import numpy as np
from benchmarks.measuring import Array, say

from ridgestream.pipeline.base.array_checks import Integers
from ridgestream.pipeline.ingest.partition_statistics import UNSKETCHED_ROWS
from ridgestream.pipeline.monitoring.column_course import News
from ridgestream.pipeline.monitoring.drift_course import DriftFollower
from ridgestream.pipeline.monitoring.segment_statistics import SegmentStatistics, StatisticsReader
from ridgestream.pipeline.monitoring.training_rows import TrainingRows
from ridgestream.pipeline.prediction.progressive_validation import find_limits
from ridgestream.pipeline.sums.moments import Moments
from ridgestream.pipeline.sums.quantile_sketch import Sketch
from ridgestream.stores.schema.column_types import CATEGORICAL, NUMERIC
from ridgestream.stores.schema.schema import Feature, Schema
from ridgestream.stores.segments.segment_format import SegmentFacts

CALM, LATEST = 20, 60
"""Calm nights before a drift, and partitions of it after which it counts as not reported."""

SIZES = (4, 30, 300, 3000, 30_000)
CATEGORIES = tuple("abcdefghijkl")
SHARES = 1 / np.arange(1, 13) / np.sum(1 / np.arange(1, 13))
KINDS: tuple[Callable[[np.random.Generator, int], Array], ...] = (
    lambda rng, n: rng.standard_normal(n),
    lambda rng, n: np.exp(2 * rng.standard_normal(n)),
    lambda rng, n: rng.integers(0, 6, n).astype(float),
    lambda rng, n: np.where(rng.random(n) < 0.7, 0.0, rng.standard_normal(n)),
    lambda rng, n: (rng.random(n) < 0.01).astype(float),
    lambda rng, n: rng.random(n),
    lambda rng, n: np.where(rng.random(n) < 0.05, np.nan, rng.standard_normal(n)),
)
NUMBERS, TEXTS = 3 * len(KINDS), 3
NAMES = [*((f"x{i}", NUMERIC) for i in range(NUMBERS)), *((f"t{i}", CATEGORICAL) for i in range(TEXTS))]
SCHEMA = Schema("y", None, tuple(Feature(*each) for each in NAMES))
Change = Callable[[np.random.Generator, Array, Integers], None]
"""Changes the first number and the category codes of a partition's rows in place."""


def shift(by: float) -> Change:
    """Return a shift of the mean, in standard deviations."""

    def change(rng: np.random.Generator, x: Array, codes: Integers) -> None:  # noqa: ARG001
        x += by

    return change


def stretch(by: float) -> Change:
    """Return a factor of the standard deviation."""

    def change(rng: np.random.Generator, x: Array, codes: Integers) -> None:  # noqa: ARG001
        x *= by

    return change


def mix(share: float) -> Change:
    """Return rows, of this share, whose category is the rarest."""

    def change(rng: np.random.Generator, x: Array, codes: Integers) -> None:  # noqa: ARG001
        codes[rng.random(len(codes)) < share] = len(CATEGORIES) - 1

    return change


def lose(share: float) -> Change:
    """Return rows, of this share, that lack the number."""

    def change(rng: np.random.Generator, x: Array, codes: Integers) -> None:  # noqa: ARG001
        x[rng.random(len(x)) < share] = np.nan

    return change


DRIFTS: dict[str, Change] = {
    "mean + 0.75 sd": shift(0.75),
    "mean + 1 sd": shift(1.0),
    "mean + 2 sd": shift(2.0),
    "sd x 1.75": stretch(1.75),
    "sd x 2.5": stretch(2.5),
    "sd / 4": stretch(0.25),
    "20 % of another category": mix(0.2),
    "50 % of another category": mix(0.5),
    "10 % missing": lose(0.1),
    "50 % missing": lose(0.5),
}


def draw(rng: np.random.Generator, rows: int, change: Change | None = None) -> SegmentStatistics:
    """Return the statistics of a partition, as an ingest keeps them."""
    numbers = np.column_stack([*(KINDS[i % len(KINDS)](rng, rows) for i in range(NUMBERS)), rng.standard_normal(rows)])
    codes = rng.choice(len(CATEGORIES), size=(rows, TEXTS), p=SHARES)
    if change is not None:
        change(rng, numbers[:, 0], codes[:, 0])
    counts = [np.bincount(column, minlength=len(CATEGORIES)) for column in codes.T]
    tables = [{name: float(n) for name, n in zip(CATEGORIES, column, strict=True) if n} for column in counts]
    columns = [Moments.of(column[~np.isnan(column)][:, np.newaxis]) for column in numbers.T]
    is_short = rows <= UNSKETCHED_ROWS
    facts = SegmentFacts(
        moments=np.hstack([column.as_array() for column in columns]),
        categories=tuple(tuple(table) for table in tables),
        category_counts=tuple(tuple(table.values()) for table in tables),
        sketch=None if is_short else Sketch.of(numbers).as_array(),
    )
    return SegmentStatistics(facts, rows, values=numbers if is_short else None)


class DrawnStatistics(StatisticsReader):
    """The statistics of drawn partitions, the first ones those of the training rows."""

    def __init__(self) -> None:
        self.drawn: list[SegmentStatistics] = []

    def __contains__(self, number: int) -> bool:
        return number < len(self.drawn)

    def read(self, numbers: Sequence[int]) -> Iterator[SegmentStatistics]:
        """Yield the statistics of these partitions."""
        return iter([self.drawn[number] for number in numbers])


class Feed:
    """A feed of partitions, one a night, that is followed from its training rows on."""

    def __init__(self, seed: int, training_rows: int, importance: Mapping[str, float] | None = None) -> None:
        self.rng, self._statistics = np.random.default_rng(seed), DrawnStatistics()
        self._statistics.drawn.append(draw(self.rng, training_rows))
        training = TrainingRows(SCHEMA, self._statistics.drawn, importance)
        self.follower = DriftFollower(self._statistics, SCHEMA, training, {}, importance or {})

    def next_night(self, rows: int, change: Change | None = None) -> News:
        """Return what the next partition is news of."""
        self._statistics.drawn.append(draw(self.rng, rows, change))
        number = len(self._statistics.drawn) - 1
        return self.follower.follow(number, self._statistics.drawn[number])[1]


def count_alarms(seed: int, training_rows: int, sizes: Sequence[int]) -> dict[str, int]:
    """Return how many calm nights of these sizes are reported, for a column or for their error."""
    feed = Feed(seed, training_rows)
    wrong = [feed.rng.binomial(n, 0.2) / n for n in sizes]
    squares = [float(np.mean(feed.rng.standard_t(5, n) ** 2)) for n in sizes]
    return {
        "columns": sum(bool(feed.next_night(n).began) for n in sizes),
        "errors_of_classes": count_outliers(wrong, sizes, classes=True),
        "errors_of_regression": count_outliers(squares, sizes, classes=False),
    }


def count_outliers(errors: Sequence[float], sizes: Sequence[int], *, classes: bool) -> int:
    """Return how many of these errors are outliers."""
    limits = find_limits(errors, sizes, classes=classes)
    return sum(limit is not None and error > limit for error, limit in zip(errors, limits, strict=True))


def find_delay(seed: int, training_rows: int, rows: int, change: Change) -> int | None:
    """Return the number of partitions that a drift takes to be reported; None if LATEST do not suffice."""
    feed = Feed(seed, training_rows)
    for _ in range(CALM):
        feed.next_night(rows)
    return next(
        (night for night in range(1, LATEST + 1) if {"x0", "t0"} & {*feed.next_night(rows, change).began}), None
    )


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=1000)
    parser.add_argument("--training-rows", type=int, default=10_000)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    mixed = np.random.default_rng(given.seed).uniform(np.log(4), np.log(50_000), given.nights)
    feeds = {"4 to 50,000": np.exp(mixed).round().astype(int).tolist()}
    feeds |= {f"{n:,}": [n] * given.nights for n in given.sizes if n <= 300}
    calm: dict[str, Any] = {}
    for name, sizes in feeds.items():
        calm[name] = count_alarms(given.seed, given.training_rows, sizes)
        say(f"{given.nights} calm nights of {name} rows: {calm[name]}")
    drifts: dict[str, Any] = {}
    for name, change in DRIFTS.items():
        drifts[name] = {n: find_delay(given.seed, given.training_rows, n, change) for n in given.sizes}
        say(f"{name}: {drifts[name]}")
    print(json.dumps({"nights": given.nights, "columns": NUMBERS + TEXTS + 1, "reported": calm, "delays": drifts}))


if __name__ == "__main__":
    main()
