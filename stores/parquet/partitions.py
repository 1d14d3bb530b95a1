"""Parquet partitions: listing them in order, and reading their rows in batches."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.files.paths import (
    FileLocation,
    ObjectPath,
    Stamp,
    is_same_location,
    list_objects,
    open_file,
    stamp_of,
)
from ridgestream.stores.files.read_ahead import AHEAD_BYTES, FOOTER_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 16384
"""Rows decoded at a time."""

_FOOTERS_AT_ONCE = 16

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

Result = TypeVar("Result")


@dataclass(frozen=True)
class PartitionFile:
    """One Parquet file of a source."""

    name: str
    """Path relative to the source, with forward slashes."""
    path: FileLocation
    """Its location: a local path, or an object store URL with its connection settings."""
    size_bytes: int
    """Its size when listed."""
    modified_ns: int
    """Its time stamp in nanoseconds when listed."""


def list_partitions(source: FileLocation) -> tuple[PartitionFile, ...]:
    """Return the Parquet files below the folder or prefix `source`, or the single file it names, in natural order.

    Natural order compares runs of digits as numbers: `part-2` comes before `part-10`. Names that begin with a dot or an
    underscore are skipped. Raises PartitionError if the source does not exist or contains no Parquet file, for a
    dangling link, and for names with control characters; StoreError if an object store cannot be read.
    """
    files = _list_folder(source) if isinstance(source, Path) else _list_prefix(source)
    for file in files:
        if _CONTROL.search(file.name):
            raise PartitionError(f"the source {source}: the name {file.name!r} has control characters; rename the file")
    if not files:
        raise PartitionError(f"the source {source} has no file whose name ends in .parquet")
    return tuple(sorted(files, key=lambda f: natural_key(f.name)))


def check_apart(source: FileLocation, output: FileLocation) -> None:
    """Raise PartitionError if files written below the folder `output` would be listed as partitions of `source`."""
    if is_same_location(source, output) or _would_list(source, output):
        raise PartitionError(
            f"the output {output} lies in the source {source}, whose partitions its files would become: "
            "choose another folder"
        )


def natural_key(name: str) -> tuple[tuple[int, int | str, str], ...]:
    """Return the sort key of natural order: digits as numbers, before letters; ties are broken by the digits' text."""
    parts = (part for part in re.split(r"(\d+)", name) if part)
    return tuple((0, int(part), part) if part.isdecimal() else (1, part, "") for part in parts)


def check_unchanged(partition: PartitionFile) -> None:
    """Raise PartitionError if the file's size or time stamp has changed since it was listed."""
    try:
        now = stamp_of(partition.path)
    except StoreError:
        raise
    except OSError as error:
        raise PartitionError(f"{partition.path} is gone: {error.strerror}") from error
    if now != Stamp(partition.size_bytes, partition.modified_ns):
        raise PartitionError(
            f"{partition.path} was changed while it was read; move finished files into the source by a rename"
        )


def read_arrow_schema(partition: PartitionFile) -> "pa.Schema":
    """Return the Arrow schema from the file's footer; raises PartitionError if the file is not Parquet."""
    with _open(partition, FOOTER_BYTES) as file:
        return file.schema_arrow


def map_footers(read: Callable[[PartitionFile], Result], files: Sequence[PartitionFile]) -> Iterator[Result]:
    """Yield `read(file)` for each file, in order; reads several footers concurrently, since object stores are slow."""
    if len(files) <= 1:
        yield from map(read, files)
        return
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="footers") as pool:
        yield from pool.map(read, files)


def count_rows(partition: PartitionFile) -> int:
    """Return the number of rows according to the file's footer."""
    with _open(partition, FOOTER_BYTES) as file:
        return int(file.metadata.num_rows)


@dataclass(frozen=True)
class FooterSizes:
    """The sizes given in a Parquet file's footer."""

    rows: int
    """Number of rows."""
    columns: int
    """Number of columns; each column inside a nested one counts."""
    group_bytes: int
    """Compressed bytes of the largest row group, all of which are in memory when it is read."""


def measure_partition(partition: PartitionFile) -> FooterSizes:
    """Return the sizes given in the file's footer; raises PartitionError if it cannot be read."""
    with _open(partition, FOOTER_BYTES) as file:
        footer = file.metadata
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        sizes = [sum(g.column(i).total_compressed_size for i in range(g.num_columns)) for g in groups]
        return FooterSizes(int(footer.num_rows), int(footer.num_columns), max(sizes, default=0))


def read_batches(partition: PartitionFile, columns: list[str] | None) -> Iterator["pa.RecordBatch"]:
    """Yield the rows in order, at most BATCH_ROWS at a time, with the named columns (all if None)."""
    import pyarrow as pa

    with _open(partition) as file:
        try:
            yield from file.iter_batches(batch_size=BATCH_ROWS, columns=columns, use_threads=False)
        except StoreError:  # the file may be intact: it could not be fetched
            raise
        except (pa.ArrowException, OSError) as error:
            raise PartitionError(f"{partition.path} cannot be decoded: {error}; write it again or remove it") from error


def _open(partition: PartitionFile, ahead_bytes: int = AHEAD_BYTES) -> Any:  # noqa: ANN401 (pyarrow has no types)
    import pyarrow as pa
    import pyarrow.parquet as pq

    if partition.size_bytes == 0:
        raise PartitionError(
            f"{partition.path} is empty (0 bytes): it is not a Parquet file; write it again or remove it"
        )
    try:
        file = open_file(partition.path, ahead_bytes)
        return pq.ParquetFile(file, memory_map=False, page_checksum_verification=True)
    except StoreError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise PartitionError(
            f"{partition.path} is not a readable Parquet file: {error}; write it again or remove it"
        ) from error


def _list_folder(source: Path) -> list[PartitionFile]:
    try:
        is_file, is_there = source.is_file(), source.exists()
    except OSError as error:
        raise PartitionError(f"the source {source} cannot be read: {error.strerror}") from error
    if not is_there:
        raise PartitionError(f"the source {source} does not exist")
    paths = [source] if is_file else list(_find_files(source))
    base = source.parent if is_file else source
    return [_partition(path, base) for path in paths]


def _find_files(source: Path) -> Iterator[Path]:
    """Yield the partitions below the folder; raises PartitionError for a folder that cannot be read."""

    def refuse(error: OSError) -> None:
        raise PartitionError(
            f"the source {source}: {error.filename} cannot be read: {error.strerror}; make it readable, or move it away"
        ) from error

    for folder, folders, names in os.walk(source, onerror=refuse):
        folders[:] = [name for name in folders if not _is_hidden([name]) and name != "lost+found"]
        yield from (Path(folder, name) for name in names if name.endswith(".parquet") and not _is_hidden([name]))


def _list_prefix(source: ObjectPath) -> list[PartitionFile]:
    objects = list_objects(source)
    if not objects:
        raise PartitionError(f"the source {source} does not exist: there is no object of that name or below it")
    is_object = len(objects) == 1 and objects[0][1] == source
    partitions = [each for each in objects if is_object or _is_partition_name(each[0])]
    for name, location, _ in partitions:
        if "" in name.split("/"):  # it could not be mapped to a path
            raise PartitionError(f"{location}: its name has an empty part, which no file can have; rename the object")
    return [PartitionFile(name, location, stamp.size_bytes, stamp.modified_ns) for name, location, stamp in partitions]


def _is_partition_name(name: str) -> bool:
    return name.endswith(".parquet") and not _is_hidden(name.split("/"))


def _would_list(source: FileLocation, output: FileLocation) -> bool:
    """Return whether the source is a folder or prefix that contains the output, under a name that is not hidden."""
    if isinstance(source, Path) and isinstance(output, Path):
        source, output = source.resolve(), output.resolve()
        return source.is_dir() and source in output.parents and _has_visible_name(output, source)
    if isinstance(source, Path) or isinstance(output, Path):
        return False
    below = output.path.removeprefix(f"{source.path}/")
    return source.parsed.shares_bucket(output.parsed) and below != output.path and not _is_hidden(below.split("/"))


def _partition(path: Path, base: Path) -> PartitionFile:
    try:
        status = path.stat()
    except OSError as error:
        raise PartitionError(f"{path} cannot be read: {error.strerror}; put it back or remove it") from error
    return PartitionFile(path.relative_to(base).as_posix(), path, status.st_size, status.st_mtime_ns)


def _has_visible_name(path: Path, base: Path) -> bool:
    return not _is_hidden(path.relative_to(base).parts)


def _is_hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith((".", "_")) for part in parts)
