"""What a look at the source finds beside the ledger: partitions that are new, touched, changed, renamed or gone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.policies import ERROR, IGNORE
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, Quarantined
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.errors.transient import is_transient
from ridgestream.stores.parquet.partitions import PartitionFile, count_rows, map_footers
from ridgestream.stores.schema.schema import Schema


@dataclass(frozen=True)
class Arrivals:
    """The files of a source, as the ledger knows them; each in the order in which files or entries are listed."""

    fresh: tuple[PartitionFile, ...]
    """Those that are neither taken in nor in quarantine."""
    touched: tuple[PartitionFile, ...]
    """Those that were taken in with another size or time stamp."""
    gone: tuple[LedgerEntry, ...]
    """The partitions that the source no longer holds."""
    rejected: tuple[Quarantined, ...]
    """What is in quarantine and stays there."""


def sort_arrivals(ledger: Ledger, files: Sequence[PartitionFile]) -> Arrivals:
    """Compare the files with the ledger by names, sizes and time stamps; nothing is read."""
    known = ledger.by_name()
    rejected = {each.name: each for each in ledger.quarantined}
    names = {file.name for file in files}
    staying = {file.name for file in files if file.name in rejected and _stays(rejected[file.name], file)}
    return Arrivals(
        tuple(file for file in files if file.name not in known and file.name not in staying),
        tuple(file for file in files if file.name in known and not known[file.name].looks_like(file)),
        tuple(entry for entry in ledger.entries if entry.name not in names),
        tuple(each for each in ledger.quarantined if each.name in staying),
    )


def _stays(rejected: Quarantined, file: PartitionFile) -> bool:
    """Tell whether a file is to stay in quarantine: until a user takes it back, or until it is written again."""
    unchanged = (rejected.size_bytes, rejected.modified_ns) == (file.size_bytes, file.modified_ns)
    return rejected.by_hand or rejected.entry is not None or unchanged


@dataclass(frozen=True)
class Look:
    """What a file that was taken in before holds now."""

    file: PartitionFile
    """The file."""
    content_sha256: str | None
    """The hash of its decoded values, None where it cannot be read."""
    error: str = ""
    """Why it cannot be read."""


Hash = Callable[[PartitionFile, Schema], str]
"""Reads a file through and returns a hash of its decoded values."""


def look_again(file: PartitionFile, schema: Schema, content_of: Hash) -> Look:
    """Read a file through and return its content's hash, or what stands in the way, unless it is what may pass."""
    try:
        return Look(file, content_of(file, schema))
    except PartitionError as error:
        if is_transient(error):
            raise
        return Look(file, None, str(error))


def find_changed(looks: Sequence[Look], ledger: Ledger, policy: str) -> tuple[PartitionFile, ...]:
    """Return the files that hold other values than they were taken in with.

    Raises PartitionError for the first of them if the policy is `error`, or if it is `rebuild` and the file cannot be
    read.
    """
    known = ledger.by_name()
    changed = [look for look in looks if look.content_sha256 != known[look.file.name].content_sha256]
    for look in changed:
        entry = known[look.file.name]
        if look.content_sha256 is None and policy != IGNORE:
            raise PartitionError(
                f"{look.error}; it was taken in with {entry.rows:,} rows, which stay: put it back, or take it away"
            )
        if policy == ERROR:
            raise PartitionError(
                f"{look.file.path} was ingested with other values (content hash {entry.content_sha256[:12]}, now "
                f"{str(look.content_sha256)[:12]}); its rows stay as they were learned: put the file back, give the "
                'new one another name, or say what is to become of it: source.on_changed = "ignore" or "rebuild"'
            )
    return tuple(look.file for look in changed)


def retouch(ledger: Ledger, looks: Sequence[Look]) -> Ledger:
    """Return the ledger with the sizes and time stamps of unchanged files, so that they are not read again."""
    now = {look.file.name: look for look in looks}

    def touched(entry: LedgerEntry) -> LedgerEntry:
        look = now.get(entry.name)
        if look is None or look.content_sha256 != entry.content_sha256:
            return entry
        return replace(entry, size_bytes=look.file.size_bytes, modified_ns=look.file.modified_ns)

    return replace(ledger, entries=tuple(map(touched, ledger.entries)))


def find_renamed(arrivals: Arrivals, schema: Schema, executor: Executor, content_of: Hash) -> dict[str, PartitionFile]:
    """Return the new file of each partition that is gone under its name and there under another.

    Only files of the same size and number of rows are read.
    """
    gone = {(entry.size_bytes, entry.rows_of_file) for entry in arrivals.gone if entry.rows_of_file}
    alike = [file for file in arrivals.fresh if file.size_bytes in {size for size, _ in gone}]
    alike = [file for file in alike if (file.size_bytes, usable_rows(file)) in gone]
    contents = {entry.content_sha256: entry.name for entry in reversed(arrivals.gone)}
    renamed: dict[str, PartitionFile] = {}
    for look in executor.run(look_again, alike, schema, content_of):
        name = contents.get(look.content_sha256 or "")
        if name is not None:
            renamed.setdefault(name, look.file)
    return renamed


def rename(ledger: Ledger, renamed: dict[str, PartitionFile]) -> Ledger:
    """Return the ledger with the new names."""
    return replace(
        ledger,
        entries=tuple(
            replace(entry, name=file.name, size_bytes=file.size_bytes, modified_ns=file.modified_ns) if file else entry
            for entry, file in ((entry, renamed.get(entry.name)) for entry in ledger.entries)
        ),
    )


def count_usable_rows(files: Sequence[PartitionFile]) -> list[int]:
    """Return the rows of each file by its footer; none of a file without a readable one."""
    return list(map_footers(usable_rows, files))


def usable_rows(file: PartitionFile) -> int:
    """Return the rows of a file by its footer; none without a readable one."""
    try:
        return count_rows(file)
    except PartitionError:
        return 0
