"""Selection rules of OROLS that compare candidates by their columns: matching pursuits among random rows, or all rows.

Each round draws rows, 59 by default (Smola & Schölkopf 2000, the paper's "probabilistic approach"), and each machine
takes the one of the largest score: of the residual e = y − Qα̃ that the column k explains by itself, (kᵀe)²/kᵀk
("matching-pursuit", Mallat & Zhang 1993), or of what its part q beyond the chosen columns explains of the target,
(qᵀy)²/qᵀq ("order-recursive", Natarajan 1995). Both follow from products of columns over all rows, so the candidates of
several rounds share a pass, and the choices are those of one pass a round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.batch.orols.orthogonal_columns import OrthogonalColumns
from ridgestream.pipeline.selection.candidate_rounds import (
    IDLE_ROUNDS,
    NumberOrAll,
    candidate_source,
    check_pass_memory,
    largest_pass,
    plan_look_ahead,
)
from ridgestream.pipeline.sums.row_set import RowSet
from ridgestream.pipeline.sums.top_rows import RowTable

SelectionRule = Literal["residual", "matching-pursuit", "order-recursive"]
"""The name of a way to choose the next row."""

SPAN_TOLERANCE = 1e-10
"""A column is spanned by those before it if the squared length of its residual is below this share of its own."""


@dataclass(frozen=True)
class Drawn:
    """The candidates of some rounds."""

    rows: RowTable
    """All of them; their targets are not read, and zero."""
    rounds: Sequence[Integers]
    """The row indices of each round."""


class CandidateRounds:
    """Draws the candidates of a selection, for several rounds at once."""

    def __init__(
        self, rows: RowSet, candidates: NumberOrAll, seed: int, max_basis: int, memory_limit: int | None
    ) -> None:
        """Raise MemoryRefused if the products of a pass do not fit."""
        largest = largest_pass(max_basis, rows.n_rows, candidates, None)
        check_pass_memory(largest + max_basis, candidates, memory_limit)
        self._source = candidate_source(rows, seed, candidates)
        self._n_targets, self._candidates, self._max_basis = rows.n_targets, candidates, max_basis
        self._done = 0

    def draw(self, n_basis: int) -> Drawn:
        """Return the candidates of the next rounds of a selection that has `n_basis` vectors."""
        ahead = self._max_basis + IDLE_ROUNDS
        if self._candidates != "all":
            ahead = plan_look_ahead(self._max_basis, min(n_basis, self._max_basis - 1), self._candidates)
        drawn = self._source.of_rounds(self._done, ahead, ahead, np.empty(0, dtype=np.int64))
        self._done += ahead
        rounds = drawn.rounds if drawn.rounds is not None else [np.arange(len(drawn.places))] * ahead
        table = RowTable(drawn.places, drawn.features, np.zeros((len(drawn.places), self._n_targets)))
        return Drawn(table, [drawn.places[positions] for positions in rounds])


def scores(
    rule: SelectionRule, columns: OrthogonalColumns, products: Floats, squares: Floats, rhs: Floats, penalty: float
) -> Floats:
    """Return the score of each candidate, −1 for a spanned one, shape (n_candidates,); O(size²) each.

    `products` are Kᵀk, (size, n_candidates), with the columns K of the model, the constant one first, `squares` kᵀk and
    `rhs` kᵀy.
    """
    half = columns.project(products)
    lengths = squares - np.einsum("ij,ij->j", half, half)
    usable = lengths > SPAN_TOLERANCE * squares
    if rule == "matching-pursuit":
        explained, size = rhs - products.T @ columns.coefficients(len(products), penalty), squares
    else:
        explained, size = rhs - half.T @ columns.along(len(products)), lengths
    return np.where(usable, explained**2 / np.where(usable, size, 1.0), -1.0)
