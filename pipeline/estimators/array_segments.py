"""Rows that no store holds as segments: trainings read them as they read those of a store, with the same bits."""

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.ingest.partition_statistics import PartitionStatistics
from ridgestream.stores.parquet.partitions import BATCH_ROWS
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.row_batch import Rows, join_rows
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.segment_format import SegmentFacts, SegmentLayout


class RowReader(Protocol):
    """Rows that can be read repeatedly, with the tables of their codes."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def categories(self) -> tuple[tuple[str, ...], ...]:
        """For each categorical feature, its values by code; complete once all rows have been read."""

    @property
    def classes(self) -> tuple[Label, ...]:
        """The classes by code; empty for numbers."""

    def read(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` up to `stop`."""


@dataclass(frozen=True)
class SampledReader:
    """Some rows of a reader, in memory: calibration reads no others, and the rest reads as zeros."""

    n_rows: int
    """Number of rows of the reader."""
    numbers: Integers
    """The numbers of the rows that are kept, ascending."""
    rows: Rows
    """These rows."""
    categories: tuple[tuple[str, ...], ...]
    """For each categorical feature, its values by code."""
    classes: tuple[Label, ...]
    """The classes by code; empty for numbers."""

    def read(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` up to `stop`."""
        inside = slice(*np.searchsorted(self.numbers, [start, stop]))
        numbers, rows = self.numbers[inside] - start, self.rows.take(inside)
        return Rows(*(_spread(part, numbers, stop - start) for part in vars(rows).values()))


def _spread(kept: Any, numbers: Integers, count: int) -> Any:
    if kept is None:
        return None
    whole = np.zeros((count, *kept.shape[1:]), kept.dtype)
    whole[numbers] = kept
    return whole


@dataclass(frozen=True)
class ArraySegment:
    """Rows that no store holds, cut into chunks as a store would cut them."""

    reader: RowReader
    """Reads the rows."""
    layout: SegmentLayout
    """The layout of the segment that a store would make of them."""
    known: SegmentFacts
    """Their statistics."""

    @classmethod
    def of(cls, reader: RowReader, schema: Schema) -> Self:
        """Read all rows once, and return them as a segment."""
        statistics = PartitionStatistics(schema, 0)
        missing = np.zeros(len(schema.features), dtype=np.int64)
        with one_blas_thread():
            for start in range(0, reader.n_rows, BATCH_ROWS):
                rows = reader.read(start, min(start + BATCH_ROWS, reader.n_rows))
                statistics.add(rows)
                missing += [*np.isnan(rows.numeric).sum(axis=0), *(rows.codes < 0).sum(axis=0)]
        layout = SegmentLayout(
            rows=reader.n_rows,
            n_numeric=len(schema.numeric),
            n_categorical=len(schema.categorical),
            n_targets=len(schema.targets),
            single=statistics.is_exact(),
            weighted=schema.weight is not None,
        )
        absent = tuple(missing.tolist()) if missing.any() else ()
        return cls(reader, layout, statistics.facts(reader.categories, reader.classes, reader.n_rows, absent))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.reader.n_rows

    @property
    def chunk_rows(self) -> int:
        """Rows per chunk: those of a store's segment, or all of a small one."""
        return max(self.rows, 1) if self.layout.is_small else self.layout.chunk_rows

    def read(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` up to `stop`."""
        return self.reader.read(start, min(stop, self.rows))

    def count_weighted_rows(self) -> int:
        """Return the number of rows of positive weight."""
        starts = range(0, self.rows, self.chunk_rows)
        parts = (self.read(start, start + self.chunk_rows) for start in starts)
        return sum(len(part) if part.weights is None else int(np.count_nonzero(part.weights > 0)) for part in parts)

    def facts(self) -> SegmentFacts:
        """Return their moments and category tables."""
        return self.known

    def keeping(self, numbers: Integers) -> Self:
        """Return the segment with these rows alone in memory, by their numbers in ascending order."""
        if isinstance(self.reader, SampledReader):
            rows = self.reader.rows.take(np.searchsorted(self.reader.numbers, numbers))
        else:
            rows = self._taken(numbers)
        reader = SampledReader(self.rows, numbers, rows, self.reader.categories, self.reader.classes)
        return type(self)(reader, self.layout, self.known)

    def _taken(self, numbers: Integers) -> Rows:
        """Return these rows, by their numbers in ascending order; reads the chunks that have some of them."""
        parts = []
        for start in range(0, self.rows, self.chunk_rows):
            inside = slice(*np.searchsorted(numbers, [start, start + self.chunk_rows]))
            if inside.stop > inside.start:
                parts.append(self.read(start, start + self.chunk_rows).take(numbers[inside] - start))
        return join_rows(parts or [self.read(0, 0)])
