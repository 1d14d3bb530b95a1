"""The classes of a target: labels of one kind, in the type of the user's column."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.schema.column_types import is_text, shown_type, value_type

if TYPE_CHECKING:
    import pyarrow as pa

Label = bool | int | float | str

ALL = "all"
"""Stands for all classes that occur in the rows."""

MAX_CLASSES = 1000
"""A column with more distinct values is refused: it is probably a quantity declared as classes by mistake."""

TEXT, BOOLEAN, INTEGER, NUMBER = "text", "boolean", "integer", "number"


def infer_class_kind(field: "pa.Field", file: str) -> str:
    """Return text, boolean, integer or number; raises PartitionError naming `file` for any other type."""
    import pyarrow.types as t

    value = value_type(field)
    tests = {
        TEXT: is_text(value),
        BOOLEAN: t.is_boolean(value),
        INTEGER: t.is_integer(value),
        NUMBER: t.is_floating(value) or t.is_decimal(value),
    }
    for kind, matches in tests.items():
        if matches:
            return kind
    raise PartitionError(
        f"{file}: the target {field.name!r} has type {shown_type(field)}; classes are text, numbers or booleans"
    )


def check_class_type(kind: str, field: "pa.Field", file: str) -> None:
    """Raise PartitionError if a column of this type cannot hold classes of this kind; all numeric types are allowed."""
    import pyarrow.types as t

    value = value_type(field)
    number = t.is_integer(value) or t.is_floating(value) or t.is_decimal(value)
    fits = {TEXT: is_text(value), BOOLEAN: t.is_boolean(value)}.get(kind, number)
    if not fits and not t.is_null(value):  # a column without any value; decoding refuses its rows
        raise PartitionError(
            f"{file}: column {field.name!r} has type {shown_type(field)}, the store has its classes as {kind}; "
            "write the file again with the type of the earlier ones"
        )


def order_classes(kind: str, classes: Sequence[Label], name: str, file: str) -> tuple[Label, ...]:
    """Return a job's list of classes as sorted labels of the kind; raises PartitionError for a label of another kind.

    Thus the same classes in another order, or 2.0 for the integer 2, are the same request.
    """
    other = next((label for label in classes if not _is_of_kind(kind, label)), None)
    if other is not None:
        raise PartitionError(
            f"{file}: the target {name!r} holds classes of the kind {kind}, which {other!r} of source.classes cannot "
            "equal; give the classes as the column has them, text in quotes"
        )
    convert = {INTEGER: int, NUMBER: float}.get(kind)
    return tuple(sorted(convert(label) if convert else label for label in classes))


def arrow_class_type(kind: str) -> "pa.DataType":
    """Return the Arrow type of a column of such classes: string, bool, int64 or double."""
    import pyarrow as pa

    return {TEXT: pa.string(), BOOLEAN: pa.bool_(), INTEGER: pa.int64(), NUMBER: pa.float64()}[kind]


def class_name(label: Label) -> str:
    """Return the label as it appears in column names."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def _is_of_kind(kind: str, label: Label) -> bool:
    if kind in (TEXT, BOOLEAN):
        return isinstance(label, str if kind == TEXT else bool)
    whole = isinstance(label, int) or (isinstance(label, float) and label.is_integer())
    return not isinstance(label, bool) and (whole if kind == INTEGER else isinstance(label, int | float))
