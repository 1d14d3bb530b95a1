"""Decoding target columns: numbers, ±1 for one class against the rest, or codes of several classes."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.column_reader import ColumnReader
from ridgestream.stores.schema.class_labels import ALL, MAX_CLASSES, NUMBER, Label, arrow_class_type, check_class_type
from ridgestream.stores.schema.column_types import NUMERIC, check_type, is_number, is_text, shown_type, value_type

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class TargetDecoder:
    """Decodes the targets of one partition; its class table grows in the order in which classes appear."""

    reader: ColumnReader
    """Reads the columns."""
    classes: dict[Label, int] = field(default_factory=dict)
    """For a multi-class target, the code of each class."""

    def check_type(self, column: "pa.Field") -> None:
        """Raise PartitionError if a column's type is not suitable for the schema's target."""
        import pyarrow.types as t

        schema, file = self.reader.schema, self.reader.file
        positive = schema.positive
        if schema.class_kind is not None:
            check_class_type(schema.class_kind, column, file)
            return
        if positive is None:
            check_type(NUMERIC, column, file)
            return
        value = value_type(column)
        kinds = (is_text(value), t.is_boolean(value), is_number(value) and not t.is_boolean(value))
        expected = (isinstance(positive, str), isinstance(positive, bool), not isinstance(positive, str | bool))
        if kinds != expected and not t.is_null(value):
            raise PartitionError(
                f"{file}: column {column.name!r} has type {shown_type(column)}, which positive = {positive!r} "
                "cannot equal; give the class as the column has it, text in quotes"
            )

    def decode(self, name: str, batch: "pa.RecordBatch") -> npt.NDArray[np.float64]:
        """Return a target as stored: the number, ±1 for one class against the rest, or the class's code."""
        schema, reader = self.reader.schema, self.reader
        with reader.arrow_errors(name):
            if schema.class_kind is not None:
                return reader.counted(name, self._class_codes(name, batch, schema.class_kind))
            if schema.positive is None:
                return reader.numbers(name, batch)
            return reader.counted(name, self._signs(name, batch))

    def _class_codes(self, name: str, batch: "pa.RecordBatch", kind: str) -> npt.NDArray[np.float64]:
        import pyarrow as pa
        import pyarrow.types as t

        plain = self.reader.names(name, batch)
        if kind == NUMBER:
            self.reader.check_exact(name, plain)
        if t.is_floating(plain.type):
            plain = plain.cast(pa.float64())
        elif t.is_decimal(plain.type) and plain.type.bit_width < pa.decimal128(1).bit_width:
            plain = plain.cast(pa.decimal128(plain.type.precision, plain.type.scale))  # narrow ones overflow as int64
        encoded = plain.cast(arrow_class_type(kind)).dictionary_encode()
        labels = [label + 0.0 if kind == NUMBER else label for label in encoded.dictionary.to_pylist()]  # −0.0 is 0.0
        indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self._check_classes(name, labels, indices)
        codes = [self.classes.setdefault(label, len(self.classes)) for label in labels]
        return np.asarray(np.array([*codes, np.nan])[indices])

    def _check_classes(self, name: str, labels: list[Label], indices: npt.NDArray[np.integer]) -> None:
        """Refuse a class that the job does not list, and more than MAX_CLASSES classes."""
        listed = self.reader.schema.classes
        if listed is not None and listed != ALL:
            foreign = [index for index, label in enumerate(labels) if label not in listed]
            if foreign:
                row = int(np.argmax(np.isin(indices, foreign)))
                self.reader.refuse(name, row, labels[indices[row]], "source.classes does not list it; correct the row")
        elif len(self.classes.keys() | set(labels)) > MAX_CLASSES:
            raise PartitionError(
                f"{self.reader.file}: column {name!r} has more than {MAX_CLASSES} different values up to row "
                f"{self.reader.rows + len(indices)}; to regress on a quantity, leave out source.classes"
            )

    def _signs(self, name: str, batch: "pa.RecordBatch") -> npt.NDArray[np.float64]:
        """Return 1 for the positive class, −1 for any other, NaN for missing values."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.types as t

        plain, positive = self.reader.names(name, batch), self.reader.schema.positive
        if is_text(plain.type):
            plain = plain.cast(pa.string())
        elif t.is_floating(plain.type):
            plain = plain.cast(pa.float64())
        elif t.is_integer(plain.type) and isinstance(positive, float) and positive.is_integer():
            positive = int(positive)
        is_decimal = t.is_decimal(plain.type) and positive is not None
        equal = _equal_decimals(plain, Decimal(str(positive))) if is_decimal else pc.equal(plain, pa.scalar(positive))
        signs = np.where(equal.fill_null(False).to_numpy(zero_copy_only=False), 1.0, -1.0)
        return np.where(equal.is_null().to_numpy(zero_copy_only=False), np.nan, signs)


def _equal_decimals(column: "pa.Array", value: Decimal) -> "pa.Array":
    """Return which decimals have exactly this value; Arrow's floats of them differ from Python's in the last bit."""
    import pyarrow as pa

    encoded = column.cast(pa.string()).dictionary_encode()
    equal = pa.array([Decimal(text) == value for text in encoded.dictionary.to_pylist()], pa.bool_())
    return equal.take(encoded.indices)
