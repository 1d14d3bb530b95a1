"""How the source differs from the ledger: by names, sizes and time stamps, and by values where these may mislead."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ridgestream.pipeline.base.executor import Executor
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, Quarantined
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.errors.transient import is_transient
from ridgestream.stores.parquet.partitions import PartitionFile, count_rows, map_footers
from ridgestream.stores.schema.schema import Schema


@dataclass(frozen=True)
class SourceDiff:
    """How the source's files differ from the ledger, in the order of the files or of the ledger."""

    fresh: tuple[PartitionFile, ...]
    """Files that are neither ingested nor in quarantine."""
    touched: tuple[PartitionFile, ...]
    """Files that were ingested with another size or time stamp."""
    gone: tuple[LedgerEntry, ...]
    """Partitions of which the source no longer has a file of that name."""
    quarantined: tuple[Quarantined, ...]
    """Files that are in quarantine and stay there."""


def diff_source(ledger: Ledger, files: Sequence[PartitionFile]) -> SourceDiff:
    """Compare the files with the ledger by names, sizes and time stamps; nothing is read."""
    known = ledger.by_name()
    quarantined = {each.name: each for each in ledger.quarantined}
    names = {file.name for file in files}
    staying = {file.name for file in files if file.name in quarantined and _stays(quarantined[file.name], file)}
    return SourceDiff(
        fresh=tuple(file for file in files if file.name not in known and file.name not in staying),
        touched=tuple(file for file in files if file.name in known and not known[file.name].looks_like(file)),
        gone=tuple(entry for entry in ledger.entries if entry.name not in names),
        quarantined=tuple(each for each in ledger.quarantined if each.name in staying),
    )


def _stays(quarantined: Quarantined, file: PartitionFile) -> bool:
    """Return whether a file stays in quarantine: until a user releases it or, if none put it there, it is rewritten."""
    unchanged = (quarantined.size_bytes, quarantined.modified_ns) == (file.size_bytes, file.modified_ns)
    return quarantined.by_hand or quarantined.entry is not None or unchanged


@dataclass(frozen=True)
class FileContent:
    """What a file holds now."""

    file: PartitionFile
    """The file."""
    content_sha256: str | None
    """The hash of its decoded values, None if it cannot be read."""
    error: str = ""
    """Why it cannot be read."""


@dataclass(frozen=True)
class SourceContents:
    """The contents of the files whose names, sizes and time stamps may mislead."""

    touched: tuple[FileContent, ...]
    """Those of ingested files with another size or time stamp."""
    rename_candidates: tuple[FileContent, ...]
    """Those of fresh files that may be partitions under a new name."""


Hash = Callable[[PartitionFile, Schema], str]
"""Reads a file and returns a hash of its decoded values."""


def read_contents(diff: SourceDiff, schema: Schema, executor: Executor, content_of: Hash) -> SourceContents:
    """Read the touched files, and the fresh ones that may be renamed partitions, once each."""
    return SourceContents(
        touched=tuple(executor.run(read_content, diff.touched, schema, content_of)),
        rename_candidates=tuple(executor.run(read_content, find_rename_candidates(diff), schema, content_of)),
    )


def read_content(file: PartitionFile, schema: Schema, content_of: Hash) -> FileContent:
    """Return a file's content or, unless a retry may help, why it cannot be read."""
    try:
        return FileContent(file, content_of(file, schema))
    except PartitionError as error:
        if is_transient(error):
            raise
        return FileContent(file, None, str(error))


def find_rename_candidates(diff: SourceDiff) -> list[PartitionFile]:
    """Return the fresh files with the size and number of rows of a partition that is gone; reads their footers."""
    gone = {(entry.size_bytes, entry.rows_of_file) for entry in diff.gone if entry.rows_of_file}
    sizes = {size for size, _ in gone}
    alike = [file for file in diff.fresh if file.size_bytes in sizes]
    return [file for file in alike if (file.size_bytes, usable_rows(file)) in gone]


def count_usable_rows(files: Sequence[PartitionFile]) -> list[int]:
    """Return the number of rows of each file by its footer; 0 for a file without a readable one."""
    return list(map_footers(usable_rows, files))


def usable_rows(file: PartitionFile) -> int:
    """Return the number of rows of a file by its footer; 0 without a readable one."""
    try:
        return count_rows(file)
    except PartitionError:
        return 0
