"""Predictions as Parquet files, each of which appears whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgestream.stores.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa


@contextmanager
def whole_parquet(path: Path, schema: "pa.Schema") -> Iterator[Any]:
    """Yield a ParquetWriter; the file takes its name, flushed to disk, when the context ends without an exception."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as sink:
            with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
                yield writer
            sink.flush()
            os.fsync(sink.fileno())
        unfinished.replace(path)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"the predictions {path} cannot be written: {error}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
