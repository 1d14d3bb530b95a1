"""Column types: which Arrow types each kind of column accepts, and the error messages for all others.

The store records the kind of a column, not its type, so a later file may use any type that the kind accepts: integers
may become floats or decimals, text may be plain or dictionary-encoded. An extension type is identified by its name,
whatever its storage type, and whether or not the library that defines it is loaded.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from ridgestream.stores.errors.close_names import closest_name
from ridgestream.stores.errors.exceptions import PartitionError

if TYPE_CHECKING:
    import pyarrow as pa

NUMERIC, BOOLEAN, TIMESTAMP, CATEGORICAL = "numeric", "boolean", "timestamp", "categorical"

ACCEPTED_TYPES = {
    NUMERIC: "integers, floats, decimals or booleans",
    BOOLEAN: "booleans, or numbers that are 0 and 1",
    TIMESTAMP: "timestamps or dates",
    CATEGORICAL: "text, or numbers and booleans as names",
}
"""The types that each kind of column accepts, in words."""

FOLDER_TEXT = b"ridgestream.folder_text"
"""Metadata of a column that is a key of the partition's folders: its value as the folder has it."""

LAG_OF = b"ridgestream.lag_of"
"""Metadata of a column of earlier values: the column that they are of."""

_BOOL8 = "arrow.bool8"
_NAME_OF_EXTENSION = b"ARROW:extension:name"
_NAMES_SHOWN = 12
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")
_INTEGER = re.compile(r"-?[0-9]{1,40}")

LARGEST_INTEGER = 2**53
"""Up to here float64 represents every integer exactly."""


def value_type(field: "pa.Field") -> "pa.DataType":
    """Return the type of a column's values: for a dictionary its value type, for arrow.bool8 boolean.

    For any other extension type it is binary, which no kind of column accepts.
    """
    import pyarrow as pa
    import pyarrow.types as t

    extension = extension_name(field)
    if extension is not None:
        return pa.bool_() if extension == _BOOL8 else pa.binary()
    return field.type.value_type if t.is_dictionary(field.type) else field.type


def extension_name(field: "pa.Field") -> str | None:
    """Return the name of a column's extension type, None if it has none.

    If the library that defines it is not loaded, Arrow reads the storage type and keeps the name in the metadata.
    """
    import pyarrow as pa

    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    name = (field.metadata or {}).get(_NAME_OF_EXTENSION)
    return name.decode() if name else None


def folder_text(field: "pa.Field") -> str | None:
    """Return the value of a key of the partition's folders as the folder has it; None for columns of the file."""
    text = (field.metadata or {}).get(FOLDER_TEXT)
    return None if text is None else text.decode()


def is_lagged(field: "pa.Field") -> bool:
    """Return whether a column has values of earlier rows, which the first rows lack."""
    return LAG_OF in (field.metadata or {})


def is_integer_text(text: str) -> bool:
    """Return whether a text is an integer that a number represents exactly, leading zeros allowed."""
    return bool(_INTEGER.fullmatch(text)) and abs(int(text)) <= LARGEST_INTEGER


def is_date_text(text: str) -> bool:
    """Return whether a text is a month, a day or a moment of 1900 to 2100 as ISO 8601 has it, dashes or none."""
    try:
        moment = datetime.fromisoformat(f"{text}-01" if _MONTH.fullmatch(text) else text)
    except ValueError:
        return False
    return 1900 <= moment.year <= 2100


def shown_type(field: "pa.Field") -> str:
    """Return a column's type as shown in messages."""
    extension, folder = extension_name(field), folder_text(field)
    if folder is not None:
        return f"{field.type} (from the folder {field.name}={folder})"
    return str(field.type) if extension is None else f"extension<{extension}>"


def plain_values(field: "pa.Field", column: "pa.Array") -> "pa.Array":
    """Return a column's values in the type given by `value_type`."""
    import pyarrow as pa
    import pyarrow.types as t

    if extension_name(field) == _BOOL8:
        stored = column.storage if isinstance(column, pa.ExtensionArray) else column
        return stored.cast(pa.bool_())
    return column.dictionary_decode() if t.is_dictionary(column.type) else column


def accepts(kind: str, field: "pa.Field") -> bool:
    """Return whether a kind of column accepts this column; every kind accepts a column without any value (null)."""
    import pyarrow.types as t

    value = value_type(field)
    number = is_number(value) or is_integer_text(folder_text(field) or "")
    fits = {CATEGORICAL: is_text(value) or number, TIMESTAMP: is_time(value)}.get(kind, number)
    return fits or bool(t.is_null(value))


def check_type(kind: str, field: "pa.Field", file: str) -> None:
    """Raise PartitionError naming file, column, type and kind if this kind of column does not accept this column."""
    if not accepts(kind, field):
        raise PartitionError(
            f"{file}: column {field.name!r} has type {shown_type(field)}, the store has it as {kind}, which takes "
            f"{ACCEPTED_TYPES[kind]}; write the file again with the type of the earlier ones{_advice(field)}"
        )


def infer_kind(field: "pa.Field", categorical: Iterable[str], file: str) -> str:
    """Return the kind of a feature from its type in the first partition; raises PartitionError for unusable types."""
    import pyarrow.types as t

    name, value = field.name, value_type(field)
    if is_text(value) or (name in categorical and is_number(value)):
        return CATEGORICAL
    shown = f"{file}: column {name!r} has type {shown_type(field)}"
    if t.is_null(value):
        raise PartitionError(
            f"{shown}: it has no value from which to infer its kind; list it under ignore, or start with a partition "
            "that has values in this column"
        )
    if name in categorical:
        raise PartitionError(f"{shown}; only text and numbers can be categorical{_advice(field)}")
    if t.is_boolean(value):
        return BOOLEAN
    if is_time(value):
        return TIMESTAMP
    if is_number(value):
        return NUMERIC
    raise PartitionError(f"{shown}, which cannot be a feature; list it under ignore{_advice(field)}")


def check_column(name: str, arrow: "pa.Schema", file: str, new_columns: Iterable[str] | None = None) -> None:
    """Raise PartitionError if the file has no such column, or has it twice.

    `new_columns` are the file's columns that the store does not know; one may be the missing column renamed.
    """
    count = arrow.names.count(name)
    if count == 0:
        raise PartitionError(f"{file} has no column {name!r}; {_suggestion(name, arrow.names, new_columns)}")
    if count > 1:
        raise PartitionError(f"{file} has {count} columns {name!r}; names must be unique")


def is_text(kind: "pa.DataType") -> bool:
    """Return whether an Arrow type is text, in any of its layouts."""
    import pyarrow.types as t

    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind))


def is_number(kind: "pa.DataType") -> bool:
    """Return whether an Arrow type is a number or a boolean."""
    import pyarrow.types as t

    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind))


def is_time(kind: "pa.DataType") -> bool:
    """Return whether an Arrow type is a timestamp or a date."""
    import pyarrow.types as t

    return bool(t.is_timestamp(kind) or t.is_date(kind))


def _suggestion(name: str, names: list[str], new_columns: Iterable[str] | None) -> str:
    """Return which column may be the missing one under another name, or which columns exist."""
    others = names if new_columns is None else list(new_columns)
    alike = closest_name(name, others)
    renamed = f"if {alike!r} is that column under a new name, rename it back; " if alike else ""
    if new_columns is not None and others:
        return f"{renamed}new here: {_list(others)}; write the file again with the column"
    return (
        f"{renamed}it has {_list(names) if names else 'no columns'}; write the file with the column, or correct the job"
    )


def _list(names: list[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")


def _advice(field: "pa.Field") -> str:
    """Return how a column of an unsupported type could be written instead, beginning with a semicolon."""
    import pyarrow.types as t

    if extension_name(field) == "pandas.period":
        return "; a period can be written as the timestamp at which it begins"
    if extension_name(field) is not None:
        return "; an extension type can be written as plain numbers or text, where that means something"
    if t.is_time(field.type) or t.is_duration(field.type):
        return "; a time of day or a duration can be written as a number of seconds"
    if t.is_nested(field.type):
        return "; a nested column can be written as one column per part"
    return ""
