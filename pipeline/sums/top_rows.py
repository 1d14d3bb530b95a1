"""Leaders: of all rows those with the largest scores, by each of several ways to score, with the rows themselves.

A monoid, so that parts of the rows can be looked through anywhere: the leaders of two sets of rows are the leaders of
both sets' leaders. Of rows with the same score, the first leads.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.sums.normal_equations import RowBlock

NOBODY = -1
"""The place, and the score, where there are fewer rows than leaders wanted; scores of rows are zero or more."""


@dataclass(frozen=True)
class RowTable:
    """Some rows, by their places."""

    places: Integers
    """Ascending, each once, shape (rows,)."""
    features: Floats
    """Shape (rows, n_features)."""
    targets: Floats
    """Shape (rows, n_targets)."""

    def at(self, places: Integers) -> Self:
        """Return the rows at these places, ascending, all of which are in the table."""
        found = np.searchsorted(self.places, places)
        return type(self)(places, self.features[found], self.targets[found])

    def join(self, other: Self) -> Self:
        """Return the rows of both tables."""
        places, first = np.unique(np.concatenate([self.places, other.places]), return_index=True)
        features = np.concatenate([self.features, other.features])[first]
        return type(self)(places, features, np.concatenate([self.targets, other.targets])[first])


@dataclass(frozen=True)
class Leaders:
    """The leading rows by each way to score."""

    scores: Floats
    """The largest first, NOBODY where there are fewer rows, shape (n_ways, depth)."""
    places: Integers
    """Whose they are, shape (n_ways, depth)."""
    rows: RowTable
    """The rows that lead anywhere."""

    def merge(self, other: Self) -> Self:
        """Return the leaders of both sets of rows, those of `other` later."""
        scores, places = _lead(
            np.concatenate([self.scores, other.scores], axis=1),
            np.concatenate([self.places, other.places], axis=1),
            self.scores.shape[1],
        )
        return type(self)(scores, places, self.rows.join(other.rows).at(_present(places)))


class LeaderBoard:
    """The leaders of rows that come block by block, in their order."""

    def __init__(self, n_ways: int, depth: int, n_features: int, n_targets: int) -> None:
        self._scores = np.full((n_ways, depth), float(NOBODY))
        self._places = np.full((n_ways, depth), NOBODY)
        self._rows = RowTable(np.empty(0, np.int64), np.empty((0, n_features)), np.empty((0, n_targets)))

    def add(self, scores: Floats, places: Integers, block: RowBlock) -> None:
        """Add the rows of a block, with their scores (n_ways, rows), −1 for one that must not lead, and places."""
        depth = self._scores.shape[1]
        entered = np.zeros(len(places), dtype=bool)
        for way, floor in enumerate(self._scores[:, -1]):
            entrants = np.flatnonzero(scores[way] > floor)
            if not len(entrants):
                continue
            merged = np.concatenate([self._scores[way], scores[way, entrants]])
            best = np.argsort(-merged, kind="stable")[:depth]
            self._scores[way] = merged[best]
            self._places[way] = np.concatenate([self._places[way], places[entrants]])[best]
            entered[entrants[best[best >= depth] - depth]] = True
        table = RowTable(places[entered], block.features[entered], block.targets[entered])
        self._rows = self._rows.join(table).at(_present(self._places))

    def leaders(self) -> Leaders:
        """Return the leaders of the rows that were added."""
        return Leaders(self._scores, self._places, self._rows)


def _lead(scores: Floats, places: Integers, depth: int) -> tuple[Floats, Integers]:
    best = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    return np.take_along_axis(scores, best, axis=1), np.take_along_axis(places, best, axis=1)


def _present(places: Integers) -> Integers:
    found = np.unique(places)
    return np.asarray(found[found != NOBODY])
