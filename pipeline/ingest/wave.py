"""One wave of an ingest: some partitions become segments, and they and the ledger are committed together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Self

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.policies import ERROR, Policies
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.dataset.range_checks import check_range
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.ingest.partition_task import Ingested, IngestTask, Refused, ingest_partitions
from ridgestream.stores.catalog.ledger import Ledger, Quarantined, read_ledger, write_ledger
from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.parquet.partitions import PartitionFile, natural_key
from ridgestream.stores.repository.repository import Store, WriteSession
from ridgestream.stores.requests.activity import ACTIVITY
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.pack_merging import drop_segments, merge_packs
from ridgestream.stores.segments.segments import Segments

if TYPE_CHECKING:
    import zarr


@dataclass(frozen=True)
class WaveResult:
    """The state after one or several waves."""

    ledger: Ledger
    """The ledger of the last commit."""
    missing: Mapping[str, int]
    """How many values each column of the new partitions lacks, of those that lack any."""

    def then(self, later: Self) -> Self:
        """Return the result of these waves and a later one."""
        missing = dict(self.missing)
        for column, count in later.missing.items():
            missing[column] = missing.get(column, 0) + count
        return type(self)(later.ledger, missing)


@dataclass(frozen=True)
class WaveWriter:
    """Ingests waves of partitions into a store."""

    store: Store
    """The store."""
    schema: Schema
    """Its schema."""
    executor: Executor
    """Runs the tasks."""
    report: Reporter
    """Receives the progress."""
    feature_map: FeatureMap | None
    """The feature map of the model that will learn the partitions, if there is one."""
    policies: Policies
    """Decide about partitions that cannot be used."""
    rebuilt: frozenset[str]
    """Partitions whose older segment is replaced."""

    def commit_names(self, committed: Ledger, ledger: Ledger) -> None:
        """Commit a ledger with new names of partitions; `committed` is the ledger of the last commit."""
        with self.store.write("Follow renamed partitions") as writing:
            self._check_not_overtaken(writing, committed)
            write_ledger(writing.root, ledger)

    def ingest_wave(self, committed: Ledger, ledger: Ledger, groups: Sequence[tuple[PartitionFile, ...]]) -> WaveResult:
        """Commit the files' segments and the ledger with them; `committed` is the ledger of the last commit.

        Each group of files is a task. Raises PartitionError for a partition that cannot be used, unless the policy is
        `quarantine`, and StoreError if another writer has committed in the meantime.
        """
        firsts = accumulate(map(len, groups), initial=ledger.next_segment)
        tasks = [IngestTask(first, files, self.schema) for first, files in zip(firsts, groups, strict=False)]
        count, first_name = sum(map(len, groups)), groups[0][0].name
        with self.store.write(f"Ingest {count} partitions from {first_name}") as writing:
            self._check_not_overtaken(writing, committed)
            results, forks = [], {}
            for result in self.executor.run(ingest_partitions, tasks, writing.fork(), self.policies):
                results += [self._checked(outcome) for outcome in result.partitions]
                forks[id(result.fork)] = result.fork
            writing.merge(forks.values())
            ledger = self._updated(writing.root, ledger, results)
            merge_packs(writing.root)
            write_ledger(writing.root, ledger)
        return WaveResult(ledger, _sum_missing(results))

    def _check_not_overtaken(self, writing: WriteSession, committed: Ledger) -> None:
        if read_ledger(writing.root).entries != committed.entries:
            raise StoreError(
                f"another writer has committed to the store {self.store.location.text} meanwhile; run the job again"
            )

    def _checked(self, result: Ingested | Refused) -> Ingested | Refused:
        """Return the result of a task; a partition that the model cannot learn becomes a refused one."""
        if isinstance(result, Refused):
            return result
        try:
            self._check_learnable(result)
        except PartitionError as error:
            if self.policies.on_bad == ERROR:
                raise
            return Refused(result.file, str(error), result)
        self.report.advance(result.entry.rows, partition=result.entry.name)
        return result

    def _check_learnable(self, result: Ingested) -> None:
        """Raise PartitionError for a category or class that the model lacks, or a value too far out for it."""
        if self.feature_map is None:
            return
        try:
            if self.policies.unseen_categories == ERROR:
                self.feature_map.check_categories(result.categories)
            self.feature_map.target.check_classes(result.classes)
            check_range(result.moments, self.feature_map, self.schema.targets)
        except InputError as error:
            raise PartitionError(f"{result.entry.name} is not ingested: {error}") from error

    def _updated(self, root: "zarr.Group", ledger: Ledger, results: Sequence[Ingested | Refused]) -> Ledger:
        """Return the ledger after the wave; drops the segments that it no longer names."""
        ingested = [result for result in results if isinstance(result, Ingested)]
        refused = [result for result in results if isinstance(result, Refused)]
        replaced = {result.entry.name for result in ingested} & self.rebuilt
        dropped = [result.written.entry for result in refused if result.written]
        dropped += [entry for entry in ledger.entries if entry.name in replaced]
        drop_segments(root, [entry.segment for entry in dropped])
        ledger = ledger.without(replaced).with_entries(
            [r.entry for r in ingested], [r.categories for r in ingested], [r.classes for r in ingested]
        )
        quarantined = [_quarantined(result) for result in refused]
        ledger = ledger.with_quarantined(quarantined, released=[r.entry.name for r in ingested])
        return _in_order_of_names(root, ledger) if self.rebuilt else ledger


def _sum_missing(results: Sequence[Ingested | Refused]) -> dict[str, int]:
    """Return how many values each column of the ingested partitions lacks."""
    missing: dict[str, int] = {}
    for result in results:
        for column, count in result.missing.items() if isinstance(result, Ingested) else ():
            missing[column] = missing.get(column, 0) + count
    return missing


def _quarantined(refused: Refused) -> Quarantined:
    file = refused.file
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return Quarantined(file.name, refused.reason, file.size_bytes, file.modified_ns, since)


def _in_order_of_names(root: "zarr.Group", ledger: Ledger) -> Ledger:
    """Return the ledger that one ingest of all its partitions would have written."""
    entries = sorted(ledger.entries, key=lambda entry: natural_key(entry.name))
    segments = Segments(root)
    facts = [segments[entry.segment].facts() for entry in ACTIVITY.counted(entries, "the categories of partitions")]
    empty = replace(ledger, entries=(), categories=(), classes=())
    return empty.with_entries(entries, [f.categories for f in facts], [f.present_classes for f in facts])
