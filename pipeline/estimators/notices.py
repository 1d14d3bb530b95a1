"""What a training says to the user of an estimator: a warning where something may have impaired the model."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.errors import Names, warn_caller
from ridgestream.pipeline.base.events import FEATURES_TIMES_AS_CALENDAR, PREDICT_ROWS_OUTSIDE_RANGE
from ridgestream.pipeline.base.reporter import Fact, in_words
from ridgestream.pipeline.models.learned_ranges import LearnedRanges, show_counts
from ridgestream.stores.schema.column_types import TIMESTAMP
from ridgestream.stores.schema.schema import Feature

NAMES: Names = {
    "give the model another name, or train it from scratch with --new-model": "begin again with fit",
    "begin a new model with --new-model": "begin again with fit",
    "begin a new model (--new-model)": "begin again with fit",
    "a new model (--new-model)": "fit",
    "source.unseen_categories = ": "unseen_categories=",
}
"""What an estimator has in place of the options of the command."""


def warn_of_times(features: Sequence[Feature], timestamps: str | None) -> None:
    """Warn of time stamps that become circles of the calendar unasked."""
    names = [feature.name for feature in features if feature.kind == TIMESTAMP]
    if names and timestamps is None:
        remedy = 'timestamps="elapsed" or "both" follows it, and "calendar" leaves out this warning'
        warn_caller(f"columns {', '.join(names)}: {FEATURES_TIMES_AS_CALENDAR.sentence}; {remedy}")


def warn_of_range(ranges: LearnedRanges, numeric: npt.NDArray[np.floating]) -> None:
    """Warn of rows (rows, n_numeric) outside of the range learned, where they are more than chance explains."""
    outside = ranges.outside(numeric)
    far = ranges.unlikely(ranges.by_name(outside.sum(axis=0)), len(numeric))
    if far:
        facts: dict[str, Fact] = {
            "rows": int(outside.any(axis=1).sum()),
            "of_rows": len(numeric),
            "columns": show_counts(far),
        }
        warn_caller(in_words(PREDICT_ROWS_OUTSIDE_RANGE, facts, NAMES))
