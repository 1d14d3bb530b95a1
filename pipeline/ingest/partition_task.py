"""The task of one large partition or several small ones: check them, then write them as segments.

Runs in a worker or in this process. Small partitions are read once: their rows stay in memory until they are written.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.policies import ERROR, Policies
from ridgestream.pipeline.dataset.task_label import TaskLabel, label_of
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
from ridgestream.stores.segments.segment_writer import SegmentWriter


@dataclass(frozen=True)
class IngestTask:
    """Partitions to be ingested together."""

    first_segment: int
    """The number of the first one's segment; those of the others follow it."""
    files: tuple[PartitionFile, ...]
    """The files."""
    schema: Schema
    """The store's schema."""

    @property
    def label(self) -> TaskLabel | None:
        """Description for error messages; reads the footers of the first and the last file."""
        return label_of((self.files[0], self.files[-1]))


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


@dataclass(frozen=True)
class Refused:
    """A partition that goes into quarantine."""

    file: PartitionFile
    """The file."""
    reason: str
    """Why it cannot be used."""
    written: Ingested | None = None
    """Its segment, if it was refused after that was written."""


@dataclass(frozen=True)
class TaskResult:
    """The result of a task."""

    partitions: tuple[Ingested | Refused, ...]
    """Its partitions, in order."""
    fork: Fork
    """The session that holds their segments."""


def ingest_partitions(task: IngestTask, fork: Fork, policies: Policies) -> TaskResult:
    """Write partitions as segments into a fork of the session; the same task gives the same segments again.

    With the policy `quarantine`, a partition that cannot be used is returned as refused; else PartitionError is raised.
    """
    writer = SegmentWriter(fork.root)
    numbered = enumerate(task.files, start=task.first_segment)
    partitions = tuple(_ingest(number, file, task.schema, writer, policies) for number, file in numbered)
    writer.finish()
    return TaskResult(partitions, fork)


def _ingest(
    number: int, file: PartitionFile, schema: Schema, writer: SegmentWriter, policies: Policies
) -> Ingested | Refused:
    try:
        profile = profile_partition(file, schema, policies.missing)
    except PartitionError as error:
        if policies.on_bad == ERROR or is_transient(error):
            raise
        return Refused(file, str(error))
    _write(number, file, schema, profile, writer, policies)
    facts = profile.facts
    return Ingested(
        entry=LedgerEntry(
            segment=number,
            name=file.name,
            size_bytes=file.size_bytes,
            modified_ns=file.modified_ns,
            content_sha256=profile.content_sha256,
            rows=profile.layout.rows,
            dropped=profile.dropped,
            identity=file.identity,
        ),
        file=file,
        categories=facts.categories,
        classes=facts.present_classes,
        missing=profile.missing,
        moments=facts.moments,
    )


def _write(
    number: int,
    file: PartitionFile,
    schema: Schema,
    profile: PartitionProfile,
    writer: SegmentWriter,
    policies: Policies,
) -> None:
    """Write the segment; raises PartitionError if the file has changed since it was checked."""
    rows = profile.rows
    if rows is None:
        decoder = Decoder(schema, str(file.path), missing=policies.missing)
        writer.write(
            number, profile.layout, map(RowFilter(decoder).keep, decode_partition(file, decoder)), profile.facts
        )
    else:
        writer.write(number, profile.layout, rows, profile.facts)
    check_unchanged(file)
