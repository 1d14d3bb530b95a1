"""The sieve of an ingest: which rows of a partition stay, and the codes of their categories and classes.

Rows that lack a value leave no trace: neither among the codes, nor in a table of categories or classes.
"""

import numpy as np
import numpy.typing as npt

from ridgestream.stores.parquet.decoder import DROP, Decoder
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.row_batch import Rows


class Sieve:
    """Sifts one partition's rows, batch after batch, as its decoder gives them."""

    def __init__(self, decoder: Decoder) -> None:
        """Sift what `decoder` decodes; rows that lack a value are left out if it is to drop them."""
        self._decoder = decoder
        self._drops = decoder.missing == DROP
        self._categories = [_Recoding() for _ in decoder.schema.categorical]
        self._classes = _Recoding()
        self.dropped = 0

    def keep(self, rows: Rows) -> Rows:
        """Return the rows that stay."""
        if not self._drops:
            return rows
        lacking = rows.incomplete()
        self.dropped += int(lacking.sum())
        return self._recoded(rows.take(~lacking) if lacking.any() else rows)

    @property
    def rows(self) -> int:
        """How many rows have stayed so far."""
        return self._decoder.rows - self.dropped

    @property
    def categories(self) -> tuple[tuple[str, ...], ...]:
        """The categories of the rows that have stayed, by code."""
        tables = [tuple(table) for table in self._decoder.categories]
        if not self._drops:
            return tuple(tables)
        pairs = zip(tables, self._categories, strict=True)
        return tuple(tuple(table[code] for code in recoding.codes) for table, recoding in pairs)

    @property
    def classes(self) -> tuple[Label, ...]:
        """Their classes, by code."""
        table = tuple(self._decoder.classes)
        return tuple(table[code] for code in self._classes.codes) if self._drops else table

    @property
    def missing(self) -> tuple[int, ...]:
        """How many values each numeric, then each categorical feature of them lacks; empty if none lacks any."""
        schema = self._decoder.schema
        counts = tuple(self._decoder.absent.get(f.name, 0) for f in (*schema.numeric, *schema.categorical))
        return () if self._drops or not any(counts) else counts

    def _recoded(self, rows: Rows) -> Rows:
        codes, targets = rows.codes, rows.targets
        if self._categories:
            columns = [recoding.apply(codes[:, i]) for i, recoding in enumerate(self._categories)]
            codes = np.column_stack(columns).astype(np.int32)
        if targets is not None and self._decoder.schema.class_kind is not None:
            targets = self._classes.apply(targets[:, 0].astype(np.int64))[:, np.newaxis].astype(np.float64)
        return Rows(rows.numeric, codes, targets, rows.weights)


class _Recoding:
    """Codes in the place of others, by first appearance."""

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}

    def apply(self, codes: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        found, first = np.unique(codes, return_index=True)
        for code in found[np.argsort(first)].tolist():
            self.codes.setdefault(code, len(self.codes))
        return np.array([self.codes[code] for code in found.tolist()], dtype=np.int64)[np.searchsorted(found, codes)]
