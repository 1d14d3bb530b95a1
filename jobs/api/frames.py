"""Tables of other libraries: rows to be predicted come in as Arrow, and predictions go out as rows came in."""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ridgestream.pipeline.base.errors import InputError
from ridgestream.stores.parquet.partitions import BATCH_ROWS

if TYPE_CHECKING:
    import pyarrow as pa


def to_arrow(rows: object) -> "pa.Table":
    """Return rows as an Arrow table; raises InputError for anything that is no table, or has a column of objects.

    They may be a pandas or polars frame, an Arrow table or batch, whatever else has `__arrow_c_stream__`, or a mapping
    of one-dimensional arrays by column.
    """
    import pyarrow as pa

    try:
        if _is_of("pandas", rows):
            return pa.Table.from_pandas(rows, preserve_index=False)
        if isinstance(rows, Mapping):
            return pa.table(dict(rows))
        if isinstance(rows, pa.RecordBatch) or hasattr(rows, "__arrow_c_stream__"):
            return pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"the rows cannot be read as a table: {error}; give one array of plain values a column"
        ) from error
    raise InputError(
        "rows are a pandas or polars frame, an Arrow table, or a mapping of arrays by column, since columns are known "
        f"by their names; {type(rows).__module__}.{type(rows).__name__} is none of these"
    )


def batches_of(table: "pa.Table", columns: list[str]) -> "Iterator[pa.RecordBatch]":
    """Yield these columns of the table in batches of BATCH_ROWS, as a file with the same rows has them."""
    chosen = table.select(columns)
    for start in range(0, table.num_rows, BATCH_ROWS):
        yield from chosen.slice(start, BATCH_ROWS).combine_chunks().to_batches()


def like(rows: Any, table: "pa.Table") -> Any:  # noqa: ANN401
    """Return an Arrow table as the kind of frame that `rows` are, a pandas frame with their index; else as it is."""
    if _is_of("pandas", rows):
        return table.to_pandas().set_axis(rows.index)
    return sys.modules["polars"].from_arrow(table) if _is_of("polars", rows) else table


def _is_of(library: str, rows: object) -> bool:
    """Return whether rows are a frame of a library, which is imported already if they are."""
    module = sys.modules.get(library)
    return module is not None and isinstance(rows, module.DataFrame)
