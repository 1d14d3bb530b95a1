"""Checks rows to be predicted for missing values and unknown categories."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.policies import ERROR, Policies
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.models.learned_ranges import LearnedRanges, show_counts
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.schema.row_batch import Rows

MAX_COLUMNS = 10
"""Columns outside the range learned that a warning names."""


@dataclass(frozen=True)
class InputSummary:
    """Counts of missing values and unknown categories in rows to be predicted, mergeable."""

    rows: int = 0
    """Number of rows."""
    left_out: int = 0
    """Number of rows without a prediction because of missing values."""
    imputed: Mapping[str, int] = field(default_factory=dict)
    """Number of imputed values by column, for columns that have any."""
    unseen: Mapping[str, int] = field(default_factory=dict)
    """Number of rows with a category unknown to the model by column, for columns that have any."""
    outside: Mapping[str, int] = field(default_factory=dict)
    """Number of rows outside the range of the rows learned by column, for columns that have any."""
    rows_outside: int = 0
    """Number of rows outside in any column."""

    @property
    def by_rows_outside(self) -> tuple[tuple[str, int], ...]:
        """The columns with rows outside, and their number, in descending order."""
        return tuple(sorted(self.outside.items(), key=lambda item: -item[1]))

    def merge(self, other: "InputSummary") -> "InputSummary":
        """Return the counts of both sets of rows."""
        return InputSummary(
            rows=self.rows + other.rows,
            left_out=self.left_out + other.left_out,
            imputed=_sum(self.imputed, other.imputed),
            unseen=_sum(self.unseen, other.unseen),
            outside=_sum(self.outside, other.outside),
            rows_outside=self.rows_outside + other.rows_outside,
        )

    def report_to(self, report: Reporter, left_out: events.Event, ranges: LearnedRanges | None = None) -> None:
        """Report what a user should know; `left_out` is the event of rows that are left out."""
        far = ranges.unlikely(self.outside, self.rows) if ranges else {}
        if far:
            columns = show_counts(dict(islice(far.items(), MAX_COLUMNS)))
            report.warn(events.PREDICT_ROWS_OUTSIDE_RANGE, rows=self.rows_outside, of_rows=self.rows, columns=columns)
        if self.left_out:
            report.say(left_out, rows=self.left_out)
        if self.imputed:
            report.say(events.PREDICT_VALUES_IMPUTED, lacking=show_counts(self.imputed))
        if self.unseen:
            report.say(events.PREDICT_UNSEEN_CATEGORIES, rows=show_counts(self.unseen))

    def as_dict(self) -> dict[str, object]:
        """Return the counts that are not zero, as a JSON object."""
        counts = {
            "left_out": self.left_out,
            "imputed": dict(self.imputed),
            "unseen_categories": dict(self.unseen),
            "rows_outside_range": self.rows_outside,
            "outside_range": dict(self.by_rows_outside),
        }
        return {name: value for name, value in counts.items() if value}


def _sum(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


class InputChecker:
    """Checks the rows of one partition, batch by batch, after decoding."""

    def __init__(
        self, feature_map: FeatureMap, decoder: Decoder, policies: Policies, ranges: LearnedRanges | None = None
    ) -> None:
        self._feature_map, self._decoder, self._policies, self._ranges = feature_map, decoder, policies, ranges
        self._summary = InputSummary()

    @property
    def summary(self) -> InputSummary:
        """The counts of the rows checked so far."""
        return InputSummary(
            rows=self._decoder.rows,
            left_out=self._summary.left_out,
            imputed={} if self._decoder.drops else self._decoder.absent,
            unseen=self._summary.unseen,
            outside=self._summary.outside,
            rows_outside=self._summary.rows_outside,
        )

    def check(self, rows: Rows) -> tuple[npt.NDArray[np.bool_], list[npt.NDArray[np.int64]]]:
        """Return which rows get a prediction, shape (rows,), and the code maps of their categories.

        Raises PartitionError naming file, column and value for a category unknown to the model, if the policy is
        `error`.
        """
        answered = ~rows.incomplete() if self._decoder.drops else np.ones(len(rows), dtype=np.bool_)
        tables = [list(table) for table in self._decoder.categories]
        maps = self._feature_map.code_maps(tables)
        unseen = {}
        for position, (column, table, indicators) in enumerate(
            zip(self._feature_map.categorical, tables, maps, strict=True)
        ):
            codes = rows.codes[answered, position]
            unknown = codes[(codes >= 0) & (indicators[codes] < 0)]
            if len(unknown):
                unseen[column.name] = len(unknown)
                self._check_category(position, table[unknown[0]])
        left_out = len(rows) - int(answered.sum())
        outside, rows_outside = self._ranges.count(rows.numeric[answered]) if self._ranges else ({}, 0)
        added = InputSummary(left_out=left_out, unseen=unseen, outside=outside, rows_outside=rows_outside)
        self._summary = self._summary.merge(added)
        return answered, maps

    def _check_category(self, position: int, value: str) -> None:
        if self._policies.unseen_categories != ERROR:
            return
        tables: list[list[str]] = [[] for _ in self._feature_map.categorical]
        tables[position] = [value]
        try:
            self._feature_map.check_categories(tables)
        except InputError as error:
            raise PartitionError(f"{self._decoder.file}: {error}") from error
