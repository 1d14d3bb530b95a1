"""Transitions: which columns hold the features after a step, and which says that an episode ended in between."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.schema.column_types import BOOLEAN, NUMERIC, check_column

if TYPE_CHECKING:
    import pyarrow as pa

    from ridgestream.stores.schema.schema import Feature

ANY = "*"
"""What stands for a feature's name in a pattern."""


@dataclass(frozen=True)
class TransitionRequest:
    """The roles of columns of transitions as configured in a job."""

    next: str | Mapping[str, str]
    """The column of each feature after the step, by its name, or a pattern such as "next_*"."""
    done: str | None = None
    """The column that is 1 where an episode ended with the step, else 0; None if none ends."""

    def ahead_of(self, name: str) -> str | None:
        """Return the column of a feature after the step; None if the job gives none."""
        return self.next.replace(ANY, name) if isinstance(self.next, str) else self.next.get(name)

    def features_among(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the columns that are neither another one's after the step, nor say that an episode ended."""
        listed = tuple(names)
        ahead = {self.ahead_of(name) for name in listed} if isinstance(self.next, str) else {*self.next.values()}
        return tuple(name for name in listed if name not in ahead and name != self.done)

    def columns_ahead(
        self, features: "Sequence[Feature]", others: Iterable[str], arrow: "pa.Schema", file: str
    ) -> tuple[str, ...]:
        """Return the column of each feature after the step.

        Raises PartitionError naming `file` if there is none, or if a column of the step is also a feature, or one of
        the `others`: targets, weight and ignored columns.
        """
        found = [self._column_ahead(feature, arrow, file) for feature in features]
        stray = [] if isinstance(self.next, str) else sorted({*self.next} - {feature.name for feature in features})
        if stray:
            raise PartitionError(f"{file}: source.next has {stray[0]!r}, which is no feature: leave it out")
        if self.done is not None:
            check_column(self.done, arrow, file)
        own = [*found, *([] if self.done is None else [self.done])]
        taken = {*others, *(feature.name for feature in features)}
        twice = next((name for name in own if name in taken or own.count(name) > 1), None)
        if twice is not None:
            raise PartitionError(
                f"{file}: column {twice!r} is named by source.next or source.done, and a second time there or as "
                "feature, target, weight or ignored: give each column one role"
            )
        return tuple(found)

    def _column_ahead(self, feature: "Feature", arrow: "pa.Schema", file: str) -> str:
        name, ahead = feature.name, self.ahead_of(feature.name)
        if feature.kind not in (NUMERIC, BOOLEAN):
            raise PartitionError(
                f"{file}: the feature {name!r} is {feature.kind}, and states are numbers and booleans: make columns of "
                "it that are, before the step and after it, or list it under source.ignore"
            )
        if ahead is None:
            raise PartitionError(
                f"{file}: the feature {name!r} has no column after the step: name it in source.next, or list the "
                "feature under source.ignore"
            )
        if ahead not in arrow.names:
            raise PartitionError(
                f"{file} has no column {ahead!r}, which is {name!r} after the step, by source.next; list {name!r} "
                "under source.ignore if it is no feature"
            )
        return ahead
