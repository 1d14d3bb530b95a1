"""Top rows: the rows with the largest scores, for each of several scores, with their features and targets.

A monoid, so parts of the rows can be searched independently: the top rows of two sets are those of both sets' top rows.
Among rows with equal scores, the first wins.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.sums.row_block import RowBlock

NO_ROW = -1
"""The index, and the score, if there are fewer rows than requested; scores of rows are zero or more."""


@dataclass(frozen=True)
class RowTable:
    """Some rows of a row set."""

    places: Integers
    """The indices of the rows, ascending and unique, shape (rows,)."""
    features: Floats
    """Shape (rows, n_features)."""
    targets: Floats
    """Shape (rows, n_targets)."""

    def take(self, indices: Integers) -> Self:
        """Return the rows with these indices, ascending, all of which are in the table."""
        positions = np.searchsorted(self.places, indices)
        return type(self)(indices, self.features[positions], self.targets[positions])

    def join(self, other: Self) -> Self:
        """Return the rows of both tables."""
        indices, first = np.unique(np.concatenate([self.places, other.places]), return_index=True)
        features = np.concatenate([self.features, other.features])[first]
        return type(self)(indices, features, np.concatenate([self.targets, other.targets])[first])


@dataclass(frozen=True)
class TopRows:
    """The top rows for each score."""

    scores: Floats
    """Descending, NO_ROW if there are fewer rows, shape (n_scores, depth)."""
    places: Integers
    """The indices of the rows with these scores, shape (n_scores, depth)."""
    rows: RowTable
    """All rows that are among the top rows of any score."""

    def merge(self, other: Self) -> Self:
        """Return the top rows of both sets, those of `other` following."""
        scores, indices = _select(
            np.concatenate([self.scores, other.scores], axis=1),
            np.concatenate([self.places, other.places], axis=1),
            self.scores.shape[1],
        )
        return type(self)(scores, indices, self.rows.join(other.rows).take(_present(indices)))


class TopRowsAccumulator:
    """Finds the top rows of blocks that are added in order."""

    def __init__(self, n_scores: int, depth: int, n_features: int, n_targets: int) -> None:
        self._scores = np.full((n_scores, depth), float(NO_ROW))
        self._indices = np.full((n_scores, depth), NO_ROW)
        self._rows = RowTable(np.empty(0, np.int64), np.empty((0, n_features)), np.empty((0, n_targets)))

    def add(self, scores: Floats, indices: Integers, block: RowBlock) -> None:
        """Add a block's rows with their indices and scores (n_scores, rows); −1 excludes a row."""
        depth = self._scores.shape[1]
        entered = np.zeros(len(indices), dtype=bool)
        for number, floor in enumerate(self._scores[:, -1]):
            entrants = np.flatnonzero(scores[number] > floor)
            if not len(entrants):
                continue
            merged = np.concatenate([self._scores[number], scores[number, entrants]])
            best = np.argsort(-merged, kind="stable")[:depth]
            self._scores[number] = merged[best]
            self._indices[number] = np.concatenate([self._indices[number], indices[entrants]])[best]
            entered[entrants[best[best >= depth] - depth]] = True
        table = RowTable(indices[entered], block.features[entered], block.targets[entered])
        self._rows = self._rows.join(table).take(_present(self._indices))

    def top_rows(self) -> TopRows:
        """Return the top rows of all blocks added."""
        return TopRows(self._scores, self._indices, self._rows)


def _select(scores: Floats, indices: Integers, depth: int) -> tuple[Floats, Integers]:
    best = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    return np.take_along_axis(scores, best, axis=1), np.take_along_axis(indices, best, axis=1)


def _present(indices: Integers) -> Integers:
    unique = np.unique(indices)
    return np.asarray(unique[unique != NO_ROW])
