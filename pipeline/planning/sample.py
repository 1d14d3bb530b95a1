"""The sample that a run is estimated from: the job's first rows, ingested into a temporary store."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import compress, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.dataset.feature_map_growth import plan_encodings
from ridgestream.pipeline.dataset.stored_rows import StoredRows
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.ingest.ingest import ingest
from ridgestream.pipeline.planning.timing import Timing
from ridgestream.pipeline.training.request import Request
from ridgestream.stores.catalog.ledger import Ledger, read_ledger
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.folder_keys import as_file_columns
from ridgestream.stores.parquet.partitions import PartitionFile, count_rows, list_partitions, read_batches
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.schema.schema import SchemaRequest
from ridgestream.stores.segments.segments import Segments

if TYPE_CHECKING:
    import pyarrow as pa
    import zarr

MOST_ROWS = 32_768
"""Most rows of a sample."""

_PIECE_ROWS = 4096
"""Rows of each partition of the sample but the last: the online learner is timed after each."""

_LARGE_PIECE_ROWS = 16_384
"""Rows of the last partition."""


@dataclass(frozen=True)
class Sample:
    """The job's first rows in a temporary store."""

    store: Store
    """The store."""
    learned_rows: int
    """How many of them are learned, up to the end of a partition."""
    ingest_row_seconds: float
    """Seconds of ingest per row."""

    @property
    def root(self) -> "zarr.Group":
        """The store's last commit."""
        return self.store.root()

    @property
    def ledger(self) -> Ledger:
        """The partitions of the sample that are learned."""
        ledger = read_ledger(self.root)
        starts = np.cumsum([0, *(entry.rows for entry in ledger.entries)])
        return replace(ledger, entries=tuple(compress(ledger.entries, starts < self.learned_rows)))

    def feature_map(self, request: Request) -> FeatureMap:
        """Return the feature map that a new model of these rows would have."""
        ledger = self.ledger
        encodings = plan_encodings(
            Segments(self.root),
            ledger,
            record=None,
            entries=ledger.entries,
            scaling_rows=request.scaling_rows,
            policy=request.unseen_categories,
            report=Silent(),
            rules=request.rules,
            opens_scales=request.dictionary is None,
        )
        return encodings.last

    def rows(self, feature_map: FeatureMap, *, first: bool = False) -> StoredRows:
        """Return the rows that are learned, or those of the first partition alone."""
        ledger = self.ledger
        numbers = [entry.segment for entry in ledger.entries[: 1 if first else None]]
        return StoredRows(Segments(self.root), ledger, numbers, feature_map, InProcess(), Silent())


@contextmanager
def take_sample(
    files: Sequence[PartitionFile], rows: int, request: SchemaRequest, policies: Policies
) -> Iterator[Sample]:
    """Yield the files' first rows, of which `rows` are learned, in a temporary store that is deleted afterwards.

    Raises what `ingest` raises for rows that cannot be used.
    """
    with TemporaryDirectory(prefix="ridgestream-plan-") as text:
        folder = Path(text)
        _write_pieces(_first_batches(files, MOST_ROWS, request.categorical), folder / "rows")
        store = Store.open_or_create(StoreLocation(str(folder / "store")))
        timing = Timing()
        with store.lock():
            ingest(store, list_partitions(folder / "rows"), request, InProcess(), timing, policies=policies)
        yield Sample(store, rows, timing.last_row_seconds())


def sampled_files(files: Sequence[PartitionFile]) -> Iterator[PartitionFile]:
    """Yield the files whose rows may be in a sample."""
    rows_left = MOST_ROWS
    for file in files:
        if rows_left <= 0:
            return
        yield file
        rows_left -= count_rows(file)


def _first_batches(files: Sequence[PartitionFile], rows: int, categorical: Sequence[str]) -> "list[pa.RecordBatch]":
    """Return the first rows, as long as columns and types stay the same; raises PartitionError if there are none."""
    batches: list[pa.RecordBatch] = []
    rows_left = rows
    rows_of_files = (batch for file in files for batch in read_batches(file, None))
    for batch in (as_file_columns(batch, categorical) for batch in rows_of_files):
        if rows_left <= 0 or (batches and not batch.schema.equals(batches[0].schema)):
            break
        batches.append(batch.slice(0, rows_left))
        rows_left -= batch.num_rows
    if not batches:
        raise PartitionError("the partitions have no rows to estimate from")
    return batches


def _write_pieces(batches: "Sequence[pa.RecordBatch]", folder: Path) -> None:
    """Write the rows as partitions of _PIECE_ROWS and one larger last, by which the ingest of large ones is timed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rows = pa.Table.from_batches(batches)
    small = range(0, max(rows.num_rows - _LARGE_PIECE_ROWS, 1), _PIECE_ROWS)
    for number, (start, stop) in enumerate(pairwise([*small, rows.num_rows])):
        pq.write_table(rows.slice(start, stop - start), folder / f"part-{number}.parquet")
