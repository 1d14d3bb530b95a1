"""Predictions as Parquet files, each of which appears whole or not at all, and says what it was made of."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.files.paths import Place, open_file, write_whole
from ridgestream.stores.files.read_ahead import FOOTER_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS, GROUP_BYTES = 131072, 64 * 2**20
"""Rows, and bytes of memory, after which a row group is written."""

_KEY = b"ridgestream.predictions"


class Predictions:
    """A file of predictions that is being written: batches gathered into row groups, and what it was made of."""

    def __init__(self, writer: Any) -> None:  # noqa: ANN401 (pyarrow has no types)
        self._writer = writer
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write_batch(self, batch: "pa.RecordBatch") -> None:
        """Write rows after those before them."""
        self._batches.append(batch)
        self._rows, self._bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self.end_group()

    def end_group(self) -> None:
        """Write a row group of what has been gathered, if anything has."""
        import pyarrow as pa

        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches), row_group_size=max(1, self._rows))
        self._batches, self._rows, self._bytes = [], 0, 0

    def says(self, made_of: dict[str, Any]) -> None:
        """Put what it was made of into the file's own metadata."""
        self._writer.add_key_value_metadata({_KEY: json.dumps(made_of)})


@contextmanager
def whole_parquet(place: Place, schema: "pa.Schema") -> Iterator[Predictions]:
    """Yield what rows are written to; the file takes its name, whole, when the context ends without an exception.

    A local file is flushed to disk before, an object sent when it is finished. Raises StoreError where that cannot be.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with write_whole(place) as sink, pq.ParquetWriter(sink, schema, compression="zstd") as writer:
            predictions = Predictions(writer)
            yield predictions
            predictions.end_group()
    except StoreError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"the predictions {place} cannot be written: {error}") from error


def read_made_of(place: Place) -> dict[str, Any] | None:
    """Return what a file of predictions says that it was made of; None if there is no such file, or no sound one.

    Raises PartitionError for a Parquet file of another kind, StoreError where an object store cannot be asked.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(open_file(place, FOOTER_BYTES), memory_map=False) as file:
            made_of = json.loads((file.metadata.metadata or {}).get(_KEY, b"null"))
    except StoreError:
        raise
    except (OSError, pa.ArrowException, ValueError):
        return None
    if not isinstance(made_of, dict):
        raise PartitionError(
            f"{place} is there already, and is none of predict's own files, so it is not replaced: move it away, or "
            "give another output folder"
        )
    return made_of
