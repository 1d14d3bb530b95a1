"""What a task is of, for whoever must tell of one that does not fit, fails, or is lost with its worker."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from ridgestream.pipeline.base.executor import Need
from ridgestream.pipeline.base.memory_plan import plan_partition_bytes, show_bytes
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.partitions import BATCH_ROWS, FooterSizes, PartitionFile, map_footers, measure_partition


@dataclass(frozen=True)
class Work:
    """Rows of a partition, or of several that follow each other."""

    partition: str
    """The partition's name; the first one's, where there are several."""
    start: int
    """The first row in it, from zero."""
    stop: int
    """One past the last row; of the last partition."""
    last: str = ""
    """The last partition's name, where there are several."""
    bytes: int | None = None
    """What a process needs to do it, where that is known."""

    def __str__(self) -> str:
        """Say which rows of which partition, and what they need."""
        until = f" of {self.partition} to" if self.last else " to"
        rows = f"rows {self.start:,}{until} {max(self.stop - 1, 0):,} of {self.last or self.partition}"
        return rows + (f", which need about {show_bytes(self.bytes)} of memory" if self.bytes else "")

    def through(self, other: Self) -> "Work":
        """Return the work from the beginning of this one to the end of the other."""
        if other.partition == self.partition:
            return replace(self, stop=other.stop)
        return Work(self.partition, self.start, other.stop, other.partition)


def work_of(task: Any) -> Work | None:  # noqa: ANN401
    """Return what a task is of, None where that cannot be said; reads the footer of a Parquet partition."""
    if isinstance(task, tuple):
        parts = [part for part in map(work_of, task) if part is not None]
        return parts[0].through(parts[-1]) if parts else None
    file = task if isinstance(task, PartitionFile) else getattr(task, "file", None)
    if isinstance(file, PartitionFile):
        with suppress(PartitionError):
            return _of_partition(file)
        return None
    work = getattr(task, "work", None)
    return work if isinstance(work, Work) else None


def _of_partition(file: PartitionFile) -> Work:
    measured = measure_partition(file)
    return Work(file.name, 0, measured.rows, bytes=_plan_bytes(measured, measured.group_bytes))


def _plan_bytes(measured: FooterSizes, group_bytes: int) -> int:
    return plan_partition_bytes(group_bytes, 8 * BATCH_ROWS * measured.columns)


def needs_of(files: Sequence[PartitionFile]) -> Iterator[Need]:
    """Yield what reading each partition needs, by its footer, which is read when it is asked for."""
    return map_footers(need_of, files)


def need_of(file: PartitionFile) -> Need:
    """Return what reading a partition needs; nothing where its footer cannot be read, which is told elsewhere."""
    try:
        measured = measure_partition(file)
    except PartitionError:
        return Need(0)
    return Need(
        _plan_bytes(measured, measured.group_bytes),
        f"the partition {file.name} ({measured.rows:,} rows)",
        "write the partition in smaller row groups, which are decoded one at a time",
        least_bytes=_plan_bytes(measured, 0),
    )
