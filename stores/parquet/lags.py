"""Lags: values of earlier rows as columns of later ones, so that `load_lag24` is `load` 24 rows before.

Rows count in the order of the partitions and of their rows; with a key, those of each key by themselves. The first rows
of a partition follow the last ones of the partitions before it, which are read for them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.schema.column_types import LAG_OF, plain_values

if TYPE_CHECKING:
    import pyarrow as pa

REACH = 100
"""The number of partitions before one in which earlier rows are looked for."""

LARGEST_LAG = 10_000
"""The most rows before one: so many rows of each series are in memory."""

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lags:
    """Which earlier values are columns."""

    columns: tuple[tuple[str, tuple[int, ...]], ...]
    """The columns, each with how many rows before its values are taken."""
    key: str | None = None
    """The column whose values have a series each; None if all rows are one series."""

    @cached_property
    def names(self) -> dict[str, tuple[str, int]]:
        """The new columns by name, each with the column that it is of, and how many rows before."""
        return {f"{name}_lag{lag}": (name, lag) for name, lags in self.columns for lag in lags}

    @property
    def longest(self) -> int:
        """How many earlier rows are needed."""
        return max(lag for _, lags in self.columns for lag in lags)

    @property
    def sources(self) -> list[str]:
        """The columns that are read for them."""
        return list(dict.fromkeys([*(name for name, _ in self.columns), *([self.key] if self.key else [])]))

    def needed(self, columns: Sequence[str]) -> list[str]:
        """Return which columns of a file are read for these."""
        return list(dict.fromkeys([*(name for name in columns if name not in self.names), *self.sources]))

    def add_fields(self, schema: "pa.Schema", file: str) -> "pa.Schema":
        """Return a file's schema with the new columns; raises PartitionError naming what is missing or there twice."""
        import pyarrow as pa

        for name in self.sources:
            if name not in schema.names:
                raise PartitionError(
                    f"{file} has no column {name!r}, which source.lags needs; it has {', '.join(schema.names)}"
                )
        for name, (source, _) in self.names.items():
            if name in schema.names:
                raise PartitionError(f"{file} has a column {name!r} of its own; rename it, or leave out source.lags")
            kind = plain_values(schema.field(source), pa.array([], schema.field(source).type)).type
            schema = schema.append(pa.field(name, kind, metadata={LAG_OF: source}))
        return schema


@dataclass
class LaggedRows:
    """The last rows of each series so far, and the lags of the rows that follow."""

    lags: Lags
    """Which values are columns."""
    schema: "pa.Schema"
    """The schema of the file with the new columns."""
    file: str
    """The file, for messages."""
    last: "list[pa.Table]" = field(default_factory=list)
    """The last rows, in order; at most one table."""

    def add(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """Return a batch with the new columns, null where there is no earlier row."""
        rows, before = self._join(batch), sum(table.num_rows for table in self.last)
        codes = _codes(rows, self.lags.key)
        for name, (source, lag) in self.lags.names.items():
            values = rows.column(source).combine_chunks().take(_earlier(codes, lag, before))
            batch = batch.append_column(self.schema.field(name), values)
        self._keep(rows, codes)
        return batch

    def follow(self, batch: "pa.RecordBatch") -> None:
        """Take a batch for the rows before those to come."""
        rows = self._join(batch)
        self._keep(rows, _codes(rows, self.lags.key))

    def precede(self, earlier: "LaggedRows") -> None:
        """Take the last rows of an earlier partition for those before."""
        import pyarrow as pa

        tables = [*(self._cast(table) for table in earlier.last), *self.last]
        if tables:
            rows = pa.concat_tables(tables)
            self._keep(rows, _codes(rows, self.lags.key))

    def suffices(self, keys: "set[object] | None") -> bool:
        """Return whether these keys (None for the one series) have all earlier rows that are needed."""
        rows = sum(table.num_rows for table in self.last)
        if keys is None or self.lags.key is None:
            return bool(rows >= self.lags.longest)
        counts = {} if not rows else _count(self.last[0].column(self.lags.key))
        return all(counts.get(key, 0) >= self.lags.longest for key in keys)

    def _join(self, batch: "pa.RecordBatch") -> "pa.Table":
        """Return the last rows, and after them those of a batch, of the columns that lags are taken of."""
        import pyarrow as pa

        fields = [batch.schema.field(name) for name in self.lags.sources]
        columns = [plain_values(each, batch.column(each.name)) for each in fields]
        new = pa.table(columns, names=self.lags.sources)
        return pa.concat_tables([*(_cast(table, new.schema, self.file) for table in self.last), new])

    def _cast(self, table: "pa.Table") -> "pa.Table":
        return _cast(table, self.last[0].schema, self.file) if self.last else table

    def _keep(self, rows: "pa.Table", codes: Positions) -> None:
        """Keep the last rows of each series."""
        order = np.argsort(codes, kind="stable")
        ahead = np.full(len(order), -1)
        ahead[: max(len(order) - self.lags.longest, 0)] = codes[order][self.lags.longest :]
        self.last = [rows.take(np.sort(order[ahead != codes[order]])).combine_chunks()]


def _cast(table: "pa.Table", schema: "pa.Schema", file: str) -> "pa.Table":
    """Return rows of an earlier file with the types of a later one."""
    import pyarrow as pa

    try:
        return table.cast(schema)
    except pa.ArrowException as error:
        raise PartitionError(
            f"{file}: lags need columns of one type in consecutive partitions: {error}; write the column "
            "with the same type"
        ) from error


def _codes(rows: "pa.Table", key: str | None) -> Positions:
    """Return a number for each row, equal for the rows of a series."""
    if key is None:
        return np.zeros(rows.num_rows, dtype=np.int64)
    encoded = rows.column(key).combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.fill_null(-2).to_numpy(zero_copy_only=False), dtype=np.int64)


def _earlier(codes: Positions, lag: int, start: int) -> "pa.Array":
    """Return for each row from `start` on the position `lag` rows before in its series, null without one."""
    import pyarrow as pa

    order = np.argsort(codes, kind="stable")
    earlier, own = np.full(len(codes), -1), codes[order]
    same = own[lag:] == own[:-lag]
    earlier[order[lag:][same]] = order[:-lag][same]
    return pa.array(earlier[start:], mask=earlier[start:] < 0)


def _count(column: "pa.ChunkedArray") -> dict[object, int]:
    return {entry["values"]: entry["counts"] for entry in column.value_counts().to_pylist()}


def distinct_keys(batches: "Iterator[pa.RecordBatch]", key: str) -> set[object]:
    """Return the keys that occur in the batches."""
    keys: set[object] = set()
    for batch in batches:
        keys.update(plain_values(batch.schema.field(key), batch.column(key)).unique().to_pylist())
    return keys
