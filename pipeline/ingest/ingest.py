"""Ingest: Parquet partitions that the store lacks become segments of it, each once, several to a commit.

A partition is read twice: first to check every value and to learn its content hash, moments and float width, so that
nothing is written of a partition that cannot be used; then to write it, chunk by chunk. Memory is free of its size.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.policies import ERROR, IGNORE, REBUILD, Policies
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.dataset.range_checks import check_range
from ridgestream.pipeline.dataset.task_label import needs_of
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.ingest.partition_profile import content_of, decode_partition, survey_partition
from ridgestream.pipeline.ingest.row_filter import Sieve
from ridgestream.pipeline.ingest.source_diff import (
    find_changed,
    find_renamed,
    look_again,
    rename,
    retouch,
    sort_arrivals,
    usable_rows,
)
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, Quarantined, read_ledger, write_ledger
from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.errors.transient import is_transient
from ridgestream.stores.errors.translation import store_errors
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import (
    PartitionFile,
    check_unchanged,
    count_rows,
    natural_key,
    read_arrow_schema,
)
from ridgestream.stores.repository.repository import Store, WriteSession
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.schema import Schema, SchemaRequest, check_request, infer_schema
from ridgestream.stores.segments.segments import Segment, drop_segment, write_segment

if TYPE_CHECKING:
    import icechunk
    import zarr

PARTITIONS_A_COMMIT = 16
"""Partitions that become visible together; a killed ingest repeats at most these."""


@dataclass(frozen=True)
class IngestTask:
    """One partition to take in."""

    segment: int
    """The number that its segment is to have."""
    file: PartitionFile
    """The file."""
    schema: Schema
    """The store's schema."""


@dataclass(frozen=True)
class Ingested:
    """What came of one partition."""

    entry: LedgerEntry
    """Its line in the ledger."""
    file: PartitionFile
    """The file."""
    categories: tuple[tuple[str, ...], ...]
    """Its category tables."""
    classes: tuple[Label, ...]
    """Its classes, where each is learned."""
    missing: dict[str, int]
    """How many values each column lacks, of those that lack any."""
    moments: npt.NDArray[np.float64]
    """The moments of its numeric columns and targets."""
    fork: "icechunk.ForkSession"
    """The session that holds its segment."""


@dataclass(frozen=True)
class Refused:
    """A partition that is not taken in."""

    file: PartitionFile
    """The file."""
    reason: str
    """Why."""


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did."""

    added: tuple[LedgerEntry, ...]
    """The partitions that are new in the store, or taken in anew."""
    ignored_columns: tuple[str, ...]
    """Columns of the newest partition that the schema does not name; they are not read."""
    missing: tuple[str, ...]
    """Partitions of the ledger that the source no longer holds; their rows stay in the store."""
    twins: tuple[tuple[str, str], ...]
    """New partitions with exactly the values of an older one, each with its name: a file copied."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Partitions that have another name now, each with its old name before."""
    changed: tuple[str, ...] = ()
    """Partitions that hold other values than they were taken in with, which is ignored."""
    rebuilt: tuple[str, ...] = ()
    """Partitions that held other values and were taken in anew."""
    rejected: tuple[Quarantined, ...] = ()
    """What was put into quarantine now."""
    quarantined: tuple[Quarantined, ...] = ()
    """What was in quarantine before and stays there."""
    missing_values: dict[str, int] = field(default_factory=dict)
    """How many values each column of the new partitions lacks, of those that lack any."""


def ingest(
    store: Store,
    files: tuple[PartitionFile, ...],
    request: SchemaRequest,
    executor: Executor,
    report: Reporter,
    feature_map: FeatureMap | None = None,
    policies: Policies | None = None,
) -> IngestReport:
    """Take in the files that the ledger lacks, in their order; rows and ledger change by the same commits.

    `feature_map` is that of a model that is to learn them: a category or class that it lacks, or a value too far out
    for it, is refused before the commit. `policies` (by default all errors) say what becomes of files that have
    changed, or cannot be used.

    Raises PartitionError for a file that cannot be used, or has other values than when it was taken in, StoreError if
    the request contradicts the store's schema. What was committed before stands.
    """
    policies = policies or Policies()
    kept = read_ledger(store.root())
    rejected_before = frozenset(kept.quarantined)
    schema = find_schema(kept, files, request, policies, store.location.text, report)
    ledger = replace(kept, schema=schema)
    arrivals = sort_arrivals(ledger, files)
    looks = list(executor.run(look_again, arrivals.touched, schema, content_of))
    changed = find_changed(looks, ledger, policies.on_changed)
    renamed = find_renamed(arrivals, schema, executor, content_of)
    ledger = rename(retouch(ledger, looks), renamed)
    if renamed:
        kept = _commit_names(store, kept, ledger)
    rebuilt = tuple(file.name for file in changed) if policies.on_changed == REBUILD else ()
    wanted = {*rebuilt, *(file.name for file in arrivals.fresh)} - {file.name for file in renamed.values()}
    fresh = [file for file in files if file.name in wanted]
    first_new = ledger.next_segment
    known = None if rebuilt else feature_map  # a model that has learned what changed begins anew, by a map of its own
    wave = _Wave(store, schema, executor, report, known, policies, frozenset(rebuilt))
    executor.admit(needs_of(fresh))
    report.begin("ingest", None, partitions=len(fresh))
    for start in range(0, len(fresh), PARTITIONS_A_COMMIT):
        kept = ledger = wave.take_in(kept, ledger, fresh[start : start + PARTITIONS_A_COMMIT])
    added = tuple(entry for entry in ledger.entries if entry.segment >= first_new)
    report.end(partitions=len(added), rows=sum(entry.rows for entry in added), **_dropped(added))
    return IngestReport(
        added,
        _unnamed_columns(files, added, schema),
        tuple(entry.name for entry in arrivals.gone if entry.name not in renamed),
        _find_twins(ledger, first_new),
        tuple((old, file.name) for old, file in renamed.items()),
        tuple(file.name for file in changed) if policies.on_changed == IGNORE else (),
        rebuilt,
        tuple(each for each in ledger.quarantined if each not in rejected_before),
        arrivals.rejected,
        wave.missing,
    )


def find_schema(
    ledger: Ledger,
    files: tuple[PartitionFile, ...],
    request: SchemaRequest,
    policies: Policies,
    store: str,
    report: Reporter,
) -> Schema:
    """Return the ledger's schema, inferred from the first file with rows if nothing was taken in before.

    Raises StoreError, which names the place `store`, if the request contradicts it, PartitionError if the file has
    other columns or cannot be read.
    """
    if ledger.schema is not None:
        check_request(ledger.schema, request, store)
        return ledger.schema
    rows_of = count_rows if policies.on_bad == ERROR else usable_rows
    first = next((file for file in files if rows_of(file)), files[0])  # without rows, types may be missing
    arrow = read_arrow_schema(first)
    schema = infer_schema(request, arrow, str(first.path))
    absent = [name for name in request.ignore if name not in arrow.names]
    if absent:
        report.warn(events.INGEST_IGNORED_COLUMNS_ABSENT, columns=", ".join(absent))
    return schema


def _commit_names(store: Store, kept: Ledger, ledger: Ledger) -> Ledger:
    with store.write("Follow renamed partitions") as writing:
        _check_not_overtaken(writing, kept, store)
        write_ledger(writing.root, ledger)
    return ledger


def _check_not_overtaken(writing: WriteSession, kept: Ledger, store: Store) -> None:
    if read_ledger(writing.root).entries != kept.entries:
        raise StoreError(
            f"another writer has committed to the store {store.location.text} meanwhile; run the job again"
        )


def _dropped(entries: tuple[LedgerEntry, ...]) -> dict[str, int]:
    """Return how many rows were left out, to be told; nothing if none was."""
    dropped = sum(entry.dropped for entry in entries)
    return {"dropped": dropped} if dropped else {}


def ingest_partition(task: IngestTask, fork: "icechunk.ForkSession", policies: Policies) -> Ingested | Refused:
    """Write one partition as a segment into a fork of the session; the same task gives the same segment again.

    With the policy `quarantine`, one that cannot be used is returned as refused; else PartitionError is raised.
    """
    import zarr

    try:
        survey = survey_partition(task.file, task.schema, policies.missing)
    except PartitionError as error:
        if policies.on_bad == ERROR or is_transient(error):
            raise
        return Refused(task.file, str(error))
    root = zarr.open_group(fork.store, mode="a")
    decoder = Decoder(task.schema, str(task.file.path), missing=policies.missing)
    rows = map(Sieve(decoder).keep, decode_partition(task.file, decoder))
    write_segment(root, task.segment, survey.layout, rows, survey.facts)
    check_unchanged(task.file)
    file, rows_kept = task.file, survey.layout.rows
    entry = LedgerEntry(
        task.segment,
        file.name,
        file.size_bytes,
        file.modified_ns,
        survey.content_sha256,
        rows_kept,
        survey.dropped,
    )
    facts = survey.facts
    return Ingested(entry, file, facts.categories, facts.present_classes, survey.missing, facts.moments, fork)


@dataclass(frozen=True)
class _Wave:
    """What the waves of an ingest have in common: some partitions each, and one commit."""

    store: Store
    schema: Schema
    executor: Executor
    report: Reporter
    feature_map: FeatureMap | None
    policies: Policies
    rebuilt: frozenset[str]
    missing: dict[str, int] = field(default_factory=dict)

    def take_in(self, kept: Ledger, ledger: Ledger, files: list[PartitionFile]) -> Ledger:
        """Commit the files' segments and a ledger that has them; `kept` is the ledger of the last commit."""
        place, first = f"the store {self.store.location.text}", ledger.next_segment
        tasks = [IngestTask(first + i, file, self.schema) for i, file in enumerate(files)]
        with self.store.write(f"Ingest {len(files)} partitions from {files[0].name}") as writing:
            _check_not_overtaken(writing, kept, self.store)
            with store_errors(place):
                shared = writing.session.fork()
            ran = self.executor.run(ingest_partition, tasks, shared, self.policies)
            results = [self._admitted(result) for result in ran]
            forks = {id(r.fork): r.fork for r in results if r.fork is not None}
            with store_errors(place):
                writing.session.merge(*forks.values())
            ledger = self._with_results(writing.root, ledger, results)
            write_ledger(writing.root, ledger)
        return ledger

    def _admitted(self, result: Ingested | Refused) -> "_Result":
        """Return what came of a partition; one that the model cannot learn is refused."""
        if isinstance(result, Refused):
            return _Result(None, result, None)
        try:
            _check_learnable(result, self.feature_map, self.policies, self.schema)
        except PartitionError as error:
            if self.policies.on_bad == ERROR:
                raise
            return _Result(result, Refused(result.file, str(error)), result.fork)
        self.report.advance(result.entry.rows, partition=result.entry.name)
        for name, count in result.missing.items():
            self.missing[name] = self.missing.get(name, 0) + count
        return _Result(result, None, result.fork)

    def _with_results(self, root: "zarr.Group", ledger: Ledger, results: "list[_Result]") -> Ledger:
        """Return the ledger after the wave; segments that no entry names any more leave the session."""
        for result in results:
            if result.refused and result.taken:
                drop_segment(root, result.taken.entry.segment)
        taken = [result.taken for result in results if result.taken and not result.refused]
        refused = [_rejection(result.refused) for result in results if result.refused]
        replaced = {r.entry.name for r in taken} & self.rebuilt
        for entry in ledger.entries:
            if entry.name in replaced:
                drop_segment(root, entry.segment)
        ledger = ledger.without(replaced).with_entries(
            [r.entry for r in taken], [r.categories for r in taken], [r.classes for r in taken]
        )
        ledger = ledger.with_quarantined(refused, released=[r.entry.name for r in taken])
        return _in_order_of_names(root, ledger) if self.rebuilt else ledger


@dataclass(frozen=True)
class _Result:
    """What came of a partition: it was taken in, refused unread, or refused after its segment was written."""

    taken: Ingested | None
    refused: Refused | None
    fork: "icechunk.ForkSession | None"


def _rejection(refused: Refused) -> Quarantined:
    file = refused.file
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return Quarantined(file.name, refused.reason, file.size_bytes, file.modified_ns, since)


def _in_order_of_names(root: "zarr.Group", ledger: Ledger) -> Ledger:
    """Return the ledger as one ingest of all its partitions would have made it."""
    entries = sorted(ledger.entries, key=lambda entry: natural_key(entry.name))
    facts = [Segment.open(root, entry.segment).facts() for entry in entries]
    anew = replace(ledger, entries=(), categories=(), classes=())
    return anew.with_entries(entries, [f.categories for f in facts], [f.present_classes for f in facts])


def _check_learnable(result: Ingested, feature_map: FeatureMap | None, policies: Policies, schema: Schema) -> None:
    """Refuse a category or class that the model lacks, and what is too far out for it."""
    if feature_map is None:
        return
    try:
        if policies.unseen_categories == ERROR:
            feature_map.check_categories(result.categories)
        feature_map.target.check_classes(result.classes)
        check_range(result.moments, feature_map, schema.targets)
    except InputError as error:
        raise PartitionError(f"{result.entry.name} is not taken in: {error}") from error


def _find_twins(ledger: Ledger, first_new: int) -> tuple[tuple[str, str], ...]:
    """Return each entry from `first_new` on, with rows, whose content an earlier entry has, too."""
    seen: dict[str, str] = {}
    twins = []
    for entry in ledger.entries:
        older = seen.setdefault(entry.content_sha256, entry.name)
        if older != entry.name and entry.segment >= first_new and entry.rows_of_file:
            twins.append((entry.name, older))
    return tuple(twins)


def _unnamed_columns(
    files: tuple[PartitionFile, ...], added: tuple[LedgerEntry, ...], schema: Schema
) -> tuple[str, ...]:
    """Return the columns of the newest partition that the schema does not name; none if none is new."""
    names = {entry.name for entry in added}
    new = [file for file in files if file.name in names]
    return schema.unused_columns(read_arrow_schema(new[-1]).names) if new else ()
