"""Profiles a partition in its first reading, which checks every value before anything is written.

The profile has the hash of the values, their moments and quantile sketch, the weight of every category, and whether
float32 is exact enough. Memory does not depend on the partition's size.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.policies import ERROR
from ridgestream.pipeline.ingest.row_filter import RowFilter
from ridgestream.pipeline.sums.moments import Moments
from ridgestream.pipeline.sums.quantile_sketch import Sample
from ridgestream.stores.parquet.column_reader import DROP
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import BATCH_ROWS, OpenPartition, PartitionFile, open_partition
from ridgestream.stores.schema.column_types import TIMESTAMP
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.schema.schema import DOUBLE, SINGLE, Schema
from ridgestream.stores.segments.segment_format import SegmentFacts, SegmentLayout

UNSKETCHED_ROWS = 256
"""A partition with at most so many rows has no quantile sketch, whose numbers would take more space than its rows."""

SINGLE_TOLERANCE = 1e-6
"""float32 is exact enough for a column if it changes no value by more than this share of the column's deviation.

Whether it may change a value at all is one rule for all columns and partitions of a store, the schema's `precision`,
which the first ingest fixes: SINGLE if float32 is exact enough in the first rows, or DOUBLE. Under SINGLE, a partition
in which it is not exact enough is stored as float64, as it is. Under DOUBLE, float32 is used where it changes nothing.
"""


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
        statistics = _Statistics(schema, opened.n_rows)
        for batch in _decode(opened, decoder):
            digest.update(batch)
            kept = row_filter.keep(batch)
            statistics.add(kept)
            rows.add(kept)
    single = statistics.is_exact() if schema.precision == DOUBLE else statistics.single_is_enough()
    return PartitionProfile(
        layout=_layout_of(schema, row_filter.rows, single=single),
        facts=statistics.facts(row_filter),
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
    decoder, statistics = Decoder(schema, str(file.path), missing=missing), _Statistics(schema, BATCH_ROWS)
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


class _Statistics:
    """A partition's moments, sketch, category weights and exactness in float32, updated batch by batch."""

    def __init__(self, schema: Schema, n_rows: int) -> None:
        self._n_targets = len(schema.targets)
        self._moments = Moments.empty(len(schema.numeric) + self._n_targets)
        self._sample = Sample(n_rows) if n_rows > UNSKETCHED_ROWS else None
        self._counts: list[dict[int, float]] = [{} for _ in schema.categorical]
        self._class_counts: dict[int, float] = {}
        self._classes = schema.classes is not None
        self._is_time = np.array([feature.kind == TIMESTAMP for feature in schema.numeric], dtype=np.bool_)
        self._exact = np.ones(len(schema.numeric), dtype=np.bool_)
        self._largest = np.zeros(len(schema.numeric))

    def add(self, rows: Rows) -> None:
        targets = np.empty((len(rows), self._n_targets)) if rows.targets is None else rows.targets
        values = np.hstack([rows.numeric, targets])
        self._moments = self._moments.merge(Moments.of(values, rows.weights))
        if self._sample is not None:
            self._sample.add(values, rows.weights)
        for position, counts in enumerate(self._counts):
            _count(counts, rows.codes[:, position], rows.weights)
        if self._classes:
            _count(self._class_counts, targets[:, 0].astype(np.int64), rows.weights)
        self._largest = np.fmax(self._largest, np.fmax.reduce(np.abs(rows.numeric), axis=0, initial=0.0))
        present = rows.numeric if rows.weights is None else rows.numeric[rows.weights > 0]
        with np.errstate(over="ignore"):
            self._exact &= ((present == present.astype(np.float32)) | np.isnan(present)).all(axis=0)

    def facts(self, row_filter: RowFilter) -> SegmentFacts:
        tables, classes = row_filter.categories, row_filter.classes
        counts = tuple(
            tuple(counts.get(code, 0.0) for code in range(len(table)))
            for table, counts in zip(tables, self._counts, strict=True)
        )
        class_counts = tuple(self._class_counts.get(code, 0.0) for code in range(len(classes)))
        sketch = None
        if self._sample is not None and row_filter.rows > UNSKETCHED_ROWS:
            sketch = self._sample.sketch(len(self._moments.count)).as_array()
        return SegmentFacts(self._moments.as_array(), tables, counts, classes, class_counts, sketch, row_filter.missing)

    def is_exact(self) -> bool:
        """Return whether rounding to float32 changes no value."""
        return bool(self._exact.all() and self._fits().all())

    def single_is_enough(self) -> bool:
        """Return whether rounding to float32 changes no value of a column, or little relative to its deviation.

        A time stamp, whose hour is a feature, may not be changed at all. Another value is changed by at most 2⁻²⁴ of
        its size or 2⁻¹⁵⁰, whichever is more. Rows of weight zero do not count, but must not become infinite, nor the
        largest number, which marks missing values.
        """
        moments = Moments.from_array(self._moments.as_array()[:, : len(self._exact)])
        counted = moments.count > 0
        largest = np.where(counted, np.maximum(np.abs(moments.minimum), np.abs(moments.maximum)), 0.0)
        variance = np.divide(moments.squares, moments.count, out=np.zeros_like(largest), where=counted)
        moved = np.maximum(largest * 2.0**-24, 2.0**-150)
        small = (moved <= SINGLE_TOLERANCE * np.sqrt(variance)) & ~moments.constant() & ~self._is_time
        return bool(((self._exact | small) & self._fits()).all())

    def _fits(self) -> npt.NDArray[np.bool_]:
        with np.errstate(over="ignore"):
            return np.asarray(self._largest.astype(np.float32) < np.finfo(np.float32).max)


def _count(counts: dict[int, float], codes: npt.NDArray[np.integer], weights: npt.NDArray[np.float64] | None) -> None:
    """Add the weight of the rows with each code (rows,); −1 is none."""
    if codes.min(initial=0) < 0:
        weights = None if weights is None else weights[codes >= 0]
        codes = codes[codes >= 0]
    for code, weight in enumerate(np.bincount(codes, weights)):
        counts[code] = counts.get(code, 0.0) + float(weight)
