"""Parquet partitions: listing them in order, and reading their rows in batches."""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.files.paths import (
    FileLocation,
    ObjectPath,
    Stamp,
    is_same_location,
    stamp_of,
)
from ridgestream.stores.files.read_ahead import AHEAD_BYTES, FOOTER_BYTES
from ridgestream.stores.parquet.folder_keys import (
    FolderKey,
    add_columns,
    add_fields,
    read_folder_keys,
    type_folder_keys,
)
from ridgestream.stores.parquet.hidden_names import is_hidden_folder
from ridgestream.stores.parquet.lags import REACH, LaggedRows, Lags, distinct_keys
from ridgestream.stores.parquet.parquet_door import open_parquet
from ridgestream.stores.parquet.source_walk import ListedFile, escape_path, walk_source
from ridgestream.stores.requests.activity import ACTIVITY

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
    keys: tuple[FolderKey, ...] = ()
    """The columns in the names of its folders."""
    identity: str = ""
    """What distinguishes it from a rewritten file of the same size and time stamp, as in `Stamp`; empty if unknown."""
    lags: Lags | None = None
    """Which columns of earlier rows it has besides its own; None for none."""
    before: tuple["PartitionFile", ...] = ()
    """The partitions before it from which earlier rows are read, the nearest first, without lags of their own."""


@dataclass(frozen=True)
class SourceListing:
    """The files of a source."""

    partitions: tuple[PartitionFile, ...]
    """The partitions, in natural order."""
    passed_over: tuple[ListedFile, ...] = ()
    """The other files, and folders that were not entered; without those known to hold no rows."""


def list_partitions(source: FileLocation) -> tuple[PartitionFile, ...]:
    """Return the partitions of `list_source`."""
    return list_source(source).partitions


def list_source(source: FileLocation) -> SourceListing:
    """Return the Parquet files below the folder or prefix `source`, or the single file it names, in natural order.

    Natural order compares runs of digits as numbers: `part-2` comes before `part-10`. Links to folders are followed;
    folders `key=value` give columns. Names that begin with a dot or an underscore, but for folders `_key=value`, and
    files that do not end in `.parquet` are passed over.

    Raises PartitionError if the source does not exist or contains no Parquet file, if it belongs to a table of Delta,
    Iceberg, Hudi or the like, for a link that leads nowhere or in a circle, and for names with control characters or
    that are not UTF-8; StoreError if an object store cannot be read.
    """
    with ACTIVITY.under_way(f"the list of files in {source}"):
        files = walk_source(source)
    is_single = len(files) == 1 and files[0].location == source
    listed = [file for file in files if is_single or file.is_partition]
    for file in listed:
        _check_name(file, source)
    if not listed:
        raise PartitionError(f"the source {escape_path(source)} has no file whose name ends in .parquet")
    others = (file for file in files if not file.is_partition) if len(listed) < len(files) else ()
    passed_over = sorted((file for file in others if not file.is_marker), key=lambda file: file.name)
    return SourceListing(_partitions(listed), tuple(passed_over))


def _partitions(files: Sequence[ListedFile]) -> tuple[PartitionFile, ...]:
    """Return the files as partitions, in natural order."""
    files = sorted(files, key=lambda file: natural_key(file.name))
    keys = [read_folder_keys(file.name) for file in files]
    types = type_folder_keys(keys)
    return tuple(
        _partition(file, tuple(FolderKey(name, text, types[name]) for name, text in texts.items()))
        for file, texts in zip(files, keys, strict=True)
    )


def _partition(file: ListedFile, keys: tuple[FolderKey, ...]) -> PartitionFile:
    try:
        stamp = file.stamp or stamp_of(file.location)
    except StoreError:
        raise
    except OSError as error:
        raise PartitionError(f"{file.location} cannot be read: {error.strerror}; put it back or remove it") from error
    return PartitionFile(file.name, file.location, stamp.size_bytes, stamp.modified_ns, keys, stamp.identity)


def with_lags(
    files: Sequence[PartitionFile], lags: Lags | None, history: Sequence[PartitionFile] = ()
) -> tuple[PartitionFile, ...]:
    """Return partitions with columns of earlier rows: those of each other, in order, and of the partitions `history`.

    Partitions that are not in the history come after it.
    """
    if lags is None:
        return tuple(files)
    known = {file.path for file in history}
    order = [replace(file, lags=None, before=()) for file in (*history, *(f for f in files if f.path not in known))]
    place = {file.path: position for position, file in enumerate(order)}
    before = {path: tuple(reversed(order[max(at - REACH, 0) : at])) for path, at in place.items()}
    return tuple(replace(file, lags=lags, before=before[file.path]) for file in files)


def _check_name(file: ListedFile, source: FileLocation) -> None:
    """Raise PartitionError for a name that cannot be printed, stored or mapped to a path."""
    if escape_path(file.location) != str(file.location):
        raise PartitionError(f"{escape_path(file.location)} is no UTF-8; rename it")
    if _CONTROL.search(file.name):
        raise PartitionError(f"the source {source}: the name {file.name!r} has control characters; rename the file")
    if isinstance(file.location, ObjectPath) and "" in file.name.split("/"):
        raise PartitionError(f"{file.location}: its name has an empty part, which no file can have; rename the object")


def check_apart(source: FileLocation, output: FileLocation) -> None:
    """Raise PartitionError if files written below the folder `output` would be listed as partitions of `source`."""
    if is_same_location(source, output) or _would_list(source, output):
        raise PartitionError(
            f"the output {output} lies in the source {source}, whose partitions its files would become: "
            "choose another folder"
        )


def linked_folders(source: FileLocation, files: Sequence[PartitionFile]) -> tuple[Path, ...]:
    """Return the folders outside the folder `source` in which its files lie, since links lead there."""
    if not isinstance(source, Path) or not source.is_dir():
        return ()
    folders = {file.path.parent for file in files if isinstance(file.path, Path)}
    base, resolved = source.resolve(), sorted(folder.resolve() for folder in folders)
    return tuple(folder for folder in resolved if not folder.is_relative_to(base))


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
    """Return the Arrow schema from the file's footer, and the keys of its folders as columns.

    Raises PartitionError if the file is not Parquet.
    """
    with open_partition(partition, FOOTER_BYTES) as opened:
        return opened.arrow_schema


def map_footers(read: Callable[[PartitionFile], Result], files: Sequence[PartitionFile]) -> Iterator[Result]:
    """Yield `read(file)` for each file, in order; reads several footers concurrently, since object stores are slow."""
    if len(files) <= 1:
        yield from map(read, files)
        return
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="footers") as pool:
        for _, result in zip(ACTIVITY.counted(files, "the footers of partitions"), pool.map(read, files), strict=True):
            yield result


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
    """Yield the rows in order, at most BATCH_ROWS at a time, with the named columns (all if None).

    Columns may be keys of the partition's folders, and lags. Raises PartitionError if the file cannot be decoded, or
    contradicts its folders.
    """
    with open_partition(partition) as opened:
        yield from opened.batches(columns)


class OpenPartition:
    """A partition that is open for reading: its footer is read once."""

    def __init__(self, partition: PartitionFile, file: Any) -> None:  # noqa: ANN401 (pyarrow has no types)
        self._partition, self._file = partition, file

    @property
    def n_rows(self) -> int:
        """The number of rows according to the footer."""
        return int(self._file.metadata.num_rows)

    @property
    def arrow_schema(self) -> "pa.Schema":
        """The Arrow schema from the footer, with the keys of the folders and the lags; as `read_arrow_schema`."""
        schema, lags = add_fields(self._file.schema_arrow, self._partition.keys), self._partition.lags
        return schema if lags is None else lags.add_fields(schema, str(self._partition.path))

    def batches(self, columns: list[str] | None) -> Iterator["pa.RecordBatch"]:
        """Yield the rows as `read_batches` does."""
        lags = self._partition.lags
        if lags is None:
            yield from self._own_batches(columns)
            return
        rows = self._earlier_rows(lags, LaggedRows(lags, self.arrow_schema, str(self._partition.path)))
        for batch in self._own_batches(None if columns is None else lags.needed(columns)):
            added = rows.add(batch)
            yield added if columns is None else added.select([name for name in columns if name in added.schema.names])

    def _earlier_rows(self, lags: Lags, rows: LaggedRows) -> LaggedRows:
        """Return the last rows of each series in the partitions before this one, as far as they are needed."""
        keys = None if lags.key is None else distinct_keys(self._own_batches([lags.key]), lags.key)
        for file in self._partition.before:
            if rows.suffices(keys):
                break
            with open_partition(file) as opened:
                earlier = LaggedRows(lags, rows.schema, str(file.path))
                lags.add_fields(opened.arrow_schema, str(file.path))
                for batch in opened.batches(lags.sources):
                    earlier.follow(batch)
            rows.precede(earlier)
        return rows

    def _own_batches(self, columns: list[str] | None) -> Iterator["pa.RecordBatch"]:
        """Yield the rows with columns of the file and its folders."""
        import pyarrow as pa

        path = self._partition.path
        keys = [key for key in self._partition.keys if columns is None or key.name in columns]
        rows = 0
        try:
            batches = self._file.iter_batches(batch_size=BATCH_ROWS, columns=columns, use_threads=False)
            for batch in ACTIVITY.each(batches, f"rows of {path}"):
                yield add_columns(batch, keys, str(path), rows)
                rows += batch.num_rows
            self._check_rows(rows)
        except StoreError:  # the file may be intact: it could not be fetched
            raise
        except (pa.ArrowException, OSError) as error:
            raise PartitionError(f"{path} cannot be decoded: {_words(error)}; write it again or remove it") from error

    def _check_rows(self, rows: int) -> None:
        """Raise PartitionError unless all rows were read: pyarrow ends silently where a page is damaged."""
        if rows != self.n_rows:
            raise PartitionError(
                f"{self._partition.path} is damaged: {rows:,} rows can be read, and its footer says {self.n_rows:,}; "
                "write it again or remove it"
            )


@contextmanager
def open_partition(partition: PartitionFile, ahead_bytes: int = AHEAD_BYTES) -> Iterator[OpenPartition]:
    """Open a partition; raises PartitionError if the file is not Parquet."""
    with _open(partition, ahead_bytes) as file:
        yield OpenPartition(partition, file)


def _remedy(partition: PartitionFile) -> str:
    if partition.path.name.endswith(".parquet"):
        return "write it again or remove it"
    return "only Parquet is read: convert it, a table of text by pyarrow.csv.read_csv and pyarrow.parquet.write_table"


def _open(partition: PartitionFile, ahead_bytes: int = AHEAD_BYTES) -> Any:  # noqa: ANN401 (pyarrow has no types)
    import pyarrow as pa

    if partition.size_bytes == 0:
        raise PartitionError(
            f"{partition.path} is empty (0 bytes): it is not a Parquet file; write it again or remove it"
        )
    try:
        with ACTIVITY.under_way(f"{partition.path} to be opened"):
            return open_parquet(partition.path, ahead_bytes)
    except StoreError:
        raise
    except UnicodeDecodeError as error:
        raise PartitionError(
            f"{partition.path} has a column whose name is no UTF-8 ({error}); write it again with another name"
        ) from error
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: an extension type reads its parameters
        raise PartitionError(
            f"{partition.path} is not a readable Parquet file: {_words(error)}; {_remedy(partition)}"
        ) from error


def _words(error: Exception) -> str:
    """Return what Arrow says in one line, without a full stop; in our words where that is long."""
    words = " ".join(str(error).split()).rstrip(".")
    return "it does not end as one does, so it was cut short or is another format" if "magic bytes" in words else words


def _would_list(source: FileLocation, output: FileLocation) -> bool:
    """Return whether the source is a folder or prefix that contains the output, under a name that is not hidden."""
    if isinstance(source, Path) and isinstance(output, Path):
        source, output = source.resolve(), output.resolve()
        return (
            source.is_dir()
            and source in output.parents
            and not any(map(is_hidden_folder, output.relative_to(source).parts))
        )
    if isinstance(source, Path) or isinstance(output, Path):
        return False
    below = output.path.removeprefix(f"{source.path}/")
    return (
        source.parsed.shares_bucket(output.parsed)
        and below != output.path
        and not any(map(is_hidden_folder, below.split("/")))
    )
