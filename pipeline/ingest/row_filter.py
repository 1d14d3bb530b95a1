"""Filters the rows of a partition that lack a value, and recodes the categories and classes of the others.

Dropped rows leave no trace: neither among the codes, nor in a table of categories or classes.
"""

import numpy as np
import numpy.typing as npt

from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.row_batch import Rows


class RowFilter:
    """Filters one partition's rows batch by batch, in the order of its decoder."""

    def __init__(self, decoder: Decoder) -> None:
        """Filter the rows of this decoder; nothing is dropped unless it marks what is missing to be dropped."""
        self._decoder = decoder
        self._categories = [_Recoding() for _ in decoder.schema.categorical]
        self._classes = _Recoding()
        self.dropped = 0

    def keep(self, rows: Rows) -> Rows:
        """Return the rows of a batch that are kept."""
        if not self._decoder.drops:
            return rows
        lacking = rows.incomplete()
        self.dropped += int(lacking.sum())
        return self._recoded(rows.take(~lacking) if lacking.any() else rows)

    @property
    def rows(self) -> int:
        """How many rows were kept so far."""
        return self._decoder.rows - self.dropped

    @property
    def categories(self) -> tuple[tuple[str, ...], ...]:
        """The categories of the kept rows, by code."""
        tables = [tuple(table) for table in self._decoder.categories]
        if not self._decoder.drops:
            return tuple(tables)
        pairs = zip(tables, self._categories, strict=True)
        return tuple(tuple(table[code] for code in recoding.codes) for table, recoding in pairs)

    @property
    def classes(self) -> tuple[Label, ...]:
        """The classes of the kept rows, by code."""
        table = tuple(self._decoder.classes)
        return tuple(table[code] for code in self._classes.codes) if self._decoder.drops else table

    @property
    def missing(self) -> tuple[int, ...]:
        """How many values each numeric, then each categorical feature of the kept rows lacks; empty if none does."""
        schema = self._decoder.schema
        counts = tuple(self._decoder.absent.get(f.name, 0) for f in (*schema.numeric, *schema.categorical))
        return () if self._decoder.drops or not any(counts) else counts

    def _recoded(self, rows: Rows) -> Rows:
        codes, targets = rows.codes, rows.targets
        if self._categories:
            columns = [recoding.apply(codes[:, i]) for i, recoding in enumerate(self._categories)]
            codes = np.column_stack(columns).astype(np.int32)
        if targets is not None and self._decoder.schema.class_kind is not None:
            targets = self._classes.apply(targets[:, 0].astype(np.int64))[:, np.newaxis].astype(np.float64)
        return Rows(rows.numeric, codes, targets, rows.weights)


class _Recoding:
    """Replaces codes by their order of first appearance."""

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}

    def apply(self, codes: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        distinct, first = np.unique(codes, return_index=True)
        for code in distinct[np.argsort(first)].tolist():
            self.codes.setdefault(code, len(self.codes))
        new_codes = np.array([self.codes[code] for code in distinct.tolist()], dtype=np.int64)
        return new_codes[np.searchsorted(distinct, codes)]
