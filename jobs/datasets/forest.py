"""Make the forest cover tables (UCI Covertype, shuffled, in eleven Parquet partitions) from the file covtype.data."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

DATA_BYTES = 75_169_317
DATA_SHA256 = "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945"
N_ROWS = 581_012
N_TEST_ROWS = 81_012
N_PARTITION_ROWS = 50_000
LABEL = "Cover_Type"

_QUANTITATIVE = (
    ("Elevation", pa.int16()),
    ("Aspect", pa.int16()),
    ("Slope", pa.uint8()),
    ("Horizontal_Distance_To_Hydrology", pa.int16()),
    ("Vertical_Distance_To_Hydrology", pa.int16()),
    ("Horizontal_Distance_To_Roadways", pa.int16()),
    ("Hillshade_9am", pa.uint8()),
    ("Hillshade_Noon", pa.uint8()),
    ("Hillshade_3pm", pa.uint8()),
    ("Horizontal_Distance_To_Fire_Points", pa.int16()),
)
_FLAGS = (*(f"Wilderness_Area{i}" for i in range(1, 5)), *(f"Soil_Type{i}" for i in range(1, 41)))
SCHEMA = pa.schema([*_QUANTITATIVE, *((name, pa.uint8()) for name in (*_FLAGS, LABEL))])


@dataclass(frozen=True)
class Partition:
    """One of the eleven tables: a range of the shuffled rows, known by its content."""

    name: str
    """Path below the destination, with forward slashes."""
    start: int
    """Its first row, counted in the shuffled order."""
    stop: int
    """One past its last row, counted in the shuffled order."""
    content_sha256: str
    """What `content_sha256` gives for the right table, whatever the encoding of its file."""


_CONTENT_SHA256 = (
    "6a34b0cfde92a0390e9f89e38663de234105e2cad79628652ddc4f61f010ffd4",
    "cbbaa4fa604f349ae92f5bfd7a0dfa57ae60fa7ff6be80afb3a41b763786f709",
    "49e3a0272385cb2589191287eae1e5196f6e4d7bafacd55359f6f0412e8d964c",
    "93bc9db95579d6a7acc3986f80732a898180f84269a51a843460066153bc0b64",
    "daf932d5d63e8e5759ea3d6f5ccb14fee2df3eedb8dee1141edcb18315c05e5d",
    "dbd9821ca2cf4cfceaebebb91432dd06f7daf735c53a47649cd4aea91811cffe",
    "50c4b414825d560c13ea2d678c7fef78cd161cc2c8e9dd56ba3a4f335c236ee4",
    "02de39e050a7f1f5b3f70f9ec9a175b33d7ff855fc31b6f4c43090d5151211d2",
    "3bc8eaa025fd3cea9c82f8b59729c192fa64cfb52f2d9a963c9f118031c531d9",
    "4edf149770ffdd771639616a897429377bdf7697c6432f65839f8a2db97ed51b",
    "0b256a2949287da02cba1f8269e792d607727b67198d6ca2516add7941c2eb1b",
)


def _plan_partitions() -> tuple[Partition, ...]:
    starts = range(N_TEST_ROWS, N_ROWS, N_PARTITION_ROWS)
    names = ("test/part-00.parquet", *(f"train/part-{i:02d}.parquet" for i in range(len(starts))))
    bounds = ((0, N_TEST_ROWS), *((start, start + N_PARTITION_ROWS) for start in starts))
    return tuple(Partition(n, a, b, c) for n, (a, b), c in zip(names, bounds, _CONTENT_SHA256, strict=True))


PARTITIONS = _plan_partitions()


def shuffled_order() -> npt.NDArray[np.int64]:
    """Give the source row of each shuffled row: the one recipe by which rows are drawn.

    NumPy does not promise the same stream for ever, so the tables made with it are checked by their content.
    """
    return np.random.default_rng(0).permutation(N_ROWS)


def read_rows(data: Path) -> pa.Table:
    """Read covtype.data, a CSV file without header whose checksum was checked before, in the source's order.

    Raises OSError if the file cannot be read, and pyarrow.ArrowInvalid if a line has not 55 integers that fit `SCHEMA`.
    Costs about 35 MB for the table, a few blocks of 1 MiB on the way, and half a second.
    """
    rows = pyarrow.csv.read_csv(
        data,
        pyarrow.csv.ReadOptions(column_names=SCHEMA.names, block_size=1 << 20),
        convert_options=pyarrow.csv.ConvertOptions(column_types=SCHEMA),
    )
    return rows.combine_chunks()


def write_partition(rows: pa.Table, order: npt.NDArray[np.int64], partition: Partition, path: Path) -> None:
    """Write one partition to `path` and flush it to disk; the same versions of pyarrow write the same bytes.

    Raises OSError if the file cannot be written. Costs a copy of the partition's rows and a tenth of a second.
    """
    table = rows.take(order[partition.start : partition.stop])
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table, path, compression="zstd", compression_level=19, row_group_size=table.num_rows, store_schema=False
    )
    _flush(path)


def content_sha256(table: pa.Table) -> str:
    """Hash names, types and values, column by column in little-endian order, whatever the file's encoding.

    A null turns its column into floating point, and so changes the hash too. Costs a copy of one column at a time.
    """
    digest = hashlib.sha256("\n".join(f"{field.name}:{field.type}" for field in table.schema).encode())
    for column in table.columns:
        values = column.to_numpy()
        digest.update(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).data)
    return digest.hexdigest()


def holds_partition(folder: Path, partition: Partition) -> bool:
    """Say whether `folder` holds the right table under the partition's name; a missing or broken file does not.

    Costs one reading of the file, and no more than its footer when rows or columns differ.
    """
    try:
        with pq.ParquetFile(folder / partition.name) as file:
            n_rows = partition.stop - partition.start
            if file.metadata.num_rows != n_rows or not file.schema_arrow.equals(SCHEMA):
                return False
            return content_sha256(file.read()) == partition.content_sha256
    except (OSError, pa.ArrowException):
        return False


def missing_partitions(folder: Path) -> tuple[Partition, ...]:
    """Give the partitions whose right table `folder` does not hold; costs half a second when it holds them all."""
    return tuple(partition for partition in PARTITIONS if not holds_partition(folder, partition))


def publish_partitions(partitions: Sequence[Partition], staging: Path, destination: Path) -> None:
    """Move written partitions from `staging` to `destination`, on the same disk, so that each appears whole.

    Raises OSError if the disk refuses; the tables moved before then stay.
    """
    folders = {(destination / partition.name).parent for partition in partitions}
    for folder in folders:
        folder.mkdir(exist_ok=True)
    for partition in partitions:
        (staging / partition.name).replace(destination / partition.name)
    for folder in (*folders, destination):
        _flush(folder)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
