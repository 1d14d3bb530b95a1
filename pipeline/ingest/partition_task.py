"""The task of one partition: check it, then write it as a segment; runs in a worker or in this process."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.policies import ERROR, Policies
from ridgestream.pipeline.ingest.partition_profile import PartitionProfile, decode_partition, profile_partition
from ridgestream.pipeline.ingest.row_filter import RowFilter
from ridgestream.stores.catalog.ledger import LedgerEntry
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.errors.transient import is_transient
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import PartitionFile, check_unchanged
from ridgestream.stores.requests.limited_store import Fork
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.segments import write_segment


@dataclass(frozen=True)
class IngestTask:
    """One partition to be ingested."""

    segment: int
    """The number of its segment."""
    file: PartitionFile
    """The file."""
    schema: Schema
    """The store's schema."""


@dataclass(frozen=True)
class Ingested:
    """A partition whose segment is written."""

    entry: LedgerEntry
    """Its line in the ledger."""
    file: PartitionFile
    """The file."""
    categories: tuple[tuple[str, ...], ...]
    """The categories of each categorical column."""
    classes: tuple[Label, ...]
    """Its classes, where each is learned."""
    missing: dict[str, int]
    """How many values each column lacks, of those that lack any."""
    moments: npt.NDArray[np.float64]
    """The moments of its numeric columns and targets, shape (5, n)."""
    fork: Fork
    """The session that holds its segment."""


@dataclass(frozen=True)
class Refused:
    """A partition that goes into quarantine."""

    file: PartitionFile
    """The file."""
    reason: str
    """Why it cannot be used."""
    written: Ingested | None = None
    """Its segment, if it was refused after that was written."""

    @property
    def fork(self) -> Fork | None:
        """The session that holds its segment, if there is one."""
        return self.written.fork if self.written else None


def ingest_partition(task: IngestTask, fork: Fork, policies: Policies) -> Ingested | Refused:
    """Write one partition as a segment into a fork of the session; the same task gives the same segment again.

    With the policy `quarantine`, a partition that cannot be used is returned as refused; else PartitionError is raised.
    """
    try:
        profile = profile_partition(task.file, task.schema, policies.missing)
    except PartitionError as error:
        if policies.on_bad == ERROR or is_transient(error):
            raise
        return Refused(task.file, str(error))
    _write(task, profile, fork, policies)
    facts = profile.facts
    return Ingested(
        entry=LedgerEntry(
            segment=task.segment,
            name=task.file.name,
            size_bytes=task.file.size_bytes,
            modified_ns=task.file.modified_ns,
            content_sha256=profile.content_sha256,
            rows=profile.layout.rows,
            dropped=profile.dropped,
        ),
        file=task.file,
        categories=facts.categories,
        classes=facts.present_classes,
        missing=profile.missing,
        moments=facts.moments,
        fork=fork,
    )


def _write(task: IngestTask, profile: PartitionProfile, fork: Fork, policies: Policies) -> None:
    """Write the segment; raises PartitionError if the file has changed since it was checked."""
    decoder = Decoder(task.schema, str(task.file.path), missing=policies.missing)
    rows = map(RowFilter(decoder).keep, decode_partition(task.file, decoder))
    write_segment(fork.root, task.segment, profile.layout, rows, profile.facts)
    check_unchanged(task.file)
