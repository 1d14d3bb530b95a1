"""Decoding the columns after a step: features where an episode continues, and whether it ended with the step."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.stores.parquet.column_reader import ColumnReader
from ridgestream.stores.schema.column_types import BOOLEAN, NUMERIC, check_column, check_type, plain_values

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TransitionDecoder:
    """Decodes what follows the rows of one partition of transitions."""

    reader: ColumnReader
    """Reads the columns."""

    def check_types(self, arrow: "pa.Schema") -> None:
        """Raise PartitionError if a column is missing, or of another kind than its feature."""
        schema, file = self.reader.schema, self.reader.file
        kinds = {name: feature.kind for name, feature in zip(schema.ahead, schema.features, strict=False)}
        for name, kind in (kinds | ({schema.done: NUMERIC} if schema.done else {})).items():
            check_column(name, arrow, file)
            check_type(kind, arrow.field(name), file)

    def decode(self, batch: "pa.RecordBatch") -> npt.NDArray[np.float64]:
        """Return the features after the step, and whether the episode ended, as `Rows.ahead`.

        Where it ended, features after the step are not looked at, and are zero.
        """
        schema, reader = self.reader.schema, self.reader
        done = np.zeros(batch.num_rows)
        if schema.done is not None:
            with reader.arrow_errors(schema.done):
                done = reader.booleans(schema.done, batch)
        columns = []
        for name, feature in zip(schema.ahead, schema.features, strict=True):
            with reader.arrow_errors(name):
                read = reader.booleans if feature.kind == BOOLEAN else reader.numbers
                columns.append(read(name, _without(batch, name, done == 1)))
        return np.column_stack([*columns, done])


def _without(batch: "pa.RecordBatch", name: str, rows: npt.NDArray[np.bool_]) -> "pa.RecordBatch":
    """Return the batch with zeros in place of a column's values in some rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = plain_values(batch.schema.field(name), batch.column(name))
    if not rows.any() or pa.types.is_null(plain.type):
        return batch
    replaced = pc.if_else(pa.array(rows), pa.scalar(0).cast(plain.type), plain)
    return batch.set_column(batch.schema.get_field_index(name), pa.field(name, plain.type), replaced)
