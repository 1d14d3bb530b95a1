"""Arrow batches to rows: types checked against the schema, values checked, categories to codes.

What cannot be used is refused with the file, the column, the row and the value; nothing is dropped or guessed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.stores.classes import ALL, MOST_CLASSES, NUMBER, Label, arrow_class_type, check_class_type
from ridgestream.stores.errors import PartitionError
from ridgestream.stores.rows import Rows
from ridgestream.stores.schema import (
    BOOLEAN,
    CATEGORICAL,
    NUMERIC,
    TIMESTAMP,
    Schema,
    check_column,
    is_number,
    is_text,
    is_time,
)

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST_VALUE = 1e100
"""A larger value is taken for damage: its square would leave float64 with the sums that it enters."""

LARGEST_INTEGER = 2**53
"""Up to here float64 holds every integer."""


@dataclass
class Decoder:
    """Decodes one partition, batch after batch; its category tables grow in the order in which values appear."""

    schema: Schema
    """The store's schema."""
    place: str
    """The file, for messages."""
    with_target: bool = True
    """Whether target and weight are read."""
    rows: int = 0
    """Rows decoded so far."""
    categories: list[dict[str, int]] = field(default_factory=list)
    """For each categorical feature, each value's code."""
    classes: dict[Label, int] = field(default_factory=dict)
    """Where each class is learned against the rest, each one's code."""

    def __post_init__(self) -> None:
        self.categories = [{} for _ in self.schema.categorical]

    def check(self, arrow: "pa.Schema") -> None:
        """Raise PartitionError if a column is missing or has a type that cannot stand for the schema's."""
        for name in self.schema.columns(with_target=self.with_target):
            check_column(name, arrow, self.place)
        for feature in self.schema.features:
            self._check_type(feature.name, feature.kind, arrow.field(feature.name).type)
        if self.with_target:
            for name in self.schema.targets:
                self._check_target_type(name, arrow.field(name).type)
            if self.schema.weight:
                self._check_type(self.schema.weight, NUMERIC, arrow.field(self.schema.weight).type)

    def decode(self, batch: "pa.RecordBatch") -> Rows:
        """Return the batch's rows; raise PartitionError for the first value that cannot be used."""
        numeric = np.empty((batch.num_rows, len(self.schema.numeric)))
        for position, feature in enumerate(self.schema.numeric):
            with self._naming(feature.name):
                numeric[:, position] = self._numbers(feature.name, batch.column(feature.name))
            if feature.kind == BOOLEAN:
                self._check_boolean(feature.name, numeric[:, position])
        codes = np.empty((batch.num_rows, len(self.schema.categorical)), dtype=np.int32)
        for position, feature in enumerate(self.schema.categorical):
            with self._naming(feature.name):
                codes[:, position] = self._codes(feature.name, batch.column(feature.name), self.categories[position])
        targets = weights = None
        if self.with_target:
            targets = np.column_stack([self._target(name, batch.column(name)) for name in self.schema.targets])
            weights = self._weights(batch, self.schema.weight) if self.schema.weight else None
        self.rows += batch.num_rows
        return Rows(numeric, codes, targets, weights)

    def _check_type(self, name: str, kind: str, found: "pa.DataType") -> None:
        import pyarrow.types as t

        value = found.value_type if t.is_dictionary(found) else found
        fits = {CATEGORICAL: is_text(value) or is_number(value), TIMESTAMP: is_time(value)}.get(kind, is_number(value))
        if not fits and not t.is_null(value):  # pandas gives null to a column without a value; a row of it is refused
            raise PartitionError(
                f"{self.place}: column {name!r} has type {found}, the store has it as {kind}; "
                "write the file again with the type of the earlier ones"
            )

    def _check_target_type(self, name: str, found: "pa.DataType") -> None:
        import pyarrow.types as t

        positive = self.schema.positive
        if self.schema.class_kind is not None:
            check_class_type(self.schema.class_kind, name, found, self.place)
            return
        if positive is None:
            self._check_type(name, NUMERIC, found)
            return
        value = found.value_type if t.is_dictionary(found) else found
        kinds = (is_text(value), t.is_boolean(value), is_number(value) and not t.is_boolean(value))
        wanted = (isinstance(positive, str), isinstance(positive, bool), not isinstance(positive, str | bool))
        if kinds != wanted and not t.is_null(value):
            raise PartitionError(
                f"{self.place}: column {name!r} has type {found}, which positive = {positive!r} cannot equal; "
                "give the class as the column has it, text in quotes"
            )

    def _numbers(self, name: str, column: "pa.Array") -> npt.NDArray[np.float64]:
        import pyarrow as pa
        import pyarrow.types as t

        plain = self._plain(name, column)
        if is_time(plain.type):
            finer = t.is_timestamp(plain.type) and plain.type.unit == "ns"  # cut to microseconds; coarser ones must fit
            plain = plain.cast(pa.timestamp("us"), safe=not finer).cast(pa.int64())
            return np.asarray(plain.to_numpy(zero_copy_only=False) / 1e6, dtype=np.float64)
        if t.is_int64(plain.type) or t.is_uint64(plain.type):
            self._check_integers(name, plain.to_numpy(zero_copy_only=False))
        values = plain.cast(pa.float64()).to_numpy(zero_copy_only=False)
        self._check_values(name, values)
        return np.asarray(values, dtype=np.float64)

    def _codes(self, name: str, column: "pa.Array", table: dict[str, int]) -> npt.NDArray[np.int32]:
        import pyarrow as pa
        import pyarrow.types as t

        plain = self._plain(name, column)
        if t.is_floating(plain.type):
            self._check_values(name, plain.cast(pa.float64()).to_numpy(zero_copy_only=False))
        encoded = plain.cast(pa.string()).dictionary_encode()
        codes = [table.setdefault(value, len(table)) for value in encoded.dictionary.to_pylist()]
        positions = encoded.indices.to_numpy(zero_copy_only=False)
        return np.asarray(codes, dtype=np.int32)[positions] if codes else np.empty(0, dtype=np.int32)

    def _target(self, name: str, column: "pa.Array") -> npt.NDArray[np.float64]:
        """Return a target as it is kept: the number, ±1 for a class against the rest, or the class's code."""
        with self._naming(name):
            if self.schema.class_kind is not None:
                return self._class_codes(name, column, self.schema.class_kind)
            if self.schema.positive is None:
                return self._numbers(name, column)
            return np.where(self._is_positive(name, self._plain(name, column)), 1.0, -1.0)

    def _class_codes(self, name: str, column: "pa.Array", kind: str) -> npt.NDArray[np.float64]:
        import pyarrow as pa
        import pyarrow.types as t

        plain = self._plain(name, column)
        if t.is_floating(plain.type):
            plain = plain.cast(pa.float64())
            self._check_values(name, plain.to_numpy(zero_copy_only=False))
        encoded = plain.cast(arrow_class_type(kind)).dictionary_encode()
        labels = [label + 0.0 if kind == NUMBER else label for label in encoded.dictionary.to_pylist()]  # −0.0 is 0.0
        positions = encoded.indices.to_numpy(zero_copy_only=False)
        self._check_classes(name, labels, positions)
        codes = [self.classes.setdefault(label, len(self.classes)) for label in labels]
        return np.asarray(codes, dtype=np.float64)[positions] if codes else np.empty(0)

    def _check_classes(self, name: str, labels: list[Label], positions: npt.NDArray[np.integer]) -> None:
        """Refuse a class that the job does not list, and more of them than classes can be."""
        listed = self.schema.classes
        if listed is not None and listed != ALL:
            foreign = [position for position, label in enumerate(labels) if label not in listed]
            if foreign:
                row = int(np.argmax(np.isin(positions, foreign)))
                self._refuse(name, row, labels[positions[row]], "source.classes does not list it; correct the row")
        elif len(self.classes.keys() | set(labels)) > MOST_CLASSES:
            raise PartitionError(
                f"{self.place}: column {name!r} has more than {MOST_CLASSES} different values up to row "
                f"{self.rows + len(positions)}; to regress on a quantity, leave out source.classes"
            )

    def _is_positive(self, name: str, plain: "pa.Array") -> npt.NDArray[np.bool_]:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.types as t

        positive = self.schema.positive
        if is_text(plain.type):
            plain = plain.cast(pa.string())
        elif t.is_floating(plain.type):
            plain = plain.cast(pa.float64())
            self._check_values(name, plain.to_numpy(zero_copy_only=False))
        elif t.is_integer(plain.type) and isinstance(positive, float) and positive.is_integer():
            positive = int(positive)
        equal = pc.equal(plain, pa.scalar(positive))
        return np.asarray(equal.to_numpy(zero_copy_only=False), dtype=np.bool_)

    def _weights(self, batch: "pa.RecordBatch", name: str) -> npt.NDArray[np.float64]:
        with self._naming(name):
            weights = self._numbers(name, batch.column(name))
        if len(weights) and weights.min() < 0:
            self._refuse(name, int(np.argmin(weights)), float(weights.min()), "weights must be zero or positive")
        return weights

    def _plain(self, name: str, column: "pa.Array") -> "pa.Array":
        import pyarrow.types as t

        plain = column.dictionary_decode() if t.is_dictionary(column.type) else column
        if plain.null_count:
            row = int(np.argmax(plain.is_null().to_numpy(zero_copy_only=False)))
            self._refuse(name, row, None, "every value must be present; fill or remove the row")
        return plain

    def _check_values(self, name: str, values: npt.NDArray[np.float64]) -> None:
        usable = np.abs(values) <= LARGEST_VALUE
        if not usable.all():
            row = int(np.argmin(usable))
            self._refuse(name, row, float(values[row]), f"values must be finite and at most {LARGEST_VALUE:g} in size")

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
        other = (values != 0) & (values != 1)
        if other.any():
            row = int(np.argmax(other))
            self._refuse(name, row, float(values[row]), "the store has it as boolean: true, false, 1 or 0")

    def _refuse(self, name: str, row: int, value: Label | None, remedy: str) -> None:
        shown = "null" if value is None else repr(value)
        raise PartitionError(f"{self.place}: column {name!r} has the value {shown} in row {self.rows + row}; {remedy}")
