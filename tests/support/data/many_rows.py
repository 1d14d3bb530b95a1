"""Writes any number of rows like the forest's: bundled rows resampled, with small perturbations."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FOREST = Path(__file__).parents[3] / "jobs" / "recipes" / "forest" / "train"
PARTITION_ROWS = 50_000


def write_many_rows(folder: Path, rows: int, seed: int = 0) -> None:
    """Write `rows`, a multiple of PARTITION_ROWS, in partitions of that size; holds one partition in memory."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    tables = sorted(FOREST.glob("*.parquet"))
    for number in range(rows // PARTITION_ROWS):
        table = pq.read_table(tables[number % len(tables)])
        table = table.take(rng.permutation(table.num_rows)[:PARTITION_ROWS])
        columns = [_perturb(column, rng) if number >= len(tables) else column for column in table.columns]
        pq.write_table(pa.table(columns, table.schema), folder / f"part-{number:03d}.parquet")


def _perturb(column: pa.ChunkedArray, rng: np.random.Generator) -> pa.ChunkedArray:
    """Add −1, 0 or 1 to a measured quantity; indicators and labels, whose values are at most 7, are unchanged."""
    values = column.to_numpy()
    if values.max() <= 7:
        return column
    return pa.chunked_array([values + rng.integers(-1, 2, len(values)).astype(values.dtype)], column.type)
