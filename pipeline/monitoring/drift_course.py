"""The course of drift: when a column begins to be unlike the rows before, and when what it is now is the new normal.

Each partition is compared with the training rows, and with the partitions learned before it:

- A column begins to drift with a partition that is unlike the training rows and unlike every new normal so far. This
  is news, once.
- While it drifts, partitions are compared with those since. After SETTLED more that are unlike the training rows but
  like one another, what it is now is the new normal: news, once. One that is unlike these begins the count again.
- It has ended with a partition like the training rows or like a new normal.

A column that keeps moving neither settles nor ends, and is not news again. Partitions of few rows are also judged
together with those just before them since the column's last change, POOLED of POOL_ROWS rows at most: what a few rows
cannot show, many partitions of a few rows can.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.monitoring.column_course import ColumnCourse, News
from ridgestream.pipeline.monitoring.population_stability import Shift
from ridgestream.pipeline.monitoring.segment_statistics import SegmentStatistics, StatisticsReader
from ridgestream.pipeline.monitoring.training_rows import BinnedRows, ColumnDrifts, TrainingRows
from ridgestream.stores.schema.schema import Schema

POOLED, POOL_ROWS = 20, 1000
"""The most partitions that are judged together, and the most rows."""

_REFERENCES = 32
"""Groups of partitions whose bins are in memory at a time."""

_CALM = ColumnCourse()
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Recent:
    """A partition that has been learned."""

    segment: int
    statistics: SegmentStatistics
    binned: BinnedRows
    moved: Mask
    """Whether each column, by itself, is unlike the training rows, shape (columns,)."""


class DriftFollower:
    """Follows the columns of partitions in the order in which they are learned."""

    def __init__(
        self,
        statistics: StatisticsReader,
        schema: Schema,
        training: TrainingRows,
        courses: Mapping[str, ColumnCourse],
        importance: Mapping[str, float],
    ) -> None:
        """`courses` has the columns that have drifted before, `importance` those whose importance is not 1."""
        self._training, self.courses = training, dict(courses)
        self._recent: deque[_Recent] = deque()
        self._reference = lru_cache(_REFERENCES)(partial(_read_reference, statistics, schema, importance))

    def remember(self, segment: int, now: SegmentStatistics) -> ColumnDrifts | tuple[()]:
        """Take a partition as one of those before the next, and return its drift; none without weighted rows."""
        binned = self._training.bin(now)
        if binned is None:
            return ()
        drifts = self._training.compare_binned(binned)
        self._recent.append(_Recent(segment, now, binned, drifts.are_large))
        while len(self._recent) > 1 and (len(self._recent) > POOLED or self._recent_rows > POOL_ROWS):
            self._recent.popleft()
        return drifts

    def follow(self, segment: int, now: SegmentStatistics) -> tuple[ColumnDrifts | tuple[()], News]:
        """Return the drift of the next partition, and what is news."""
        drifts, changes = self.remember(segment, now), []
        if not isinstance(drifts, ColumnDrifts):
            return (), News()
        counted = self._judged_together()
        moved, together = drifts.are_large, self._moved_together(counted)
        for position, name in enumerate(self._training.names):
            course = after = self.courses.get(name, _CALM)
            if course.since is not None:
                after = self._continued(name, course, drifts[position].shift, together=bool(together[position]))
            elif moved[position] or together[position]:
                alone = counted[:, position] & (np.arange(len(counted)) == len(counted) - 1)
                after = self._begin(name, course, alone if moved[position] else counted[:, position])
            if after != course:
                self.courses[name] = after
                changes.append((name, course, after))
        return drifts, News.of(changes)

    @property
    def _recent_rows(self) -> int:
        return sum(recent.statistics.rows for recent in self._recent)

    def _judged_together(self) -> Mask:
        """Return which of the recent partitions count in each column, shape (recent, columns).

        They are binned alike and not before the column's last change; the last one is always among them. Those of a
        column that does not drift are not unlike the training rows by themselves, as some of a new normal are.
        """
        alike = np.array([recent.binned.exact == self._recent[-1].binned.exact for recent in self._recent])
        counted = np.repeat(alike[:, np.newaxis], len(self._training.names), axis=1)
        places = {recent.segment: place for place, recent in enumerate(self._recent)}
        for name, course in self.courses.items():
            if name in self._training.names:
                column, drifts = self._training.names.index(name), course.since is not None
                first = places.get(course.changed, 0) if drifts else places.get(course.changed, -1) + 1
                counted[:first, column] = False
                counted[:, column] &= [drifts or not recent.moved[column] for recent in self._recent]
        counted[-1] = True
        return counted

    def _moved_together(self, counted: Mask) -> Mask:
        """Return whether the recent partitions together are unlike the training rows, shape (columns,)."""
        pooled = BinnedRows.pool([recent.binned for recent in self._recent], counted)
        return self._training.compare_binned(pooled).are_large

    def _begin(self, name: str, course: ColumnCourse, shown_by: Mask) -> ColumnCourse:
        members = [recent for recent, shows in zip(self._recent, shown_by, strict=True) if shows]
        if self._is_normal(name, course, members):
            return course
        return course.begun(self._recent[-1].segment, [member.segment for member in members])

    def _continued(self, name: str, course: ColumnCourse, shift: Shift, *, together: bool) -> ColumnCourse:
        latest, since = self._recent[-1], self._reference(course.like)
        unlike = not self._is_like(since, name, [latest])
        is_judged = unlike or (latest.statistics.worth >= since.rows and shift.is_stable)
        if (is_judged and not shift.is_large) or (unlike and self._is_normal(name, course, [latest])):
            return course.ended(latest.segment)
        if unlike:
            return course.moved_on(latest.segment)
        course = course.joined(latest.segment) if shift.is_large or together else course
        return course.accepted() if course.has_settled else course

    def _is_normal(self, name: str, course: ColumnCourse, members: Sequence[_Recent]) -> bool:
        """Return whether the partitions are like a new normal of the column."""
        return any(self._is_like(self._reference(normal), name, members) for normal in course.normals)

    def _is_like(self, reference: TrainingRows, name: str, members: Sequence[_Recent]) -> bool:
        """Return whether the column is alike in the partitions and in those of the reference; not if it has none."""
        binned = [part for member in members if (part := reference.bin(member.statistics)) is not None]
        alike = [part for part in binned if part.exact == binned[-1].exact]
        if not alike:
            return False
        pooled = BinnedRows.pool(alike, np.ones((len(alike), len(reference.names)), dtype=np.bool_))
        return not reference.compare_binned(pooled).of_column(name).is_large


def _read_reference(
    statistics: StatisticsReader, schema: Schema, importance: Mapping[str, float], segments: tuple[int, ...]
) -> TrainingRows:
    known = [segment for segment in segments if segment in statistics]
    return TrainingRows(schema, statistics.read(known), importance)
