"""Columns: which Arrow types may stand for which kind of column, and what is said of those that may not.

The store keeps the kind of a column, not its type, so a later file may have any type that its kind takes: integers may
become floats or decimals, text may be plain or a dictionary. An extension type is what its name says, whatever it is
stored as, and whether or not the library that has named it is loaded.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from ridgestream.stores.errors.exceptions import PartitionError

if TYPE_CHECKING:
    import pyarrow as pa

NUMERIC, BOOLEAN, TIMESTAMP, CATEGORICAL = "numeric", "boolean", "timestamp", "categorical"

TAKES = {
    NUMERIC: "integers, floats, decimals or booleans",
    BOOLEAN: "booleans, or numbers that are 0 and 1",
    TIMESTAMP: "timestamps or dates",
    CATEGORICAL: "text, or numbers and booleans as names",
}
"""What each kind of column takes."""

_BOOL8 = "arrow.bool8"
_NAME_OF_EXTENSION = b"ARROW:extension:name"
_NAMES_SHOWN = 12


def value_type(field: "pa.Field") -> "pa.DataType":
    """Return the type of a column's values: of a dictionary that of its values, of arrow.bool8 boolean.

    Of any other extension it is binary, which no kind of column takes.
    """
    import pyarrow as pa
    import pyarrow.types as t

    extension = extension_name(field)
    if extension is not None:
        return pa.bool_() if extension == _BOOL8 else pa.binary()
    return field.type.value_type if t.is_dictionary(field.type) else field.type


def extension_name(field: "pa.Field") -> str | None:
    """Return the name of a column's extension type, None if it has none.

    Where the library that defines it is not loaded, Arrow reads what it is stored as, and keeps the name aside.
    """
    import pyarrow as pa

    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    name = (field.metadata or {}).get(_NAME_OF_EXTENSION)
    return name.decode() if name else None


def shown_type(field: "pa.Field") -> str:
    """Return a column's type as messages name it."""
    extension = extension_name(field)
    return str(field.type) if extension is None else f"extension<{extension}>"


def plain_values(field: "pa.Field", column: "pa.Array") -> "pa.Array":
    """Return a column's values in the type that `value_type` gives."""
    import pyarrow as pa
    import pyarrow.types as t

    if extension_name(field) == _BOOL8:
        stored = column.storage if isinstance(column, pa.ExtensionArray) else column
        return stored.cast(pa.bool_())
    return column.dictionary_decode() if t.is_dictionary(column.type) else column


def takes(kind: str, field: "pa.Field") -> bool:
    """Tell whether a kind of column takes such a column; one without a value, null to Arrow, every kind takes."""
    import pyarrow.types as t

    value = value_type(field)
    fits = {CATEGORICAL: is_text(value) or is_number(value), TIMESTAMP: is_time(value)}.get(kind, is_number(value))
    return fits or bool(t.is_null(value))


def check_type(kind: str, field: "pa.Field", place: str) -> None:
    """Raise PartitionError naming file, column, type and kind if that kind of column does not take such a column."""
    if not takes(kind, field):
        raise PartitionError(
            f"{place}: column {field.name!r} has type {shown_type(field)}, the store has it as {kind}, which takes "
            f"{TAKES[kind]}; write the file again with the type of the earlier ones{_advice(field)}"
        )


def infer_kind(field: "pa.Field", categorical: Iterable[str], place: str) -> str:
    """Return the kind of a feature by its type in the first partition; raise PartitionError for one that is none."""
    import pyarrow.types as t

    name, value = field.name, value_type(field)
    if is_text(value) or (name in categorical and is_number(value)):
        return CATEGORICAL
    shown = f"{place}: column {name!r} has type {shown_type(field)}"
    if t.is_null(value):
        raise PartitionError(
            f"{shown}, so it has no value to tell its kind by; list it under ignore, or let the first partition be one "
            "that has values in it"
        )
    if name in categorical:
        raise PartitionError(f"{shown}; only text and numbers can be categorical{_advice(field)}")
    if t.is_boolean(value):
        return BOOLEAN
    if is_time(value):
        return TIMESTAMP
    if is_number(value):
        return NUMERIC
    raise PartitionError(f"{shown}, which is no feature; list it under ignore{_advice(field)}")


def check_column(name: str, arrow: "pa.Schema", place: str, fresh: Iterable[str] | None = None) -> None:
    """Raise PartitionError if the file has no such column, or has it twice.

    `fresh` are the columns that files before this one had not, of which one may be the missing one renamed.
    """
    count = arrow.names.count(name)
    if count == 0:
        raise PartitionError(f"{place} has no column {name!r}; {_suggestion(name, arrow.names, fresh)}")
    if count > 1:
        raise PartitionError(f"{place} has {count} columns {name!r}; names must be unique")


def is_text(kind: "pa.DataType") -> bool:
    """Tell whether an Arrow type is text, in any of its layouts."""
    import pyarrow.types as t

    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind))


def is_number(kind: "pa.DataType") -> bool:
    """Tell whether an Arrow type is a number or a boolean."""
    import pyarrow.types as t

    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind))


def is_time(kind: "pa.DataType") -> bool:
    """Tell whether an Arrow type is a point in time or a day."""
    import pyarrow.types as t

    return bool(t.is_timestamp(kind) or t.is_date(kind))


def _suggestion(name: str, names: list[str], fresh: Iterable[str] | None) -> str:
    """Say which column may be the missing one under another name, or which there are."""
    others = names if fresh is None else list(fresh)
    by_folded = {other.casefold(): other for other in reversed(others)}
    alike = get_close_matches(name.casefold(), by_folded, n=1)
    renamed = f"if {by_folded[alike[0]]!r} is that column under a new name, rename it back; " if alike else ""
    if fresh is not None and others:
        return f"{renamed}new here: {_list(others)}; write the file again with the column"
    return f"{renamed}its columns are {_list(names)}"


def _list(names: list[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")


def _advice(field: "pa.Field") -> str:
    """Say how a column of a type that no kind takes could be written."""
    import pyarrow.types as t

    if extension_name(field) == "pandas.period":
        return "; a period can be written as the timestamp at which it begins"
    if extension_name(field) is not None:
        return "; an extension type can be written as plain numbers or text, where that means something"
    if t.is_time(field.type) or t.is_duration(field.type):
        return "; a time of day or a duration can be written as a number of seconds"
    if t.is_nested(field.type):
        return "; what is nested can be written as one column a part"
    return ""
