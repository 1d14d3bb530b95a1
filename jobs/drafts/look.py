"""A look at data that no job file describes yet: footers, and the first rows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.files.paths import FileLocation
from ridgestream.stores.parquet.partitions import (
    count_rows,
    list_partitions,
    map_footers,
    read_arrow_schema,
    read_batches,
)
from ridgestream.stores.schema.column_types import (
    BOOLEAN,
    CATEGORICAL,
    TIMESTAMP,
    folder_text,
    infer_kind,
    is_date_text,
    shown_type,
)
from ridgestream.stores.schema.schema import PANDAS_INDEX

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CLASSES = 20
"""So many different whole numbers of a target may be classes."""

_NAME_ROWS, _NAME_SHARE = 100, 0.5
"""Text is a name of rows, not a category, if so many of them have a value of their own, in this share at least."""

TARGETS = ("target", "label", "class", "y", "response", "outcome")
"""Names, in any case, that a target often has."""


@dataclass(frozen=True)
class Column:
    """A column, as the first rows show it."""

    name: str
    """Its name."""
    type: str
    """Its type."""
    kind: str
    """Its kind as a feature: numeric, boolean, timestamp or categorical; empty if it can be none."""
    reason: str
    """Why it is not to be a feature; empty if it may be one."""
    missing: int
    """The number of missing values."""
    distinct: int | None
    """The number of different values of text, booleans and whole numbers; None for all else."""

    @property
    def holds_classes(self) -> bool:
        """Whether it is no number to regress on: text or a boolean."""
        return self.kind in (CATEGORICAL, BOOLEAN)

    @property
    def may_hold_classes(self) -> bool:
        """Whether its whole numbers are few enough to be classes."""
        return not self.holds_classes and self.distinct is not None and self.distinct <= MOST_CLASSES


@dataclass(frozen=True)
class Look:
    """What a source holds."""

    partitions: int
    """The number of files."""
    rows: int
    """Their rows, by the footers."""
    seen: int
    """How many of them were looked at."""
    columns: tuple[Column, ...]
    """The columns of the first file."""

    def guess_target(self) -> tuple[str | None, str]:
        """Return a column that may be the target, and why: it is called so, or the last one that can be; else None."""
        usable = [column.name for column in self.columns if not column.reason and column.kind != TIMESTAMP]
        names = {name.casefold(): name for name in reversed(usable)}
        found = next((names[name] for name in TARGETS if name in names), None)
        return (found, "by its name") if found is not None else (usable[-1] if usable else None, "as the last column")


def look_at(source: FileLocation) -> Look:
    """Return what a folder of partitions, or one file, holds; reads every footer, and a batch of the first file.

    Raises PartitionError or StoreError if there are no partitions, or if the first one cannot be read.
    """
    files = list_partitions(source)
    arrow, rows = read_arrow_schema(files[0]), sum(map_footers(count_rows, files))
    batch = next(read_batches(files[0], None), None)
    names = [name for name in arrow.names if not PANDAS_INDEX.fullmatch(name)]
    columns = tuple(_column(arrow.field(name), batch, str(files[0].path)) for name in names)
    return Look(len(files), rows, 0 if batch is None else batch.num_rows, columns)


def _column(field: "pa.Field", batch: "pa.RecordBatch | None", file: str) -> Column:
    import pyarrow.compute as pc
    import pyarrow.types as t

    kind, reason = _kind(field, file)
    if batch is None or not kind:
        return Column(field.name, shown_type(field), kind, reason, 0, None)
    values = batch.column(field.name)
    missing = int(pc.sum(pc.is_null(values, nan_is_null=True)).as_py() or 0)
    is_counted = kind in (CATEGORICAL, BOOLEAN) or t.is_integer(field.type)
    distinct = len(values.drop_null().unique()) if is_counted else None
    if kind == CATEGORICAL and len(values) >= _NAME_ROWS and (distinct or 0) > _NAME_SHARE * len(values):
        reason = f"{distinct:,} different texts in {len(values):,} rows"
    return Column(field.name, shown_type(field), kind, reason, missing, distinct)


def _kind(field: "pa.Field", file: str) -> tuple[str, str]:
    """Return the kind of a feature, and why the column is not to be one."""
    text = folder_text(field)
    if text is not None and is_date_text(text):
        return "", "a date in the name of the folder, another one in each later partition"
    try:
        return infer_kind(field, (), file), ""
    except PartitionError:
        return "", f"the type {shown_type(field)} is none of a feature"
