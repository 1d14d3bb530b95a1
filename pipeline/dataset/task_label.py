"""Describes a task (partition, rows, memory) for error messages."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from ridgestream.pipeline.base.executor import MemoryNeed
from ridgestream.pipeline.base.memory_plan import plan_partition_bytes, show_bytes
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.partitions import BATCH_ROWS, FooterSizes, PartitionFile, map_footers, measure_partition


@dataclass(frozen=True)
class TaskLabel:
    """Rows of a partition, or of several consecutive partitions."""

    partition: str
    """The partition's name; the first one's if there are several."""
    start: int
    """The first row in it, from zero."""
    stop: int
    """One past the last row, in the last partition."""
    last: str = ""
    """The last partition's name if there are several."""
    bytes: int | None = None
    """The memory that a process needs for it, if known."""

    def __str__(self) -> str:
        """Return the rows, their partition, and the memory needed."""
        until = f" of {self.partition} to" if self.last else " to"
        rows = f"rows {self.start:,}{until} {max(self.stop - 1, 0):,} of {self.last or self.partition}"
        return rows + (f", which need about {show_bytes(self.bytes)} of memory" if self.bytes else "")

    def through(self, other: Self) -> "TaskLabel":
        """Return the label of all rows from the first of this one to the last of the other."""
        if other.partition == self.partition:
            return replace(self, stop=other.stop)
        return TaskLabel(self.partition, self.start, other.stop, other.partition)


def label_of(task: Any) -> TaskLabel | None:  # noqa: ANN401
    """Return the label of a task, None if it has none; reads the footer if the task is a Parquet partition."""
    if isinstance(task, tuple):
        labels = [label for label in map(label_of, task) if label is not None]
        return labels[0].through(labels[-1]) if labels else None
    file = task if isinstance(task, PartitionFile) else getattr(task, "file", None)
    if isinstance(file, PartitionFile):
        with suppress(PartitionError):
            return _label_of_partition(file)
        return None
    label = getattr(task, "label", None)
    return label if isinstance(label, TaskLabel) else None


def _label_of_partition(file: PartitionFile) -> TaskLabel:
    sizes = measure_partition(file)
    return TaskLabel(file.name, 0, sizes.rows, bytes=_plan_bytes(sizes, sizes.group_bytes))


def _plan_bytes(sizes: FooterSizes, group_bytes: int) -> int:
    return plan_partition_bytes(group_bytes, 8 * BATCH_ROWS * sizes.columns)


def partition_needs(files: Sequence[PartitionFile]) -> Iterator[MemoryNeed]:
    """Yield the memory needed to read each partition; reads each footer when its need is requested."""
    return map_footers(partition_need, files)


def partition_need(file: PartitionFile) -> MemoryNeed:
    """Return the memory needed to read a partition; zero if its footer is unreadable, which is reported elsewhere."""
    try:
        sizes = measure_partition(file)
    except PartitionError:
        return MemoryNeed(0)
    return MemoryNeed(
        _plan_bytes(sizes, sizes.group_bytes),
        f"the partition {file.name} ({sizes.rows:,} rows)",
        "write the partition in smaller row groups, which are decoded one at a time",
        least_bytes=_plan_bytes(sizes, 0),
    )
