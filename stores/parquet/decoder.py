"""Arrow batches to rows: types checked against the schema, values checked, categories to codes.

What cannot be used is refused with the file, the column, the row and the value. A missing value, null or NaN, is
refused, too, or marked; nothing is dropped or guessed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.schema.class_labels import ALL, MAX_CLASSES, NUMBER, Label, arrow_class_type, check_class_type
from ridgestream.stores.schema.column_types import (
    BOOLEAN,
    NUMERIC,
    check_column,
    check_type,
    is_number,
    is_text,
    is_time,
    plain_values,
    shown_type,
    value_type,
)
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST_VALUE = 1e100
"""A larger value is taken for damage: its square would leave float64 with the sums that it enters."""

LARGEST_INTEGER = 2**53
"""Up to here float64 holds every integer."""

ERROR, DROP, IMPUTE = "error", "drop", "impute"
"""What is to become of missing values: they are refused; marked; or marked in features and refused elsewhere."""


@dataclass
class Decoder:
    """Decodes one partition, batch after batch; its category tables grow in the order in which values appear."""

    schema: Schema
    """The store's schema."""
    place: str
    """The file, for messages."""
    with_target: bool = True
    """Whether target and weight are read."""
    missing: str = ERROR
    """What is to become of missing values."""
    whole: bool = False
    """Whether they are refused whatever the job says of its source: a dictionary's are."""
    rows: int = 0
    """Rows decoded so far."""
    categories: list[dict[str, int]] = field(default_factory=list)
    """For each categorical feature, each value's code."""
    classes: dict[Label, int] = field(default_factory=dict)
    """Where each class is learned against the rest, each one's code."""
    absent: dict[str, int] = field(default_factory=dict)
    """How many values of each column were missing, of those that lack any."""

    def __post_init__(self) -> None:
        self.categories = [{} for _ in self.schema.categorical]

    def check(self, arrow: "pa.Schema") -> None:
        """Raise PartitionError if a column is missing or has a type that cannot stand for the schema's."""
        fresh = self.schema.unused_columns(arrow.names)
        for name in self.schema.columns(with_target=self.with_target):
            check_column(name, arrow, self.place, fresh)
        for feature in self.schema.features:
            check_type(feature.kind, arrow.field(feature.name), self.place)
        if self.with_target:
            for name in self.schema.targets:
                self._check_target_type(arrow.field(name))
            if self.schema.weight:
                check_type(NUMERIC, arrow.field(self.schema.weight), self.place)

    def decode(self, batch: "pa.RecordBatch") -> Rows:
        """Return the batch's rows; raise PartitionError for the first value that cannot be used."""
        numeric = np.empty((batch.num_rows, len(self.schema.numeric)))
        for position, feature in enumerate(self.schema.numeric):
            with self._naming(feature.name):
                numeric[:, position] = self._numbers(feature.name, batch)
            if feature.kind == BOOLEAN:
                self._check_boolean(feature.name, numeric[:, position])
        codes = np.empty((batch.num_rows, len(self.schema.categorical)), dtype=np.int32)
        for position, feature in enumerate(self.schema.categorical):
            with self._naming(feature.name):
                codes[:, position] = self._codes(feature.name, batch, self.categories[position])
        targets = weights = None
        if self.with_target:
            targets = np.column_stack([self._target(name, batch) for name in self.schema.targets])
            weights = self._weights(batch, self.schema.weight) if self.schema.weight else None
        self.rows += batch.num_rows
        return Rows(numeric, codes, targets, weights)

    def _check_target_type(self, column: "pa.Field") -> None:
        import pyarrow.types as t

        positive = self.schema.positive
        if self.schema.class_kind is not None:
            check_class_type(self.schema.class_kind, column, self.place)
            return
        if positive is None:
            check_type(NUMERIC, column, self.place)
            return
        value = value_type(column)
        kinds = (is_text(value), t.is_boolean(value), is_number(value) and not t.is_boolean(value))
        wanted = (isinstance(positive, str), isinstance(positive, bool), not isinstance(positive, str | bool))
        if kinds != wanted and not t.is_null(value):
            raise PartitionError(
                f"{self.place}: column {column.name!r} has type {shown_type(column)}, which positive = {positive!r} "
                "cannot equal; give the class as the column has it, text in quotes"
            )

    def _numbers(self, name: str, batch: "pa.RecordBatch") -> npt.NDArray[np.float64]:
        """Return a column's values, NaN where they are missing."""
        import pyarrow as pa
        import pyarrow.types as t

        plain = self._plain(name, batch)
        if is_time(plain.type):
            finer = t.is_timestamp(plain.type) and plain.type.unit == "ns"  # cut to microseconds; coarser ones must fit
            plain = plain.cast(pa.timestamp("us"), safe=not finer).cast(pa.int64())
            values = np.asarray(plain.to_numpy(zero_copy_only=False), dtype=np.float64) / 1e6
            return self._counted(name, values)
        if t.is_int64(plain.type) or t.is_uint64(plain.type):
            self._check_integers(name, plain.fill_null(0).to_numpy(zero_copy_only=False))
        return self._counted(name, self._checked(name, plain))

    def _checked(self, name: str, plain: "pa.Array") -> npt.NDArray[np.float64]:
        """Return numbers, NaN for what is missing; raise PartitionError for one that cannot be used."""
        import pyarrow as pa

        values = np.asarray(plain.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
        least, largest = values.min(initial=0.0), values.max(initial=0.0)  # NaN if one value is
        if least >= -LARGEST_VALUE and largest <= LARGEST_VALUE:
            return values
        usable = np.abs(values) <= LARGEST_VALUE
        if self._marks(name):
            usable |= np.isnan(values)
        if not usable.all():
            row = int(np.argmin(usable))
            remedy = f"values must be finite and at most {LARGEST_VALUE:g} in size"
            self._refuse(name, row, float(values[row]), remedy + (self._way_out(name) if np.isnan(values[row]) else ""))
        return values

    def _counted(self, name: str, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the values with one NaN for all that are missing, which are counted."""
        absent = np.isnan(values)
        self._count(name, absent)
        return np.where(absent, np.nan, values) if absent.any() else values

    def _count(self, name: str, absent: npt.NDArray[np.bool_]) -> None:
        if absent.any():
            self.absent[name] = self.absent.get(name, 0) + int(absent.sum())

    def _codes(self, name: str, batch: "pa.RecordBatch", table: dict[str, int]) -> npt.NDArray[np.int32]:
        """Return a column's categories as codes of `table`, which grows, −1 where they are missing."""
        import pyarrow as pa

        plain = self._named(name, batch)
        encoded = plain.cast(pa.string()).dictionary_encode()
        known = [table.setdefault(value, len(table)) for value in encoded.dictionary.to_pylist()]
        positions = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        codes = np.asarray(np.array([*known, -1], dtype=np.int32)[positions])
        self._count(name, codes < 0)
        return codes

    def _named(self, name: str, batch: "pa.RecordBatch") -> "pa.Array":
        """Return a column whose values are names, null where they are missing: what of floats is NaN is that, too."""
        import pyarrow as pa
        import pyarrow.types as t

        plain = self._plain(name, batch)
        if not t.is_floating(plain.type):
            return plain
        absent = np.isnan(self._checked(name, plain))
        return plain.take(pa.array(np.arange(len(plain)), mask=absent)) if absent.any() else plain

    def _target(self, name: str, batch: "pa.RecordBatch") -> npt.NDArray[np.float64]:
        """Return a target as it is kept: the number, ±1 for a class against the rest, or the class's code."""
        with self._naming(name):
            if self.schema.class_kind is not None:
                return self._counted(name, self._class_codes(name, batch, self.schema.class_kind))
            if self.schema.positive is None:
                return self._numbers(name, batch)
            return self._counted(name, self._signs(name, batch))

    def _class_codes(self, name: str, batch: "pa.RecordBatch", kind: str) -> npt.NDArray[np.float64]:
        import pyarrow as pa
        import pyarrow.types as t

        plain = self._named(name, batch)
        if t.is_floating(plain.type):
            plain = plain.cast(pa.float64())
        elif t.is_decimal(plain.type) and plain.type.bit_width < pa.decimal128(1).bit_width:
            plain = plain.cast(pa.decimal128(plain.type.precision, plain.type.scale))  # to int64, narrow ones overflow
        encoded = plain.cast(arrow_class_type(kind)).dictionary_encode()
        labels = [label + 0.0 if kind == NUMBER else label for label in encoded.dictionary.to_pylist()]  # −0.0 is 0.0
        positions = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self._check_classes(name, labels, positions)
        codes = [self.classes.setdefault(label, len(self.classes)) for label in labels]
        return np.asarray(np.array([*codes, np.nan])[positions])

    def _check_classes(self, name: str, labels: list[Label], positions: npt.NDArray[np.integer]) -> None:
        """Refuse a class that the job does not list, and more of them than classes can be."""
        listed = self.schema.classes
        if listed is not None and listed != ALL:
            foreign = [position for position, label in enumerate(labels) if label not in listed]
            if foreign:
                row = int(np.argmax(np.isin(positions, foreign)))
                self._refuse(name, row, labels[positions[row]], "source.classes does not list it; correct the row")
        elif len(self.classes.keys() | set(labels)) > MAX_CLASSES:
            raise PartitionError(
                f"{self.place}: column {name!r} has more than {MAX_CLASSES} different values up to row "
                f"{self.rows + len(positions)}; to regress on a quantity, leave out source.classes"
            )

    def _signs(self, name: str, batch: "pa.RecordBatch") -> npt.NDArray[np.float64]:
        """Return 1 for the positive class, −1 for any other, NaN where it is missing."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.types as t

        plain, positive = self._named(name, batch), self.schema.positive
        if is_text(plain.type):
            plain = plain.cast(pa.string())
        elif t.is_floating(plain.type):
            plain = plain.cast(pa.float64())
        elif t.is_integer(plain.type) and isinstance(positive, float) and positive.is_integer():
            positive = int(positive)
        equal = pc.equal(plain, pa.scalar(positive))
        signs = np.where(equal.fill_null(False).to_numpy(zero_copy_only=False), 1.0, -1.0)
        return np.where(equal.is_null().to_numpy(zero_copy_only=False), np.nan, signs)

    def _weights(self, batch: "pa.RecordBatch", name: str) -> npt.NDArray[np.float64]:
        with self._naming(name):
            weights = self._numbers(name, batch)
        if (weights < 0).any():
            least = int(np.nanargmin(weights))
            self._refuse(name, least, float(weights[least]), "weights must be zero or positive")
        return weights

    def _plain(self, name: str, batch: "pa.RecordBatch") -> "pa.Array":
        plain = plain_values(batch.schema.field(name), batch.column(name))
        if plain.null_count and not self._marks(name):
            row = int(np.argmax(plain.is_null().to_numpy(zero_copy_only=False)))
            self._refuse(name, row, None, f"every value must be present{self._way_out(name)}")
        return plain

    def _marks(self, name: str) -> bool:
        """Tell whether a column's missing values are marked."""
        return self.missing == DROP or (self.missing == IMPUTE and not self._is_given(name))

    def _is_given(self, name: str) -> bool:
        """Tell whether a column cannot be guessed."""
        return name in (*self.schema.targets, self.schema.weight)

    def _way_out(self, name: str) -> str:
        if self.whole:
            return "; a dictionary must be whole: fill or remove the row"
        if self._is_given(name):
            return '; a target or weight is never imputed: fill or remove the row, or set source.missing = "drop"'
        return '; fill or remove the row, or set source.missing = "drop" or "impute"'

    def _check_integers(self, name: str, values: npt.NDArray[np.integer]) -> None:
        exact = (values <= LARGEST_INTEGER) & (values >= -LARGEST_INTEGER)
        if not exact.all():
            row = int(np.argmin(exact))
            remedy = "a number has no room for integers beyond 2⁵³: take an offset off them, or list the column under"
            self._refuse(name, row, int(values[row]), f"{remedy} categorical or ignore")

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Give what Arrow refuses in a column the names of file and column."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, UnicodeDecodeError, OverflowError) as error:
            raise PartitionError(
                f"{self.place}: column {name!r} has a value that cannot be used, at or after row {self.rows}: "
                f"{error}; correct or remove it"
            ) from error

    def _check_boolean(self, name: str, values: npt.NDArray[np.float64]) -> None:
        other = (values != 0) & (values != 1) & ~np.isnan(values)
        if other.any():
            row = int(np.argmax(other))
            self._refuse(name, row, float(values[row]), "the store has it as boolean: true, false, 1 or 0")

    def _refuse(self, name: str, row: int, value: Label | None, remedy: str) -> None:
        shown = "null" if value is None else repr(value)
        raise PartitionError(f"{self.place}: column {name!r} has the value {shown} in row {self.rows + row}; {remedy}")
