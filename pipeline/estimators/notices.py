"""What a fit says to the user: warnings where something may have impaired the model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.errors import Names, warn_caller
from ridgestream.pipeline.base.events import FEATURES_TIMES_AS_CALENDAR, PREDICT_ROWS_LEFT_OUT
from ridgestream.pipeline.base.reporter import RenamingReporter, warn_program
from ridgestream.stores.schema.column_types import TIMESTAMP
from ridgestream.stores.schema.schema import Feature

if TYPE_CHECKING:
    from ridgestream.pipeline.models.learned_ranges import LearnedRanges

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


def warn_of_range(ranges: "LearnedRanges", numeric: npt.NDArray[np.floating]) -> None:
    """Warn of rows (rows, n_numeric) outside of the range learned, where they are more than chance explains."""
    from ridgestream.pipeline.prediction.input_checks import InputSummary

    outside, rows_outside = ranges.count(numeric)
    summary = InputSummary(rows=len(numeric), outside=outside, rows_outside=rows_outside)
    summary.report_to(RenamingReporter(NAMES, warn_program), PREDICT_ROWS_LEFT_OUT, ranges)
