"""Reading columns of Arrow batches as numbers, categories or names, with checks of every value.

A value that cannot be used is refused with file, column, row and value. Missing values, null or NaN, are refused, too,
or marked; nothing is dropped or guessed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import numpy.typing as npt

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.schema.category_names import category_names
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.column_types import LARGEST_INTEGER, folder_text, is_text, is_time, plain_values
from ridgestream.stores.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST_VALUE = 1e100
"""Larger values are treated as damage: float64 sums with their squares would overflow."""

_DIGITS_WITHIN = 15
"""A decimal with so many digits before the point is within ±2⁵³."""

ERROR, DROP, IMPUTE = "error", "drop", "impute"
"""Treatment of missing values: refused; marked; or marked in features and refused in targets and weights."""


@dataclass
class ColumnReader:
    """Reads the columns of one partition, batch by batch."""

    schema: Schema
    """The store's schema."""
    file: str
    """The file, for messages."""
    missing: str = ERROR
    """Treatment of missing values."""
    is_dictionary: bool = False
    """Whether the file is a dictionary, in which missing values are always refused."""
    rows: int = 0
    """Number of rows of the batches before the current one."""
    absent: dict[str, int] = field(default_factory=dict)
    """Number of missing values of each column that has any."""
    lagged: frozenset[str] = frozenset()
    """The columns of earlier rows, which the first rows lack, and are left out for."""

    @property
    def drops(self) -> bool:
        """Whether rows that lack a value are left out."""
        return self.missing == DROP or bool(self.lagged)

    def numbers(self, name: str, batch: "pa.RecordBatch") -> npt.NDArray[np.float64]:
        """Return a column's values, NaN for missing ones."""
        import pyarrow as pa
        import pyarrow.types as t

        plain = self._plain(name, batch)
        if is_time(plain.type):
            finer = t.is_timestamp(plain.type) and plain.type.unit == "ns"  # truncated to µs; coarser ones must fit
            plain = plain.cast(pa.timestamp("us"), safe=not finer).cast(pa.int64())
            values = np.asarray(plain.to_numpy(zero_copy_only=False), dtype=np.float64) / 1e6
            return self.counted(name, values)
        if is_text(plain.type):  # a folder's name
            plain = plain.cast(pa.int64())
        self.check_exact(name, plain)
        return self.counted(name, self._floats(name, plain))

    def booleans(self, name: str, batch: "pa.RecordBatch") -> npt.NDArray[np.float64]:
        """Return a column of zeros and ones, NaN for missing values."""
        values = self.numbers(name, batch)
        invalid = (values != 0) & (values != 1) & ~np.isnan(values)
        if invalid.any():
            row = int(np.argmax(invalid))
            self.refuse(name, row, float(values[row]), "the store has it as boolean: true, false, 1 or 0")
        return values

    def codes(self, name: str, batch: "pa.RecordBatch", table: dict[str, int]) -> npt.NDArray[np.int32]:
        """Return a column's categories as codes of `table`, which is extended, −1 for missing values."""
        import pyarrow as pa

        folder, names = folder_text(batch.schema.field(name)), self.names(name, batch)
        plain = names if folder is None else pa.repeat(folder, len(names))  # 007 stays 007, though it may be a number
        encoded = category_names(plain, by_value=name not in self.schema.as_written)
        dictionary_codes = [table.setdefault(value, len(table)) for value in encoded.dictionary.to_pylist()]
        indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        codes = np.asarray(np.array([*dictionary_codes, -1], dtype=np.int32)[indices])
        self._count_missing(name, codes < 0)
        return codes

    def names(self, name: str, batch: "pa.RecordBatch") -> "pa.Array":
        """Return a column whose values are names, null for missing values; NaN in a float column is missing, too."""
        import pyarrow as pa
        import pyarrow.types as t

        plain = self._plain(name, batch)
        if not t.is_floating(plain.type):
            return plain
        absent = np.isnan(self._floats(name, plain))
        return plain.take(pa.array(np.arange(len(plain)), mask=absent)) if absent.any() else plain

    def weights(self, name: str, batch: "pa.RecordBatch") -> npt.NDArray[np.float64]:
        """Return the weights, which are zero or positive, NaN for missing ones."""
        weights = self.numbers(name, batch)
        if (weights < 0).any():
            least = int(np.nanargmin(weights))
            self.refuse(name, least, float(weights[least]), "weights must be zero or positive")
        return weights

    def counted(self, name: str, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Count the missing values, and return the values with the same NaN for all of them."""
        absent = np.isnan(values)
        self._count_missing(name, absent)
        return np.where(absent, np.nan, values) if absent.any() else values

    def check_exact(self, name: str, plain: "pa.Array") -> None:
        """Raise PartitionError for the first integer or decimal beyond ±2⁵³, where float64 skips integers.

        Fractions below are rounded, as in every float column: 0.1 has no exact float64.
        """
        import pyarrow.types as t

        if t.is_int64(plain.type) or t.is_uint64(plain.type):
            values = plain.fill_null(0).to_numpy(zero_copy_only=False)
            rows = iter(np.flatnonzero((values > LARGEST_INTEGER) | (values < -LARGEST_INTEGER)).tolist())
        elif t.is_decimal(plain.type) and plain.type.precision - plain.type.scale > _DIGITS_WITHIN:
            rows = self._beyond(plain)
        else:
            return
        for row in rows:
            is_feature = name not in self.schema.learned_columns
            other = "list the column under categorical or ignore" if is_feature else "divide by a unit"
            remedy = f"a number cannot represent integers beyond 2⁵³: subtract an offset, or {other}"
            self.refuse(name, row, plain[row].as_py(), remedy)

    def refuse(self, name: str, row: int, value: Label | Decimal | None, remedy: str) -> NoReturn:
        """Raise PartitionError for the value of a column in a row of the current batch."""
        shown = "null" if value is None else str(value) if isinstance(value, Decimal) else repr(value)
        raise PartitionError(f"{self.file}: column {name!r} has the value {shown} in row {self.rows + row}; {remedy}")

    @contextmanager
    def arrow_errors(self, name: str) -> Iterator[None]:
        """Raise PartitionError with file and column for values that Arrow cannot convert."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, UnicodeDecodeError, OverflowError) as error:
            raise PartitionError(
                f"{self.file}: column {name!r} has a value that cannot be used, at or after row {self.rows}: "
                f"{error}; correct or remove it"
            ) from error

    def _plain(self, name: str, batch: "pa.RecordBatch") -> "pa.Array":
        plain = plain_values(batch.schema.field(name), batch.column(name))
        if plain.null_count and not self._marks_missing(name):
            row = int(np.argmax(plain.is_null().to_numpy(zero_copy_only=False)))
            self.refuse(name, row, None, f"every value must be present{self._remedy(name)}")
        return plain

    def _floats(self, name: str, plain: "pa.Array") -> npt.NDArray[np.float64]:
        """Return numbers, NaN for missing ones; raises PartitionError for one that cannot be used."""
        import pyarrow as pa

        values = np.asarray(plain.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
        least, largest = values.min(initial=0.0), values.max(initial=0.0)  # NaN if any value is
        if least >= -LARGEST_VALUE and largest <= LARGEST_VALUE:
            return values
        usable = np.abs(values) <= LARGEST_VALUE
        if self._marks_missing(name):
            usable |= np.isnan(values)
        if not usable.all():
            row = int(np.argmin(usable))
            remedy = f"values must be finite and at most {LARGEST_VALUE:g} in size"
            self.refuse(name, row, float(values[row]), remedy + (self._remedy(name) if np.isnan(values[row]) else ""))
        return values

    @staticmethod
    def _beyond(decimals: "pa.Array") -> Iterator[int]:
        """Yield the rows whose decimal is beyond ±2⁵³; only those that are near it in float64 are compared exactly."""
        import pyarrow as pa

        values = np.abs(decimals.cast(pa.float64()).to_numpy(zero_copy_only=False))
        for row in np.flatnonzero(values >= LARGEST_INTEGER * (1 - 1e-12)).tolist():
            if decimals[row].as_py().copy_abs() > LARGEST_INTEGER:  # abs() rounds to 28 digits
                yield row

    def _count_missing(self, name: str, absent: npt.NDArray[np.bool_]) -> None:
        if absent.any():
            self.absent[name] = self.absent.get(name, 0) + int(absent.sum())

    def _marks_missing(self, name: str) -> bool:
        """Return whether missing values of a column are marked instead of refused."""
        if self.missing == DROP or name in self.lagged:
            return True
        return self.missing == IMPUTE and name not in self.schema.learned_columns

    def _remedy(self, name: str) -> str:
        """Return what to do about a missing value, beginning with a semicolon."""
        if self.is_dictionary:
            return "; a dictionary must have no missing values: fill or remove the row"
        if name in self.schema.learned_columns:
            kind = "state after a step" if name in (*self.schema.ahead, self.schema.done) else "target or weight"
            return f'; a {kind} is never imputed: fill or remove the row, or set source.missing = "drop"'
        return '; fill or remove the row, or set source.missing = "drop" or "impute"'
