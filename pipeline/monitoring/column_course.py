"""The course of a column that has drifted, and what is news of a partition."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

SETTLED = 5
"""Partitions, after the one with which a drift began, that make what they have in common the new normal."""

_LIKE = 20
"""Partitions of a drift that are kept, the last ones."""

_NORMALS = 8
"""New normals of a column that are kept, the last ones."""


@dataclass(frozen=True)
class ColumnCourse:
    """What is known of a column; if it has never drifted, nothing."""

    since: int | None = None
    """The segment with which it began to drift; None if it does not."""
    like: tuple[int, ...] = ()
    """The segments since that are like one another."""
    agreed: int = 0
    """The number of partitions that have joined them."""
    changed: int = -1
    """The segment of the last change."""
    normals: tuple[tuple[int, ...], ...] = ()
    """The segments of each new normal."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Return the course from the result of `as_plain`."""
        return cls(**{**plain, "like": tuple(plain["like"]), "normals": tuple(map(tuple, plain["normals"]))})

    def as_plain(self) -> dict[str, Any]:
        """Return the course as a JSON object."""
        return asdict(self)

    @property
    def has_settled(self) -> bool:
        """Whether enough partitions are like one another."""
        return self.agreed >= SETTLED

    def begun(self, segment: int, like: Sequence[int]) -> Self:
        """Return the course after a drift has begun with a segment, which the segments `like` show."""
        return replace(self, since=segment, like=tuple(like), agreed=0, changed=like[0])

    def moved_on(self, segment: int) -> Self:
        """Return the course after a segment that is unlike all others."""
        return replace(self, like=(segment,), agreed=0, changed=segment)

    def joined(self, segment: int) -> Self:
        """Return the course after one more segment like those since the drift began."""
        return replace(self, like=(*self.like, segment)[-_LIKE:], agreed=self.agreed + 1)

    def accepted(self) -> Self:
        """Return the course after what the column is now has become normal."""
        return replace(self.ended(self.like[-1]), normals=(*self.normals, self.like)[-_NORMALS:])

    def ended(self, segment: int) -> Self:
        """Return the course after the drift has ended with a segment."""
        return replace(self, since=None, like=(), agreed=0, changed=segment)


@dataclass(frozen=True)
class News:
    """What a partition is news of, columns by name."""

    began: tuple[str, ...] = ()
    """Columns that begin to drift with it."""
    settled: tuple[str, ...] = ()
    """Columns of which it makes a drift the new normal."""
    ended: tuple[str, ...] = ()
    """Columns whose drift has ended with it."""
    accepted: tuple[str, ...] = ()
    """Columns that began to drift with it, and are normal as they are: so are the errors that they cause."""

    @classmethod
    def of(cls, changes: Iterable[tuple[str, ColumnCourse, ColumnCourse]]) -> Self:
        """Return what has become of columns, each with its course before and after the partition."""
        began: list[str] = []
        settled: list[str] = []
        ended: list[str] = []
        for name, before, after in changes:
            if before.since is None:
                began += [name] * (after.since is not None)
            elif after.since is None:
                (settled if after.normals != before.normals else ended).append(name)
        return cls(tuple(began), tuple(settled), tuple(ended))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Sequence[str]]) -> Self:
        """Return the news from the result of `as_plain`."""
        return cls(**{kind: tuple(names) for kind, names in plain.items()})

    def without(self, columns: Sequence[str]) -> Self:
        """Return the news after these columns, as they are, have become normal."""
        accepted = tuple(name for name in self.began if name in columns)
        began = tuple(name for name in self.began if name not in columns)
        return replace(self, began=began, accepted=(*self.accepted, *accepted))

    def as_plain(self) -> dict[str, list[str]]:
        """Return the news as a JSON object, without what is none."""
        return {kind: list(names) for kind, names in vars(self).items() if names}
