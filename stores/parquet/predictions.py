"""Predictions as Parquet files, each written atomically and with its provenance in its metadata."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.files.paths import FileLocation, write_atomically
from ridgestream.stores.files.read_ahead import FOOTER_BYTES
from ridgestream.stores.parquet.parquet_door import open_parquet

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS, GROUP_BYTES = 131072, 64 * 2**20
"""A row group is written when it reaches this number of rows, or of bytes in memory."""

_KEY = b"ridgestream.predictions"


class PredictionWriter:
    """Writes a file of predictions: gathers batches into row groups, and records the provenance."""

    def __init__(self, writer: Any) -> None:  # noqa: ANN401 (pyarrow has no types)
        self._writer = writer
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write_batch(self, batch: "pa.RecordBatch") -> None:
        """Append rows."""
        self._batches.append(batch)
        self._rows, self._bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self.end_group()

    def end_group(self) -> None:
        """Write the gathered rows, if any, as a row group."""
        import pyarrow as pa

        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches), row_group_size=max(1, self._rows))
        self._batches, self._rows, self._bytes = [], 0, 0

    def set_provenance(self, provenance: dict[str, Any]) -> None:
        """Store what the predictions were made of in the file's metadata."""
        self._writer.add_key_value_metadata({_KEY: json.dumps(provenance)})


@contextmanager
def write_predictions(location: FileLocation, schema: "pa.Schema") -> Iterator[PredictionWriter]:
    """Yield a writer; the file appears under its name, complete, when the context exits without an exception.

    A local file is flushed to disk before, an object is uploaded then. Raises StoreError if either fails.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with write_atomically(location) as sink, pq.ParquetWriter(sink, schema, compression="zstd") as file:
            writer = PredictionWriter(file)
            yield writer
            writer.end_group()
    except StoreError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"the predictions {location} cannot be written: {error}") from error


def read_provenance(location: FileLocation) -> dict[str, Any] | None:
    """Return the provenance stored in a file of predictions; None if there is no such file, or an unreadable one.

    Raises PartitionError for a Parquet file of another kind, StoreError if an object store cannot be read.
    """
    import pyarrow as pa

    try:
        with open_parquet(location, FOOTER_BYTES) as file:
            provenance = json.loads((file.metadata.metadata or {}).get(_KEY, b"null"))
    except StoreError:
        raise
    except (OSError, pa.ArrowException, ValueError):
        return None
    if not isinstance(provenance, dict):
        raise PartitionError(
            f"{location} exists and was not written by predict, so it is not replaced: move it away, or "
            "give another output folder"
        )
    return provenance
