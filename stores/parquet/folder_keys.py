"""Columns in the names of folders, as Hive and Spark write them: `region=eu/part-0.parquet` has `region`, "eu".

A key is a column of integers if all values in the source are integers, else of text. `__HIVE_DEFAULT_PARTITION__` and
an empty value are null; percent-encoded characters are decoded.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.schema.column_types import FOLDER_TEXT, folder_text, is_integer_text, value_type

if TYPE_CHECKING:
    import pyarrow as pa

_NULLS = ("__HIVE_DEFAULT_PARTITION__", "")


@dataclass(frozen=True)
class FolderKey:
    """A column that has one value in all rows of a partition: that of a folder it lies in."""

    name: str
    """The column's name."""
    text: str | None
    """Its value as the folder has it, decoded; None for null."""
    type_name: str
    """Its Arrow type: int64, string, or null if no folder of the source has a value."""

    @property
    def field(self) -> "pa.Field":
        """The column's Arrow field."""
        import pyarrow as pa

        metadata = None if self.text is None else {FOLDER_TEXT: self.text}
        return pa.field(self.name, pa.type_for_alias(self.type_name), metadata=metadata)

    def values(self, rows: int) -> "pa.Array":
        """Return the column of a batch."""
        import pyarrow as pa

        value = int(self.text) if self.text is not None and self.type_name == "int64" else self.text
        return pa.repeat(pa.scalar(value, self.field.type), rows)


def read_folder_keys(name: str) -> dict[str, str | None]:
    """Return the keys in the folders of a partition's name; raises PartitionError if one has two values."""
    keys: dict[str, str | None] = {}
    for folder in name.split("/")[:-1]:
        key, equals, value = folder.partition("=")
        if key and equals:
            key, text = _decode(key, name), None if value in _NULLS else _decode(value, name)
            if keys.setdefault(key, text) != text:
                raise PartitionError(
                    f"{name}: its folders give {key!r} two values, {keys[key]!r} and {text!r}; rename one"
                )
    return keys


def _decode(text: str, name: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise PartitionError(
            f"{name}: the folder's {text!r} is not UTF-8 when it is decoded; rename the folder"
        ) from error


def type_folder_keys(keys: Iterable[Mapping[str, str | None]]) -> dict[str, str]:
    """Return the type of each key from its values in all partitions: int64, string or null."""
    types: dict[str, str] = {}
    for name, text in (item for mapping in keys for item in mapping.items()):
        if text is None:
            types.setdefault(name, "null")
        elif types.get(name) != "string":
            types[name] = "int64" if is_integer_text(text) else "string"
    return types


def add_fields(schema: "pa.Schema", keys: Sequence[FolderKey]) -> "pa.Schema":
    """Return a file's schema with the keys that the file has no column for."""
    for key in keys:
        if key.name not in schema.names:
            schema = schema.append(key.field)
    return schema


def add_columns(batch: "pa.RecordBatch", keys: Sequence[FolderKey], file: str, first_row: int) -> "pa.RecordBatch":
    """Return a batch of a file with the columns of the keys.

    Raises PartitionError, naming `file`, if the file has a column of that name with another value; its rows are counted
    from `first_row`.
    """
    for key in keys:
        if key.name in batch.schema.names:
            _check_equal(batch, key, file, first_row)
        else:
            batch = batch.append_column(key.field, key.values(batch.num_rows))
    return batch


def as_file_columns(batch: "pa.RecordBatch", categorical: Sequence[str]) -> "pa.RecordBatch":
    """Return a batch in which keys are columns like those of a file; categorical ones are text, as folders have it."""
    import pyarrow as pa

    fields, columns = list(batch.schema), list(batch.columns)
    for i, field in enumerate(fields):
        text = folder_text(field)
        if text is not None:
            columns[i] = pa.repeat(text, batch.num_rows) if field.name in categorical else columns[i]
            fields[i] = pa.field(field.name, columns[i].type)
    return pa.record_batch(columns, schema=pa.schema(fields))


def _check_equal(batch: "pa.RecordBatch", key: FolderKey, file: str, first_row: int) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    column, kind = batch.column(key.name), value_type(batch.schema.field(key.name))
    plain = column.cast(kind) if pa.types.is_dictionary(column.type) else column
    if key.text is None:
        equal = plain.is_null()
    else:
        try:
            equal = pc.equal(plain, pa.scalar(key.text).cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # no value of the column's type is written like that
            equal = pa.nulls(len(plain), pa.bool_())
    different = pc.invert(equal.fill_null(False))
    if pc.any(different).as_py():
        row = different.index(True).as_py()
        raise PartitionError(
            f"{file}: column {key.name!r} has the value {column[row].as_py()!r} in row {first_row + row}, and the "
            f"file's folder says {key.text!r}; correct one of them, or rename the folder"
        )
