"""Look-ahead: the random candidates of several rounds of a greedy selection, drawn together so that they share a pass.

A round's candidates depend only on the seed, the round and the number of rows, not on earlier choices: candidates that
are already chosen or spanned are skipped and not replaced. So one pass forms the sums of the candidates of r rounds
with the chosen vectors and with each other, and the r choices made from them are those of r passes.

Where chosen rows are replaced, a round has a random order of all rows, and its candidates are the first ρ that are not
chosen by then. The first ρ + r − 1 of those not chosen before the pass contain them, so that look-ahead is exact, too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.base.memory_plan import show_bytes
from ridgestream.pipeline.sums.row_set import RowSet

RULE_OF_59 = 59
"""The best of this many random candidates is among the best 5 % of all with probability 0.95 (Smola & Schölkopf)."""

IDLE_ROUNDS = 20
"""Selection stops after this many consecutive rounds without an eligible candidate."""

_TAKEN_BYTES = 16 * 2**20
"""The memory of rows that are fetched ahead for later rounds, unless one pass needs more."""

KERNEL_SECONDS, PRODUCT_SECONDS, ROW_SECONDS = 4e-9, 2 / 45e9, 2e-6
"""The seconds for a kernel value, for a product with its addition, and for the rest of a pass per row, mostly reading:
measured on one thread; only their ratios matter."""

_MATRICES = 6
"""The peak memory of a pass and the choices after it, in matrices over the chosen vectors and all candidates."""

NumberOrAll = int | Literal["all"]

Pool = Literal["all", "unchosen"]
"""The rows from which a round draws its candidates."""

_UNCHOSEN_STREAM = 2
"""Distinguishes the draws that replace chosen rows from the others."""

_FETCHED_ROUNDS = 32
"""The rounds whose rows are fetched at once where chosen rows are replaced."""


@dataclass(frozen=True)
class Candidates:
    """The candidates of the next rounds."""

    places: Integers
    """Their row indices, ascending and unique, shape (n_candidates,)."""
    features: Floats
    """Shape (n_candidates, n_features)."""
    weights: Floats
    """Above zero, shape (n_candidates,)."""
    rounds: Sequence[Integers] | None
    """For each round, the positions of its candidates, ascending, or in their order if chosen ones are replaced, with
    −1 for a row of weight zero; None if every round has all of them."""


def plan_look_ahead(max_basis: int, n_basis: int, candidates: int = RULE_OF_59) -> int:
    """Return the number of rounds for the next pass of a selection of `max_basis` vectors that has `n_basis`.

    A pass reads each row and computes its n_basis kernel values once for all r rounds, but forms c² r products of
    candidates with each other per round, c = `candidates`. Apart from terms that do not depend on r, a row costs
    (n_basis·k + a)/r + c²·p·r per round, which is smallest at r = √((n_basis·k + a)/(c²·p)). The remaining rounds are
    distributed evenly over passes.
    """
    once = n_basis * KERNEL_SECONDS + ROW_SECONDS
    best = max(1, round(math.sqrt(once / (candidates**2 * PRODUCT_SECONDS))))
    left = max(1, max_basis - n_basis)
    return math.ceil(left / math.ceil(left / best))


def count_passes(max_basis: int, n_basis: int, candidates: int, look_ahead: int | None) -> int:
    """Return the number of remaining passes if every round chooses a vector."""
    passes = 0
    while n_basis < max_basis:
        n_basis += look_ahead or plan_look_ahead(max_basis, n_basis, candidates)
        passes += 1
    return passes


def largest_pass(max_basis: int, n_rows: int, candidates: NumberOrAll, look_ahead: int | None) -> int:
    """Return the number of vectors and candidates of the largest pass."""
    if candidates == "all":
        return n_rows
    rounds = [look_ahead or plan_look_ahead(max_basis, n_basis, candidates) for n_basis in range(max_basis)]
    drawn = [min(ahead, max_basis - n_basis) * candidates for n_basis, ahead in enumerate(rounds)]
    return max((n_basis + min(count, n_rows) for n_basis, count in enumerate(drawn)), default=0)


def draw_round(seed: int, number: int, n_rows: int, wanted: int, stream: int = 0) -> Integers:
    """Return the rows of a round, ascending, shape (min(wanted, n_rows),); `stream` distinguishes independent draws."""
    if wanted >= n_rows:
        return np.arange(n_rows)
    drawn = np.random.default_rng((seed, number, stream)).choice(n_rows, wanted, replace=False, shuffle=False)
    return np.sort(drawn)


def draw_unchosen(seed: int, number: int, n_rows: int, wanted: int, chosen: Integers) -> Integers:
    """Return the first `wanted` rows of a round's random order of all rows that are not chosen, in this order."""
    generator, drawn, size = np.random.default_rng((seed, number, _UNCHOSEN_STREAM)), np.empty(0, np.int64), 256
    while True:
        drawn = np.append(drawn, generator.integers(n_rows, size=size))
        drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
        rest = drawn[~np.isin(drawn, chosen)]
        if len(rest) >= wanted or len(drawn) == n_rows:
            return rest[:wanted]
        size *= 2


class DrawnCandidates:
    """Random candidates for each round, whose rows are fetched for many rounds at once."""

    def __init__(self, rows: RowSet, seed: int, per_round: int, stream: int = 0) -> None:
        self._rows, self._seed, self._per_round, self._stream = rows, seed, min(per_round, rows.n_rows), stream
        self._until = 0
        self._taken = Candidates(np.empty(0, dtype=np.int64), np.empty((0, rows.n_features)), np.empty(0), None)

    @property
    def exhaustive(self) -> bool:
        """Whether every round has all rows as candidates."""
        return self._per_round == self._rows.n_rows

    def of_rounds(self, first: int, count: int, ahead: int, chosen: Integers) -> Candidates:
        """Return the candidates of `count` rounds from `first` on, without the rows `chosen` and those of weight zero.

        Rounds must be requested in order. Rows may be fetched for `ahead` rounds, including the requested ones.
        """
        if first + count > self._until:
            self._fetch(
                first, max(count, min(ahead, _TAKEN_BYTES // max(1, 8 * self._per_round * self._rows.n_features)))
            )
        drawn = [self._draw(number) for number in range(first, first + count)]
        taken, usable = self._taken, np.setdiff1d(self._taken.places, chosen)
        rounds = [np.intersect1d(places, usable, assume_unique=True) for places in drawn]
        places = np.unique(np.concatenate(rounds))
        which = np.searchsorted(taken.places, places)
        columns = [np.searchsorted(places, chosen_from) for chosen_from in rounds]
        return Candidates(places, taken.features[which], taken.weights[which], columns)

    def _draw(self, number: int) -> Integers:
        return draw_round(self._seed, number, self._rows.n_rows, self._per_round, self._stream)

    def _fetch(self, first: int, count: int) -> None:
        places = np.unique(np.concatenate([self._draw(number) for number in range(first, first + count)]))
        self._taken = take_present(self._rows, places)
        self._until = first + count


class UnchosenCandidates:
    """Random candidates for each round from the rows not chosen yet, fetched for many rounds at once."""

    exhaustive = False

    def __init__(self, rows: RowSet, seed: int, per_round: int) -> None:
        self._rows, self._seed, self._per_round = rows, seed, per_round
        self._drawn: dict[int, Integers] = {}
        self._taken = Candidates(np.empty(0, dtype=np.int64), np.empty((0, rows.n_features)), np.empty(0), None)

    def of_rounds(self, first: int, count: int, ahead: int, chosen: Integers) -> Candidates:
        """Return rows with the candidates of `count` rounds from `first` on, the first `per_round` not chosen by then.

        Rounds must be requested in order. Rows may be fetched for `ahead` rounds, including the requested ones.
        """
        if first + count - 1 not in self._drawn:
            self._fetch(first, max(count, min(ahead, _FETCHED_ROUNDS)), chosen)
        drawn = [self._drawn[number] for number in range(first, first + count)]
        drawn = [order[~np.isin(order, chosen)][: self._per_round + count - 1] for order in drawn]
        taken, wanted = self._taken, np.unique(np.concatenate(drawn))
        places = np.intersect1d(wanted, taken.places, assume_unique=True)
        which, position = np.searchsorted(taken.places, places), np.full(int(wanted[-1]) + 1 if len(wanted) else 0, -1)
        position[places] = np.arange(len(places))
        return Candidates(places, taken.features[which], taken.weights[which], [position[order] for order in drawn])

    def _fetch(self, first: int, count: int, chosen: Integers) -> None:
        wanted, n_rows = self._per_round + count - 1, self._rows.n_rows
        numbers = range(first, first + count)
        self._drawn = {number: draw_unchosen(self._seed, number, n_rows, wanted, chosen) for number in numbers}
        self._taken = take_present(self._rows, np.unique(np.concatenate(list(self._drawn.values()))))


class AllCandidates:
    """All rows as candidates of every round, in memory."""

    exhaustive = True

    def __init__(self, rows: RowSet) -> None:
        self._taken = take_present(rows, np.arange(rows.n_rows))

    def of_rounds(self, first: int, count: int, ahead: int, chosen: Integers) -> Candidates:  # noqa: ARG002
        """Return all rows of positive weight that are not `chosen`, for every round."""
        taken = self._taken
        left = np.flatnonzero(~np.isin(taken.places, chosen))
        return Candidates(taken.places[left], taken.features[left], taken.weights[left], None)


def candidate_source(
    rows: RowSet, seed: int, candidates: NumberOrAll, pool: Pool = "all"
) -> DrawnCandidates | UnchosenCandidates | AllCandidates:
    """Return the source of candidates: a number of rows drawn in each round from the pool, or all rows."""
    if candidates == "all":
        return AllCandidates(rows)
    if pool == "unchosen" and candidates < rows.n_rows:
        return UnchosenCandidates(rows, seed, candidates)
    return DrawnCandidates(rows, seed, candidates)


def take_present(rows: RowSet, indices: Integers) -> Candidates:
    """Return the rows with these indices that have positive weight, for every round."""
    block = rows.take(indices)
    weights = np.ones(len(indices)) if block.weights is None else block.weights
    present = weights > 0
    return Candidates(indices[present], block.features[present], weights[present], None)


def check_pass_memory(n_functions: int, candidates: NumberOrAll, limit_bytes: int | None) -> None:
    """Raise MemoryRefused, with the numbers, if the sums of a pass over `n_functions` functions do not fit."""
    check_memory(8 * _MATRICES * n_functions**2, candidates, limit_bytes)


def check_memory(needed: int, candidates: NumberOrAll, limit_bytes: int | None) -> None:
    """Raise MemoryRefused, with the numbers and a remedy, if `needed` bytes are above the limit."""
    if limit_bytes is None or needed <= limit_bytes:
        return
    what = "all rows as candidates" if candidates == "all" else f"{candidates} candidates a round"
    way_out = "ask for 59 candidates a round" if candidates == "all" else "lower max_basis, candidates or look_ahead"
    raise MemoryRefused(
        f"{what} need {show_bytes(needed)} of memory, {show_bytes(limit_bytes)} may be used: {way_out}, "
        "or raise memory_limit"
    )


def cut_idle(rounds: Integers, last: int, until: int) -> tuple[int, bool]:
    """Return the number of choices before too many idle rounds, and whether there were too many.

    `rounds`, ascending, are the rounds after round `last` that chose a vector; all rounds before `until` are done.
    """
    gaps = np.diff(np.concatenate([[last], rounds, [until]])) - 1
    idle = np.flatnonzero(gaps >= IDLE_ROUNDS)
    return (int(idle[0]), True) if len(idle) else (len(rounds), False)
