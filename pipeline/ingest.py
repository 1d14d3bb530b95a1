"""Ingest: Parquet partitions that the store lacks become segments of it, each once, several to a commit.

A partition is read twice: first to check every value and to learn its content hash, moments and float width, so that
nothing is written of a partition that cannot be used; then to write it, chunk by chunk. Memory is free of its size.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.errors import InputError
from ridgestream.pipeline.executor import Executor
from ridgestream.pipeline.features import FeatureMap
from ridgestream.pipeline.moments import Moments
from ridgestream.pipeline.reporting import Reporter
from ridgestream.pipeline.threads import one_blas_thread
from ridgestream.stores.classes import Label
from ridgestream.stores.decoding import Decoder
from ridgestream.stores.errors import PartitionError, StoreError
from ridgestream.stores.guarding import store_errors
from ridgestream.stores.ledger import Ledger, LedgerEntry, check_same_content, read_ledger, write_ledger
from ridgestream.stores.partitions import PartitionFile, check_unchanged, count_rows, read_arrow_schema, read_batches
from ridgestream.stores.repository import Store
from ridgestream.stores.rows import Rows
from ridgestream.stores.schema import Schema, SchemaRequest, check_request, infer_schema
from ridgestream.stores.segments import SegmentFacts, SegmentLayout, write_segment

if TYPE_CHECKING:
    import icechunk

PARTITIONS_A_COMMIT = 16
"""Partitions that become visible together; a killed ingest repeats at most these."""

SINGLE_TOLERANCE = 1e-6
"""float32 is exact enough for a column if it moves no value by more than this share of the column's deviation."""


@dataclass(frozen=True)
class Survey:
    """What the first reading of a partition found."""

    layout: SegmentLayout
    """What must be known to write it."""
    facts: SegmentFacts
    """Its moments and category tables."""
    content_sha256: str
    """The hash of its decoded values."""


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
    categories: tuple[tuple[str, ...], ...]
    """Its category tables."""
    classes: tuple[Label, ...]
    """Its classes, where each is learned."""
    fork: "icechunk.ForkSession"
    """The session that holds its segment."""


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did."""

    added: tuple[LedgerEntry, ...]
    """The partitions that are new in the store."""
    ignored_columns: tuple[str, ...]
    """Columns of the newest partition that the schema does not name; they are not read."""
    missing: tuple[str, ...]
    """Partitions of the ledger that the source no longer holds; their rows stay in the store."""
    twins: tuple[tuple[str, str], ...]
    """New partitions with exactly the values of an older one, each with its name: a file renamed, or copied."""


def ingest(
    store: Store,
    files: tuple[PartitionFile, ...],
    request: SchemaRequest,
    executor: Executor,
    report: Reporter,
    feature_map: FeatureMap | None = None,
) -> IngestReport:
    """Take in the files that the ledger lacks, in their order; rows and ledger change by the same commits.

    `feature_map` is that of a model that is to learn them: a category or class that it lacks is refused before the
    commit.

    Raises PartitionError for a file that cannot be used, or has other values than when it was taken in, StoreError if
    the request contradicts the store's schema. What was committed before stands.
    """
    ledger = read_ledger(store.root())
    if ledger.schema is None:
        first = next((file for file in files if count_rows(file)), files[0])  # without rows, types may be missing
        arrow = read_arrow_schema(first)
        ledger = replace(ledger, schema=infer_schema(request, arrow, str(first.path)))
        absent = [name for name in request.ignore if name not in arrow.names]
        if absent:
            report.say("columns to be ignored are not there; are they spelled right?", columns=", ".join(absent))
    else:
        check_request(ledger.schema, request, store.location.text)
    known, first_new = ledger.by_name(), ledger.next_segment
    _check_known([file for file in files if file.name in known], ledger, executor)
    fresh = [file for file in files if file.name not in known]
    report.begin("ingest", None, partitions=len(fresh))
    for start in range(0, len(fresh), PARTITIONS_A_COMMIT):
        ledger = _ingest_wave(store, ledger, fresh[start : start + PARTITIONS_A_COMMIT], executor, report, feature_map)
    added = ledger.entries[len(known) :]
    report.end(partitions=len(added), rows=sum(entry.rows for entry in added))
    names = {file.name for file in files}
    missing = tuple(n for n in known if n not in names)
    return IngestReport(added, _unnamed_columns(files, ledger), missing, _find_twins(ledger, first_new))


def survey_partition(file: PartitionFile, schema: Schema) -> Survey:
    """Read a partition through; raise PartitionError for the first thing about it that cannot be used."""
    digest, gathered = _Digest(), _Gathered(schema)
    decoder = Decoder(schema, str(file.path))
    with one_blas_thread():
        for batch in _decode(file, decoder):
            digest.update(batch)
            gathered.add(batch)
    layout = SegmentLayout(
        rows=decoder.rows,
        n_numeric=len(schema.numeric),
        n_categorical=len(schema.categorical),
        n_targets=len(schema.targets),
        single=gathered.single_is_enough(),
        weighted=schema.weight is not None,
    )
    return Survey(layout, gathered.facts(decoder), digest.hexdigest(decoder))


def ingest_partition(task: IngestTask, fork: "icechunk.ForkSession") -> Ingested:
    """Write one partition as a segment into a fork of the session; the same task gives the same segment again."""
    import zarr

    survey = survey_partition(task.file, task.schema)
    root = zarr.open_group(fork.store, mode="a")
    rows = _decode(task.file, Decoder(task.schema, str(task.file.path)))
    write_segment(root, task.segment, survey.layout, rows, survey.facts)
    check_unchanged(task.file)
    file = task.file
    entry = LedgerEntry(
        task.segment, file.name, file.size_bytes, file.modified_ns, survey.content_sha256, survey.layout.rows
    )
    return Ingested(entry, survey.facts.categories, survey.facts.present_classes, fork)


def _ingest_wave(
    store: Store,
    ledger: Ledger,
    files: list[PartitionFile],
    executor: Executor,
    report: Reporter,
    feature_map: FeatureMap | None,
) -> Ledger:
    schema = ledger.schema
    if schema is None:
        raise ValueError("the ledger has no schema")
    place, first = f"the store {store.location.text}", ledger.next_segment
    tasks = [IngestTask(first + i, file, schema) for i, file in enumerate(files)]
    with store.write(f"Ingest {len(files)} partitions from {files[0].name}") as writing:
        if read_ledger(writing.root).entries != ledger.entries:
            raise StoreError(f"another writer has committed to {place} meanwhile; run the job again")
        with store_errors(place):
            shared = writing.session.fork()
        results = []
        for result in executor.run(ingest_partition, tasks, shared):
            _check_categories(result, feature_map)
            results.append(result)
            report.advance(result.entry.rows, partition=result.entry.name)
        forks = {id(result.fork): result.fork for result in results}
        with store_errors(place):
            writing.session.merge(*forks.values())
        ledger = ledger.with_entries(
            [r.entry for r in results], [r.categories for r in results], [r.classes for r in results]
        )
        write_ledger(writing.root, ledger)
    return ledger


def _check_categories(result: Ingested, feature_map: FeatureMap | None) -> None:
    if feature_map is None:
        return
    try:
        feature_map.code_maps(result.categories)
        feature_map.check_classes(result.classes)
    except InputError as error:
        raise PartitionError(f"{result.entry.name} is not taken in: {error}") from error


def _check_known(files: list[PartitionFile], ledger: Ledger, executor: Executor) -> None:
    """Read again the files whose size or time stamp is new, and compare their content with the ledger's."""
    known = ledger.by_name()
    touched = [file for file in files if not known[file.name].looks_like(file)]
    for file, survey in zip(touched, executor.run(survey_partition, touched, ledger.schema), strict=True):
        check_same_content(known[file.name], file, survey.content_sha256)


def _find_twins(ledger: Ledger, first_new: int) -> tuple[tuple[str, str], ...]:
    """Return each entry from `first_new` on, with rows, whose content an earlier entry has, too."""
    seen: dict[str, str] = {}
    twins = []
    for entry in ledger.entries:
        older = seen.setdefault(entry.content_sha256, entry.name)
        if older != entry.name and entry.segment >= first_new and entry.rows:
            twins.append((entry.name, older))
    return tuple(twins)


def _unnamed_columns(files: tuple[PartitionFile, ...], ledger: Ledger) -> tuple[str, ...]:
    if ledger.schema is None or not files:
        return ()
    return ledger.schema.unnamed(read_arrow_schema(files[-1]).names)


def _decode(file: PartitionFile, decoder: Decoder) -> Iterator[Rows]:
    decoder.check(read_arrow_schema(file))
    for batch in read_batches(file, decoder.schema.columns(with_target=decoder.with_target)):
        yield decoder.decode(batch)


class _Digest:
    """A hash of decoded values that does not depend on how they came in batches."""

    def __init__(self) -> None:
        self._parts = {name: hashlib.sha256() for name in ("numeric", "codes", "targets", "weights")}

    def update(self, rows: Rows) -> None:
        for name, part in self._parts.items():
            values = getattr(rows, name)
            if values is not None:
                part.update(np.ascontiguousarray(values).data)

    def hexdigest(self, decoder: Decoder) -> str:
        names = decoder.schema.columns(with_target=True)
        known = (names, decoder.rows, decoder.categories, *([decoder.classes] if decoder.classes else []))
        whole = hashlib.sha256(repr(known).encode())
        for part in self._parts.values():
            whole.update(part.digest())
        return whole.hexdigest()


class _Gathered:
    """A partition's moments, category weights and exactness in float32, gathered batch by batch."""

    def __init__(self, schema: Schema) -> None:
        self._n_targets = len(schema.targets)
        self._moments = Moments.empty(len(schema.numeric) + self._n_targets)
        self._counts: list[dict[int, float]] = [{} for _ in schema.categorical]
        self._class_counts: dict[int, float] = {}
        self._classes = schema.classes is not None
        self._exact = np.ones(len(schema.numeric), dtype=np.bool_)
        self._largest = np.zeros(len(schema.numeric))

    def add(self, rows: Rows) -> None:
        targets = np.empty((len(rows), self._n_targets)) if rows.targets is None else rows.targets
        self._moments = self._moments.merge(Moments.of(np.hstack([rows.numeric, targets]), rows.weights))
        for position, counts in enumerate(self._counts):
            _count(counts, rows.codes[:, position], rows.weights)
        if self._classes:
            _count(self._class_counts, targets[:, 0].astype(np.int64), rows.weights)
        self._largest = np.maximum(self._largest, np.abs(rows.numeric).max(axis=0, initial=0.0))
        present = rows.numeric if rows.weights is None else rows.numeric[rows.weights > 0]
        with np.errstate(over="ignore"):
            self._exact &= (present == present.astype(np.float32)).all(axis=0)

    def facts(self, decoder: Decoder) -> SegmentFacts:
        tables = tuple(tuple(table) for table in decoder.categories)
        counts = tuple(
            tuple(counts.get(code, 0.0) for code in range(len(table)))
            for table, counts in zip(tables, self._counts, strict=True)
        )
        class_counts = tuple(self._class_counts.get(code, 0.0) for code in range(len(decoder.classes)))
        return SegmentFacts(self._moments.as_array(), tables, counts, tuple(decoder.classes), class_counts)

    def single_is_enough(self) -> bool:
        """Tell whether rounding to float32 moves no value of a column, or by little against its deviation.

        It moves a value by 2⁻²⁴ of its size or 2⁻¹⁵⁰, whichever is more. Rows of weight zero have no say in that, but
        must not become infinite.
        """
        moments = Moments.from_array(self._moments.as_array()[:, : len(self._exact)])
        counted = moments.count > 0
        largest = np.where(counted, np.maximum(np.abs(moments.minimum), np.abs(moments.maximum)), 0.0)
        variance = np.divide(moments.squares, moments.count, out=np.zeros_like(largest), where=counted)
        moved = np.maximum(largest * 2.0**-24, 2.0**-150)
        small = (moved <= SINGLE_TOLERANCE * np.sqrt(variance)) & ~moments.constant()
        return bool(((self._exact | small) & (self._largest < float(np.finfo(np.float32).max))).all())


def _count(counts: dict[int, float], codes: npt.NDArray[np.integer], weights: npt.NDArray[np.float64] | None) -> None:
    """Add the weight of the rows with each code (rows,)."""
    for code, weight in enumerate(np.bincount(codes, weights)):
        counts[code] = counts.get(code, 0.0) + float(weight)
