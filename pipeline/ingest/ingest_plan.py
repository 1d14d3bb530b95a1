"""Decides what an ingest will do, from the differences of source and ledger and the policies; touches no disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ridgestream.pipeline.base.policies import ERROR, IGNORE, REBUILD, Policies
from ridgestream.pipeline.ingest.source_diff import FileContent, SourceContents, SourceDiff
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, Quarantined
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.partitions import PartitionFile


@dataclass(frozen=True)
class IngestPlan:
    """The partitions to ingest, and the other changes to the ledger and findings to report."""

    files: tuple[PartitionFile, ...]
    """The partitions to ingest, fresh or rebuilt, in their order."""
    ledger: Ledger
    """The ledger before them, with the new names and time stamps of files that hold the same values as before."""
    rebuilt: tuple[str, ...]
    """Partitions that hold other values than in the store, and whose segment will be replaced."""
    changed: tuple[str, ...]
    """Partitions that hold other values than in the store, which is ignored."""
    renamed: tuple[tuple[str, str], ...]
    """Partitions with a new name: the old one, the new one."""
    gone: tuple[str, ...]
    """Partitions of the ledger that the source no longer holds under any name."""
    quarantined: tuple[Quarantined, ...]
    """Files that are in quarantine and stay there."""

    def added(self, ledger: Ledger) -> tuple[LedgerEntry, ...]:
        """Return the entries of a later ledger that this plan added."""
        return tuple(entry for entry in ledger.entries if entry.segment >= self.ledger.next_segment)


def plan_ingest(
    ledger: Ledger,
    files: Sequence[PartitionFile],
    diff: SourceDiff,
    contents: SourceContents,
    policies: Policies,
) -> IngestPlan:
    """Return what an ingest of the files into a store with this ledger will do.

    `diff` compares the two by names, sizes and time stamps, `contents` by values where these may mislead. Raises
    PartitionError for a file whose values have changed, unless the policy `on_changed` allows it.
    """
    changed = find_changed(contents.touched, ledger, policies.on_changed)
    renamed = find_renamed(diff, contents.rename_candidates)
    rebuilt = changed if policies.on_changed == REBUILD else ()
    wanted = {*rebuilt, *(file.name for file in diff.fresh)} - {file.name for file in renamed.values()}
    return IngestPlan(
        files=tuple(file for file in files if file.name in wanted),
        ledger=with_new_names(with_new_times(with_identities(ledger, files), contents.touched), renamed),
        rebuilt=rebuilt,
        changed=changed if policies.on_changed == IGNORE else (),
        renamed=tuple((old, file.name) for old, file in renamed.items()),
        gone=tuple(entry.name for entry in diff.gone if entry.name not in renamed),
        quarantined=diff.quarantined,
    )


def find_changed(contents: Sequence[FileContent], ledger: Ledger, policy: str) -> tuple[str, ...]:
    """Return the names of the files that hold other values than when they were ingested.

    Raises PartitionError for the first of them if the policy is `error`, or if it is `rebuild` and the file cannot be
    read.
    """
    known = ledger.by_name()
    changed = [each for each in contents if each.content_sha256 != known[each.file.name].content_sha256]
    for content in changed:
        _check_changed(content, known[content.file.name], policy)
    return tuple(content.file.name for content in changed)


def _check_changed(content: FileContent, entry: LedgerEntry, policy: str) -> None:
    if content.content_sha256 is None and policy != IGNORE:
        raise PartitionError(
            f"{content.error}; it was ingested with {entry.rows:,} rows, which stay in the store: restore the file, or "
            "remove it"
        )
    if policy == ERROR:
        raise PartitionError(
            f"{content.file.path} was ingested with other values (content hash {entry.content_sha256[:12]}, now "
            f"{str(content.content_sha256)[:12]}); its rows stay as they were learned: restore the file, give the "
            'new one another name, or choose a policy for changed files: source.on_changed = "ignore" or "rebuild"'
        )


def find_renamed(diff: SourceDiff, candidates: Sequence[FileContent]) -> dict[str, PartitionFile]:
    """Return the file of each partition that is gone under its old name and present under another, by the old name."""
    names = {entry.content_sha256: entry.name for entry in reversed(diff.gone)}
    renamed: dict[str, PartitionFile] = {}
    for content in candidates:
        old = names.get(content.content_sha256 or "")
        if old is not None:
            renamed.setdefault(old, content.file)
    return renamed


def with_identities(ledger: Ledger, files: Sequence[PartitionFile]) -> Ledger:
    """Return the ledger with the identities of the files of an earlier release's entries, which had none."""
    by_name = {file.name: file for file in files}

    def updated(entry: LedgerEntry) -> LedgerEntry:
        file = by_name.get(entry.name)
        return entry.at(file) if file is not None and not entry.identity and entry.looks_like(file) else entry

    return replace(ledger, entries=tuple(map(updated, ledger.entries)))


def with_new_times(ledger: Ledger, contents: Sequence[FileContent]) -> Ledger:
    """Return the ledger with the present sizes and time stamps of unchanged files, so that they are not read again."""
    by_name = {content.file.name: content for content in contents}

    def updated(entry: LedgerEntry) -> LedgerEntry:
        content = by_name.get(entry.name)
        if content is None or content.content_sha256 != entry.content_sha256:
            return entry
        return entry.at(content.file)

    return replace(ledger, entries=tuple(map(updated, ledger.entries)))


def with_new_names(ledger: Ledger, renamed: Mapping[str, PartitionFile]) -> Ledger:
    """Return the ledger with the new names of renamed partitions."""

    def updated(entry: LedgerEntry) -> LedgerEntry:
        file = renamed.get(entry.name)
        return entry if file is None else entry.at(file)

    return replace(ledger, entries=tuple(map(updated, ledger.entries)))
