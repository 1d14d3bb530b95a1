"""Small random Parquet partitions with a column of every kind that stores support."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ridgestream.stores.parquet.partitions import PartitionFile, list_partitions
from ridgestream.stores.schema.schema import SchemaRequest

REQUEST = SchemaRequest(target="y")
"""The schema request for `mixed_columns`: regression on y, every other column a feature."""

COLOURS = ("red", "green", "blue", "grey")


def mixed_columns(rows: int, seed: int = 0, colours: Sequence[str] = COLOURS) -> dict[str, pa.Array]:
    """Return columns by name: a float, a count, a flag, a time, a colour, and a target that depends on them."""
    rng = np.random.default_rng(seed)
    length, count, flag = rng.standard_normal(rows), rng.integers(0, 50, rows), rng.random(rows) < 0.3
    colour = rng.integers(0, len(colours), rows)
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    times = [begin + timedelta(minutes=int(minutes)) for minutes in rng.integers(0, 500_000, rows)]
    return {
        "length": pa.array(length, pa.float64()),
        "count": pa.array(count, pa.int32()),
        "flag": pa.array(flag, pa.bool_()),
        "seen": pa.array(times, pa.timestamp("us", "UTC")),
        "colour": pa.array([colours[i] for i in colour], pa.string()),
        "y": pa.array(np.sin(length) + 0.1 * count - flag + 0.5 * colour, pa.float64()),
    }


def write_partition(path: Path, columns: Mapping[str, Any] | pa.Table, **options: Any) -> Path:
    """Write columns as one Parquet file, creating its folder; `options` are passed to `pyarrow.parquet.write_table`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(dict(columns)), path, **options)
    return path


def write_mixed(folder: Path, rows: Sequence[int], seed: int = 0) -> Path:
    """Write partitions `part-0.parquet`, … of `mixed_columns` with these numbers of rows; return the folder."""
    for i, n in enumerate(rows):
        write_partition(folder / f"part-{i}.parquet", mixed_columns(n, seed=seed + i))
    return folder


def only_partition(path: Path) -> PartitionFile:
    """Return a file as the only partition of a source."""
    (file,) = list_partitions(path)
    return file


def column_of(name: str, values: Any, rows: int | None = None) -> dict[str, Any]:
    """Return one column and a target `y`."""
    n = len(values) if rows is None else rows
    return {name: values, "y": pa.array(np.arange(n, dtype=np.float64))}
