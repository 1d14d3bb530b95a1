"""Rows that a model is asked about: which of them lack a value, and which have a category that it does not know."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.policies import ERROR, Policies
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.decoder import DROP, Decoder
from ridgestream.stores.schema.row_batch import Rows


@dataclass(frozen=True)
class Asked:
    """What was seen of rows that a model was asked about; added, it is that of all of them."""

    rows: int = 0
    """The rows."""
    left_out: int = 0
    """Those that lack a value and are left without an answer for that."""
    imputed: Mapping[str, int] = field(default_factory=dict)
    """How many values of each column were missing and filled, of columns that lacked any."""
    unseen: Mapping[str, int] = field(default_factory=dict)
    """How many rows have a category that the model does not know, by column, of columns that have any."""

    def merge(self, other: "Asked") -> "Asked":
        """Return what was seen of both."""
        imputed, unseen = _sum(self.imputed, other.imputed), _sum(self.unseen, other.unseen)
        return Asked(self.rows + other.rows, self.left_out + other.left_out, imputed, unseen)

    def tell(self, report: Reporter, left_out: events.Event) -> None:
        """Report what a user should know; `left_out` is the event of rows that are left out."""
        if self.left_out:
            report.say(left_out, rows=self.left_out)
        if self.imputed:
            report.say(events.PREDICT_VALUES_IMPUTED, lacking=show_counts(self.imputed))
        if self.unseen:
            report.say(events.PREDICT_UNSEEN_CATEGORIES, rows=show_counts(self.unseen))

    def as_dict(self) -> dict[str, object]:
        """Return what was out of the ordinary, as JSON takes it."""
        told = {"left_out": self.left_out, "imputed": dict(self.imputed), "unseen_categories": dict(self.unseen)}
        return {name: value for name, value in told.items() if value}


def show_counts(counts: Mapping[str, int]) -> str:
    """Return a count for each column in one line."""
    return ", ".join(f"{name} ({count:,})" for name, count in counts.items())


def _sum(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


class Asking:
    """Looks at the rows of one partition, batch after batch, as its decoder gives them."""

    def __init__(self, feature_map: FeatureMap, decoder: Decoder, policies: Policies) -> None:
        self._feature_map, self._decoder, self._policies = feature_map, decoder, policies
        self._asked = Asked()

    @property
    def asked(self) -> Asked:
        """What was seen so far."""
        drops = self._decoder.missing == DROP
        return Asked(
            self._decoder.rows, self._asked.left_out, {} if drops else self._decoder.absent, self._asked.unseen
        )

    def look(self, rows: Rows) -> tuple[npt.NDArray[np.bool_], list[npt.NDArray[np.int64]]]:
        """Return which rows are to be answered, shape (rows,), and the maps of their categories.

        Raises PartitionError naming file, column and value for a category that the model does not know, if that is the
        policy.
        """
        answered = np.ones(len(rows), dtype=np.bool_) if self._decoder.missing != DROP else ~rows.incomplete()
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
                self._check(position, table[unknown[0]])
        left_out = len(rows) - int(answered.sum())
        self._asked = self._asked.merge(Asked(0, left_out, {}, unseen))
        return answered, maps

    def _check(self, position: int, value: str) -> None:
        if self._policies.unseen_categories != ERROR:
            return
        tables: list[list[str]] = [[] for _ in self._feature_map.categorical]
        tables[position] = [value]
        try:
            self._feature_map.check_categories(tables)
        except InputError as error:
            raise PartitionError(f"{self._decoder.place}: {error}") from error
