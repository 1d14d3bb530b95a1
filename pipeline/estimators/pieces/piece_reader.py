"""Reads pieces of rows as the rows of one segment: the last piece stays in memory, and codes get tables of all rows."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.estimators.pieces.pieces import Piece, Pieces
from ridgestream.pipeline.estimators.tables import Table
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.row_batch import Rows, join_rows
from ridgestream.stores.schema.schema import Feature


class PieceReader:
    """The rows of pieces, in their order."""

    def __init__(
        self,
        pieces: Pieces,
        table_of: Callable[[Any, Sequence[Feature] | None], Table],
        known: Sequence[Feature] | None = None,
    ) -> None:
        """Read nothing; `table_of` returns the features of a piece with the columns `known`, None for its own."""
        self._pieces, self._table_of, self._known = pieces, table_of, known
        self._targets_of: Callable[[Piece, Table], tuple[Floats, Floats | None]] | None = None
        self._tables: list[dict[str, int]] = []
        self._read: tuple[int, Piece, Table] | None = None
        self._rows_read: Rows | None = None
        self.classes: tuple[Label, ...] = ()
        """The classes by code; empty for numbers."""

    def with_targets(
        self, targets_of: Callable[[Piece, Table], tuple[Floats, Floats | None]], classes: tuple[Label, ...]
    ) -> "PieceReader":
        """Return the reader once it is known how targets and weights of a piece are read."""
        self._targets_of, self.classes = targets_of, classes
        return self

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self._pieces.counts)

    @property
    def categories(self) -> tuple[tuple[str, ...], ...]:
        """For each categorical feature, its values by code, in the order of their first rows."""
        return tuple(map(tuple, self._tables))

    def table(self, number: int) -> Table:
        """Return the features of a piece."""
        return self._loaded(number)[1]

    def read(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` up to `stop`; reads the pieces that have some of them."""
        bounds = self._pieces.bounds
        first = bisect_right([low for low, _ in bounds], start) - 1
        parts = []
        for number in range(max(first, 0), len(bounds)):
            low, high = bounds[number]
            if low >= stop:
                break
            if high > start:
                parts.append(self._rows(number).part(max(start - low, 0), stop - low))
        return parts[0] if len(parts) == 1 else join_rows(parts or [self._rows(0).part(0, 0)])

    def _rows(self, number: int) -> Rows:
        assert self._targets_of is not None  # noqa: S101 (known before rows are read)
        piece, table = self._loaded(number)
        if self._rows_read is None:
            self._rows_read = Rows(table.numeric, table.codes, *self._targets_of(piece, table))
        return self._rows_read

    def _loaded(self, number: int) -> tuple[Piece, Table]:
        if self._read is None or self._read[0] != number:
            piece = self._pieces.load(number)
            table = self._table_of(piece.X, self._known)
            self._known = table.features
            self._read, self._rows_read = (number, piece, self._recoded(table)), None
        return self._read[1:]

    def _recoded(self, table: Table) -> Table:
        """Return a table with the codes of all pieces read so far, whose tables get its further values."""
        self._tables = self._tables or [{} for _ in table.categories]
        columns = [np.empty((len(table.codes), 0), np.int32)]
        for known, values, codes in zip(self._tables, table.categories, table.codes.T, strict=True):
            new = np.array([*(known.setdefault(value, len(known)) for value in values), -1], np.int32)
            columns.append(new[codes][:, np.newaxis])
        return replace(table, codes=np.hstack(columns), categories=self.categories)
