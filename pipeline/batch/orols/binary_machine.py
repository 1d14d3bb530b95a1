"""One machine of OROLS: the model of one target, with its confirmed steps and the predicted next steps.

Steps are predicted from the rows whose columns are known, and confirmed by a pass over all rows which shows that no
other row has a larger residual. Wrong predictions are undone, so the result is that of one pass per step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.batch.orols.criteria import (
    PENALTIES,
    SCORE_NAMES,
    SCORES,
    Directions,
    RegularizationRule,
    SizeRule,
)
from ridgestream.pipeline.batch.orols.orthogonal_columns import OrthogonalColumns
from ridgestream.pipeline.batch.orols.pursuit import SPAN_TOLERANCE, SelectionRule, scores
from ridgestream.pipeline.batch.orols.residual_pass import Chain, Library, row_keys
from ridgestream.pipeline.selection.candidate_rounds import IDLE_ROUNDS
from ridgestream.pipeline.sums.top_rows import NO_ROW

TIE = 1e-10
"""Residuals that differ by less than this share of the target's root mean square are equal within rounding."""

REFUSALS = 10
"""A machine stops after this many consecutive rows of largest residual without a usable column."""

TOLERANCE_ROWS = 4000
"""Up to this many rows, a tolerance of changes of λ holds as it is given."""


def tolerance_for(tolerance: float, weight: float) -> float:
    """Return the tolerance for rows of this weight: above TOLERANCE_ROWS, it falls with their square root."""
    return tolerance * min(1.0, float(np.sqrt(TOLERANCE_ROWS / weight)))


@dataclass(frozen=True)
class Step:
    """One vector added."""

    place: int
    """Its row index."""
    penalty: float
    """λ of the model with it."""
    score: float
    """What the number of vectors is judged by, of the model with it; the less the better."""


@dataclass(frozen=True)
class PathRule:
    """How λ of a step is found, when a path ends, and which model of it is served."""

    max_basis: int
    """The largest number of vectors."""
    tolerance: float
    """λ is stationary if its relative change is at most this, which `tolerance_for` gives for the rows."""
    patience: int
    """The number of consecutive steps in which λ must have been stationary; twice as many without a lower score."""
    condition_limit: float
    """The largest condition number of Q."""
    regularization: RegularizationRule = "gcv"
    """How λ is found."""
    size: SizeRule = "gcv"
    """How the number of vectors is found."""
    selection: SelectionRule = "residual"
    """How the next row is chosen."""

    def step(self, place: int, model: Directions, before: float) -> Step:
        """Return the step that led to this model, from λ of the step before."""
        penalty = PENALTIES[self.regularization](model, before)
        return Step(place, penalty, SCORES[self.size](model, penalty))

    def ended(self, steps: Sequence[Step]) -> str:
        """Return why the path ends after these steps, an empty string if it continues.

        λ also stands still at the ends of its range, where GCV rises: its standing still counts at the least GCV only,
        unless the path shall end there. Of scores in any other unit, only their rise ends a path.
        """
        since = len(steps) - 1 - int(np.argmin([step.score for step in steps]))
        if self.size == "stationary" or (self.size == "gcv" and not since):
            return "lambda is stationary" if self._is_still(steps) else ""
        return f"{SCORE_NAMES[self.size]} has stopped falling" if since >= 2 * self.patience else ""

    def served(self, steps: Sequence[Step]) -> int:
        """Return the number of vectors of the served model among those of a path."""
        if self.size in ("cv", "stationary"):
            return len(steps)
        return int(np.argmin([step.score for step in steps])) + 1 if steps else 0

    def _is_still(self, steps: Sequence[Step]) -> bool:
        recent = [0.0, *(step.penalty for step in steps)][-self.patience - 1 :]
        return len(recent) > self.patience and all(abs(b - a) <= self.tolerance * b for a, b in pairwise(recent))


@dataclass(frozen=True)
class Ranking:
    """The rows with the largest residuals, descending; indices are NO_ROW if there are fewer rows."""

    residuals: Floats
    """|y − f|, shape (depth,)."""
    places: Integers
    """The row indices, shape (depth,)."""

    def in_order(self, margin: float) -> Iterator[int]:
        """Yield the row indices by residual; among residuals that are equal within `margin`, the lowest index first."""
        present = self.places != NO_ROW
        residuals, places = self.residuals[present], self.places[present]
        while len(places):
            first = int(np.argmin(np.where(residuals >= residuals[0] - margin, places, np.iinfo(np.int64).max)))
            yield int(places[first])
            residuals, places = np.delete(residuals, first), np.delete(places, first)


class Machine:
    """The model of one target."""

    def __init__(self, target: int, columns: OrthogonalColumns, rule: PathRule) -> None:
        self.target, self._columns, self._rule = target, columns, rule
        self._steps: list[Step] = []
        self._refused: dict[int, Floats] = {}
        self._refused_now = 0
        self._rankings: dict[int, Ranking] = {}
        self._margin = TIE * float(np.sqrt(columns.square / columns.weight))
        self.confirmed = 0
        self.wanted = np.empty(0, dtype=np.int64)
        self.residual = float("inf")
        self.finished = ""

    @property
    def steps(self) -> list[Step]:
        """Return the confirmed steps."""
        return self._steps[: self.confirmed]

    def condition(self, size: int) -> float:
        """Return the condition number of Q after the first `size` steps, the square root of that of QᵀQ."""
        lengths = self._columns.lengths[: size + 1]
        return float(np.sqrt(lengths.max() / lengths.min()))

    def places(self) -> Integers:
        """Return the row indices of the confirmed steps, in their order."""
        return np.array([step.place for step in self.steps], dtype=np.int64)

    def best_places(self, most: int) -> Integers:
        """Return those of the model to serve among the first `most`."""
        return self.places()[: self._rule.served(self.steps[:most])]

    def needs(self) -> Integers:
        """Return the indices of the rows whose columns the machine still needs."""
        return np.union1d(self.places(), self.wanted)

    def learn(self, rankings: dict[int, Ranking]) -> None:
        """Store the rankings of a pass, by the sizes of the models."""
        self._rankings.update(rankings)

    def advance(self, library: Library, pool: int) -> None:
        """Confirm every step whose largest residual and column are known; request `pool` columns for the next pass."""
        while not self.finished and self.confirmed in self._rankings:
            ranking = self._rankings[self.confirmed]
            if not self._take(ranking, library):
                break
            del self._rankings[self.confirmed - 1]
            self.wanted = np.sort(ranking.places[:pool][ranking.places[:pool] != NO_ROW])
            self._check_finished()

    def choose(self, library: Library, places: Integers) -> None:
        """Take the candidate of the largest score with a usable column, if there is one, and the machine is at work."""
        if self.finished:
            return
        for place in self._by_score(library, places):
            if self._fits(library, place, self.confirmed):
                self._push(library, place)
                self.confirmed, self._refused_now = self.confirmed + 1, 0
                error, _ = self._columns.directions().at(self.penalty(self.confirmed))
                self.residual = float(np.sqrt(error / self._columns.weight))
                self._check_finished()
                return
        self._refused_now += 1
        if self._refused_now == IDLE_ROUNDS:
            self.stop("no candidate has a usable column")

    def expect(self, library: Library, steps: int) -> None:
        """Predict `steps` more steps from the rows of the library, for the next pass to confirm."""
        for _ in range(steps):
            if self.finished or len(self._steps) >= self._rule.max_basis or not self._has_freedom(len(self._steps)):
                return
            for place in self._expected(library):
                if self._fits(library, place, len(self._steps)):
                    self._push(library, place)
                    break
            else:
                return

    def chain(self, library: Library) -> Chain | None:
        """Return the models whose largest residuals the next pass must find; None if the machine needs none."""
        if self.finished or self.confirmed in self._rankings:
            return None
        sizes = np.arange(self.confirmed, len(self._steps) + 1)
        coefficients = np.zeros((len(self._steps) + 1, len(sizes)))
        for column, size in enumerate(sizes):
            solved = self.coefficients(int(size))
            coefficients[:size, column], coefficients[-1, column] = solved[1:], solved[0]
        taken = np.array([step.place for step in self._steps], dtype=np.int64)
        columns = library.find(taken)
        met = np.concatenate([*self._refused.values(), library.rows.features[columns]])
        barred, first = np.unique(row_keys(met), return_index=True)
        turns = np.maximum(first - len(self._refused) + 1, 0)
        return Chain(self.target, columns, coefficients, sizes, barred, turns)

    def penalty(self, size: int) -> float:
        """Return λ of the model with the first `size` vectors."""
        return self._steps[size - 1].penalty if size else 0.0

    def coefficients(self, size: int) -> Floats:
        """Return the coefficients of the model with the first `size` vectors, the bias first."""
        return self._columns.coefficients(size + 1, self.penalty(size))

    def stop(self, reason: str) -> None:
        """Finish for this reason, and undo the predicted steps."""
        self.finished, self.wanted = reason, np.empty(0, dtype=np.int64)
        self._cut(self.confirmed)

    def _take(self, ranking: Ranking, library: Library) -> bool:
        """Confirm the step of the largest residual; return False if its column is unknown or there is no such step."""
        for place in ranking.in_order(self._margin):
            if place in self._refused:
                continue
            if len(self._steps) > self.confirmed and self._steps[self.confirmed].place == place:
                return self._settle(ranking)
            if place not in library:
                self._cut(self.confirmed)
                self.wanted = np.union1d(ranking.places[ranking.places != NO_ROW], place)
                return False
            if self._fits(library, place, self.confirmed):
                self._cut(self.confirmed)
                self._push(library, place)
                return self._settle(ranking)
            self._refuse(library, place)
            if self.finished:
                return False
        if ranking.places[-1] == NO_ROW:
            self.stop("no rows are left")
        else:
            del self._rankings[self.confirmed]
        return False

    def _refuse(self, library: Library, place: int) -> None:
        """Exclude a row; it counts towards REFUSALS unless it equals a row that was taken or excluded before."""
        own = library.rows.features[library.find(np.array([place]))]
        met = [library.rows.features[library.find(self.places())], *self._refused.values()]
        self._refused[place] = own
        if not (np.concatenate(met) == own).all(axis=1).any():
            self._refused_now += 1
        if self._refused_now == REFUSALS:
            self.stop("Q would be ill-conditioned")

    def _settle(self, ranking: Ranking) -> bool:
        self.confirmed += 1
        self._refused_now = 0
        self.residual = float(ranking.residuals[0])
        return True

    def _check_finished(self) -> None:
        rule, steps = self._rule, self.steps
        if self.residual <= self._margin:
            self.stop("the residuals are zero within rounding")
        elif reason := rule.ended(steps):
            self.stop(reason)
        elif len(steps) >= rule.max_basis:
            self.stop("max_basis is reached")
        elif not self._has_freedom(self.confirmed):
            self.stop("as many vectors as rows")

    def _has_freedom(self, size: int) -> bool:
        """Return whether a further vector leaves the trace of P̃ above zero whatever λ."""
        return size + 2 < self._columns.weight

    def _expected(self, library: Library) -> Iterator[int]:
        """Yield the library's row indices by descending residual of the longest model."""
        size = len(self._steps)
        taken = library.find(np.array([step.place for step in self._steps], dtype=np.int64))
        solved = self.coefficients(size)
        residuals = np.abs(library.rows.targets[:, self.target] - library.gram[:, taken] @ solved[1:] - solved[0])
        residuals[taken] = NO_ROW
        residuals[np.isin(library.rows.places, list(self._refused))] = NO_ROW
        best = np.argsort(-residuals, kind="stable")[: 4 * REFUSALS]
        best = best[residuals[best] != NO_ROW]
        return Ranking(residuals[best], library.rows.places[best]).in_order(self._margin)

    def _by_score(self, library: Library, places: Integers) -> Iterator[int]:
        """Yield the candidates in the order of their scores, without those that are spanned."""
        taken, size = library.find(self.places()), self.confirmed
        columns = library.find(np.setdiff1d(places, self.places()))
        order = np.r_[len(library.rows.places), taken]
        found = scores(
            self._rule.selection,
            self._columns,
            library.products[np.ix_(order, columns)],
            library.products[columns, columns],
            library.rhs[columns, self.target],
            self.penalty(size),
        )
        for best in np.argsort(-found, kind="stable"):
            if found[best] < 0:
                return
            yield int(library.rows.places[columns[best]])

    def _measure(self, library: Library, place: int, size: int) -> tuple[Floats, float, float]:
        """Return h and s of the row's column after the first `size` steps, and its squared length; O(size²)."""
        taken = library.find(np.array([step.place for step in self._steps[:size]], dtype=np.int64))
        column = int(library.find(np.array([place]))[0])
        own = library.products[:, column]
        half, length = self._columns.measure(np.concatenate([own[-1:], own[taken], own[[column]]]), size + 1)
        return half, length, float(own[column])

    def _fits(self, library: Library, place: int, size: int) -> bool:
        """Return whether the row's column would leave Q well-conditioned."""
        _, length, square = self._measure(library, place, size)
        lengths = self._columns.lengths[: size + 1]
        smallest = max(float(lengths.max()), length) / self._rule.condition_limit**2
        return length > SPAN_TOLERANCE * square and min(length, float(lengths.min())) >= smallest

    def _push(self, library: Library, place: int) -> None:
        half, length, _ = self._measure(library, place, len(self._steps))
        column = int(library.find(np.array([place]))[0])
        self._columns.push(half, length, float(library.rhs[column, self.target]))
        self._steps.append(self._rule.step(place, self._columns.directions(), self.penalty(len(self._steps))))

    def _cut(self, size: int) -> None:
        """Undo the steps after the first `size`."""
        del self._steps[size:]
        self._columns.shrink(size + 1)
        self._rankings = {known: ranking for known, ranking in self._rankings.items() if known <= size}
