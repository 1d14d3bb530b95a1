"""Profiles a partition in its first reading, which checks every value before anything is written.

The profile has the hash of the values, their moments and quantile sketch, the weight of every category, and whether
float32 is exact enough. Memory does not depend on the partition's size.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.policies import ERROR
from ridgestream.pipeline.ingest.partition_statistics import PartitionStatistics
from ridgestream.pipeline.ingest.row_filter import RowFilter
from ridgestream.stores.parquet.column_reader import DROP
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import BATCH_ROWS, OpenPartition, PartitionFile, open_partition
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.schema.schema import DOUBLE, SINGLE, Schema
from ridgestream.stores.segments.segment_format import SegmentFacts, SegmentLayout


@dataclass(frozen=True)
class PartitionProfile:
    """The result of the first reading of a partition."""

    layout: SegmentLayout
    """The layout of its segment."""
    facts: SegmentFacts
    """Its moments, category tables and quantile sketch."""
    content_sha256: str
    """The hash of its decoded values, including those of dropped rows."""
    dropped: int
    """The number of rows dropped because they lack a value."""
    missing: dict[str, int]
    """How many values each column lacks, of those that lack any."""
    rows: tuple[Rows, ...] | None
    """The rows, if the partition is small; None if they have to be read again."""


def profile_partition(file: PartitionFile, schema: Schema, missing: str = ERROR) -> PartitionProfile:
    """Read and check a whole partition; raises PartitionError for the first column or value that cannot be used.

    `missing` is the policy for missing values.
    """
    digest, rows, decoder = _Digest(), _KeptRows(schema), Decoder(schema, str(file.path), missing=missing)
    row_filter = RowFilter(decoder)
    with open_partition(file) as opened, one_blas_thread():
        statistics = PartitionStatistics(schema, opened.n_rows)
        for batch in _decode(opened, decoder):
            digest.update(batch)
            kept = row_filter.keep(batch)
            statistics.add(kept)
            rows.add(kept)
    single = statistics.is_exact() if schema.precision == DOUBLE else statistics.single_is_enough()
    return PartitionProfile(
        layout=_layout_of(schema, row_filter.rows, single=single),
        facts=statistics.facts(row_filter.categories, row_filter.classes, row_filter.rows, row_filter.missing),
        content_sha256=digest.hexdigest(decoder),
        dropped=row_filter.dropped,
        missing=decoder.absent,
        rows=rows.all(),
    )


def _layout_of(schema: Schema, rows: int, *, single: bool) -> SegmentLayout:
    return SegmentLayout(
        rows=rows,
        n_numeric=len(schema.numeric),
        n_categorical=len(schema.categorical),
        n_targets=len(schema.targets),
        single=single,
        weighted=schema.weight is not None,
        n_ahead=len(schema.ahead) + 1 if schema.ahead else 0,
    )


class _KeptRows:
    """The rows of a partition, as long as it can be a small one."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._batches: list[Rows] | None = []
        self._rows = 0

    def add(self, batch: Rows) -> None:
        self._rows += len(batch)
        if self._batches is not None and _layout_of(self._schema, self._rows, single=True).is_small:
            self._batches.append(batch)
        else:
            self._batches = None

    def all(self) -> tuple[Rows, ...] | None:
        return None if self._batches is None else tuple(self._batches)


def first_rows_precision(file: PartitionFile, schema: Schema, missing: str) -> str:
    """Return SINGLE if float32 is exact enough for the first BATCH_ROWS rows of a partition, else DOUBLE."""
    decoder, statistics = Decoder(schema, str(file.path), missing=missing), PartitionStatistics(schema, BATCH_ROWS)
    with one_blas_thread():
        for batch in islice(decode_partition(file, decoder), 1):
            statistics.add(RowFilter(decoder).keep(batch))
    return SINGLE if statistics.single_is_enough() else DOUBLE


def content_of(file: PartitionFile, schema: Schema) -> str:
    """Return the hash of a partition's decoded values, the same whatever the policy for missing values.

    Raises PartitionError if it cannot be used for any reason but missing values.
    """
    digest, decoder = _Digest(), Decoder(schema, str(file.path), missing=DROP)
    for batch in decode_partition(file, decoder):
        digest.update(batch)
    return digest.hexdigest(decoder)


def decode_partition(file: PartitionFile, decoder: Decoder) -> Iterator[Rows]:
    """Yield the rows batch by batch; raises PartitionError for columns or values that cannot be used."""
    with open_partition(file) as opened:
        yield from _decode(opened, decoder)


def _decode(opened: OpenPartition, decoder: Decoder) -> Iterator[Rows]:
    decoder.check(opened.arrow_schema)
    yield from map(decoder.decode, opened.batches(decoder.schema.columns(with_target=decoder.with_target)))


class _Digest:
    """A hash of decoded values that does not depend on how they are divided into batches, nor on policies.

    A missing value is hashed as NaN, or as the code −1.
    """

    def __init__(self) -> None:
        self._parts = {name: hashlib.sha256() for name in ("numeric", "codes", "targets", "weights")}
        self._ahead = hashlib.sha256()

    def update(self, rows: Rows) -> None:
        for name, part in self._parts.items():
            values = getattr(rows, name)
            if values is not None:
                part.update(np.ascontiguousarray(values).data)
        if rows.ahead is not None:
            self._ahead.update(np.ascontiguousarray(rows.ahead).data)

    def hexdigest(self, decoder: Decoder) -> str:
        names = decoder.schema.columns(with_target=True)
        known = (names, decoder.rows, decoder.categories, *([decoder.classes] if decoder.classes else []))
        whole = hashlib.sha256(repr(known).encode())
        for part in (*self._parts.values(), *([self._ahead] if decoder.schema.ahead else [])):
            whole.update(part.digest())
        return whole.hexdigest()
