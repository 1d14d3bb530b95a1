"""Ingest: Parquet partitions that the store lacks become segments of it, each once, several to a commit.

A partition is read twice: first to check every value and to learn its content hash, moments and float width, so that
nothing is written of a partition that cannot be used; then to write it, chunk by chunk. Memory is free of its size.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgestream.pipeline.executor import Executor
from ridgestream.pipeline.moments import Moments
from ridgestream.pipeline.reporting import Reporter
from ridgestream.stores.decoding import Decoder
from ridgestream.stores.ledger import Ledger, LedgerEntry, check_same_content, read_ledger, write_ledger
from ridgestream.stores.partitions import PartitionFile, check_unchanged, read_arrow_schema, read_batches
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
    content_sha256: str
    """The hash of its decoded values."""


@dataclass(frozen=True)
class IngestTask:
    """One partition to take in."""

    order: int
    """Its number in the ledger."""
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


def ingest(
    store: Store, files: tuple[PartitionFile, ...], request: SchemaRequest, executor: Executor, report: Reporter
) -> IngestReport:
    """Take in the files that the ledger lacks, in their order; rows and ledger change by the same commits.

    Raises PartitionError for a file that cannot be used, or has other values than when it was taken in, and StoreError if
    the request contradicts the store's schema. What was committed before stands.
    """
    ledger = read_ledger(store.root())
    if ledger.schema is None:
        ledger = replace(ledger, schema=infer_schema(request, read_arrow_schema(files[0]), str(files[0].path)))
    else:
        check_request(ledger.schema, request, store.location.text)
    known = ledger.by_name()
    _check_known([file for file in files if file.name in known], ledger, executor)
    fresh = [file for file in files if file.name not in known]
    report.begin("ingest", None, partitions=len(fresh))
    for start in range(0, len(fresh), PARTITIONS_A_COMMIT):
        ledger = _ingest_wave(store, ledger, fresh[start : start + PARTITIONS_A_COMMIT], executor, report)
    added = ledger.entries[len(known) :]
    report.end(partitions=len(added), rows=sum(entry.rows for entry in added))
    names = {file.name for file in files}
    return IngestReport(added, _unnamed_columns(files, ledger), tuple(n for n in known if n not in names))


def survey_partition(file: PartitionFile, schema: Schema) -> Survey:
    """Read a partition through; raise PartitionError for the first thing about it that cannot be used."""
    digest, moments = _Digest(), Moments.empty(len(schema.numeric))
    rows, exact = 0, np.ones(len(schema.numeric), dtype=np.bool_)
    decoder = Decoder(schema, str(file.path))
    for batch in _decode(file, decoder):
        digest.update(batch)
        rows += len(batch)
        moments = moments.merge(Moments.of(np.asarray(batch.numeric, dtype=np.float64)))
        with np.errstate(over="ignore"):
            exact &= (batch.numeric == batch.numeric.astype(np.float32)).all(axis=0)
    layout = SegmentLayout(
        rows=rows,
        n_numeric=len(schema.numeric),
        n_categorical=len(schema.categorical),
        n_targets=1,
        single=bool((exact | _single_is_enough(moments)).all()),
        weighted=schema.weight is not None,
    )
    return Survey(layout, digest.hexdigest(decoder))


def ingest_partition(task: IngestTask, fork: "icechunk.ForkSession") -> Ingested:
    """Write one partition as a segment into a fork of the session; the same task gives the same segment again."""
    import zarr

    survey = survey_partition(task.file, task.schema)
    decoder = Decoder(task.schema, str(task.file.path))
    facts = _FactsOf(task.schema)
    root = zarr.open_group(fork.store, mode="a")
    rows = facts.watch(_decode(task.file, decoder))
    write_segment(root, task.order, survey.layout, rows, lambda: facts.finish(decoder))
    check_unchanged(task.file)
    file = task.file
    entry = LedgerEntry(
        task.order, file.name, file.size_bytes, file.modified_ns, survey.content_sha256, survey.layout.rows
    )
    return Ingested(entry, tuple(tuple(table) for table in decoder.categories), fork)


def _ingest_wave(
    store: Store, ledger: Ledger, files: list[PartitionFile], executor: Executor, report: Reporter
) -> Ledger:
    if ledger.schema is None:
        raise ValueError("the ledger has no schema")
    first = len(ledger.entries)
    tasks = [IngestTask(first + i, file, ledger.schema) for i, file in enumerate(files)]
    with store.write(f"Ingest {len(files)} partitions from {files[0].name}") as writing:
        shared = writing.session.fork()
        results = []
        for result in executor.run(ingest_partition, tasks, shared):
            results.append(result)
            report.advance(result.entry.rows, partition=result.entry.name)
        forks = {id(result.fork): result.fork for result in results}
        writing.session.merge(*forks.values())
        ledger = ledger.with_entries([r.entry for r in results], [r.categories for r in results])
        write_ledger(writing.root, ledger)
    return ledger


def _check_known(files: list[PartitionFile], ledger: Ledger, executor: Executor) -> None:
    """Read again the files whose size or time stamp is new, and compare their content with the ledger's."""
    known = ledger.by_name()
    touched = [file for file in files if not known[file.name].looks_like(file)]
    for file, survey in zip(touched, executor.run(survey_partition, touched, ledger.schema), strict=True):
        check_same_content(known[file.name], file, survey.content_sha256)


def _unnamed_columns(files: tuple[PartitionFile, ...], ledger: Ledger) -> tuple[str, ...]:
    if ledger.schema is None or not files:
        return ()
    named = {*ledger.schema.columns(with_target=True), *ledger.schema.ignore}
    return tuple(name for name in read_arrow_schema(files[-1]).names if name not in named)


def _decode(file: PartitionFile, decoder: Decoder) -> Iterator[Rows]:
    decoder.check(read_arrow_schema(file))
    for batch in read_batches(file, decoder.schema.columns(with_target=decoder.with_target)):
        yield decoder.decode(batch)


def _single_is_enough(moments: Moments) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Tell for which columns the rounding to float32, 2⁻²⁴ of the largest size, is small against the spread."""
    largest = np.maximum(np.abs(moments.minimum), np.abs(moments.maximum))
    counted = moments.count > 0
    rounding = np.where(counted, largest, 0.0) * 2.0**-24
    fits = np.where(counted, largest, 0.0) < float(np.finfo(np.float32).max)
    return np.asarray(fits & (rounding <= SINGLE_TOLERANCE * moments.deviation()) & ~moments.constant() | ~counted)


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
        whole = hashlib.sha256(repr((names, decoder.rows, decoder.categories)).encode())
        for part in self._parts.values():
            whole.update(part.digest())
        return whole.hexdigest()


class _FactsOf:
    """Gathers a segment's moments and category weights while its rows pass by."""

    def __init__(self, schema: Schema) -> None:
        self._moments = Moments.empty(len(schema.numeric) + 1)
        self._counts: list[dict[int, float]] = [{} for _ in schema.categorical]

    def watch(self, batches: Iterator[Rows]) -> Iterator[Rows]:
        for rows in batches:
            if rows.targets is not None:
                columns = np.hstack([rows.numeric, rows.targets])
                self._moments = self._moments.merge(Moments.of(columns, rows.weights))
            for position, counts in enumerate(self._counts):
                weights = np.bincount(rows.codes[:, position], rows.weights) if len(rows) else np.empty(0)
                for code, weight in enumerate(weights):
                    counts[code] = counts.get(code, 0.0) + float(weight)
            yield rows

    def finish(self, decoder: Decoder) -> SegmentFacts:
        tables = tuple(tuple(table) for table in decoder.categories)
        counts = tuple(
            tuple(counts.get(code, 0.0) for code in range(len(table)))
            for table, counts in zip(tables, self._counts, strict=True)
        )
        return SegmentFacts(self._moments.as_array(), tables, counts)
