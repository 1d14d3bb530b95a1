"""The bytes that a run needs at its peak, computed from the job and the store before the first row is read."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.base.executor import MemoryNeed

_BASE_BYTES = 400 * 2**20
"""The interpreter, its libraries and their buffers."""

_WORK_BYTES = 128 * 2**20
"""The part of _BASE_BYTES held by ingest, decoding and evaluation rather than by imports."""

_LEARNER_MATRICES = 14
"""P, K, P⁻¹ and K⁻¹, the copies that a refresh and a commit need, and the state of the last refresh, in matrices of
(max_basis × max_basis) float64.
"""

_CELL_MATRICES = 5
"""The triangles of P and K of a cell: before a part and after it, with published coefficients, and in two records."""

_SENT_MATRICES = 4
"""The triangles of P and K of a cell that a worker has: received, learned, and on their way there and back."""

_PARTS = 2
"""Parts of rows alive at once: the blocks of one, and these joined."""

_REFIT_MATRICES = 16
"""K and P of the model before and after, a state held for a checkpoint, the sums of a task, a segment and all rows, and
the copies of a factorization.
"""

_METRIC_MATRICES = 8
"""Memory of a pilot's sums of three groups, while a task forms them, of the triangles of earlier ones and of a kept
model, in matrices of (basis × basis) float64.
"""

_METRIC_THREAD_MATRICES = 3
"""Memory of each further thread that forms or solves these sums, in such matrices."""

_SUMS_ALIVE = 4
"""Sums alive at once, of every fold: those of a task, of earlier tasks, of both together, and of a checkpoint."""

_SUMS_SENT = 5
"""Sums alive at once in a worker, of every fold: those of the present task, two or three that wait to be fetched, and
triangles in transfer."""

_CHOICE_MATRICES = 6
"""Memory of selection, factorization and evaluation in addition to the sums, in matrices of one fold."""

_DENSE_MATRICES = 5
"""Memory of a method that holds a kernel matrix of all rows, in matrices of that size."""

_KERNEL_BLOCKS = 3
"""Blocks of kernel values alive at once: exponents, values, and rows grouped by fold."""

KERNEL_BYTES = 16 * 2**20
"""The most bytes of kernel values computed at once, unless 256 rows need more."""

_DECODED_BATCHES = 6
"""Batches alive at once: Arrow's, their values as float64, and the buffers of checks and hashes."""

_PREFETCHED_BLOCKS = 4
"""Blocks alive at once: the one being learned, those in the queue, and the one being decoded."""


class MemoryPlan(Protocol):
    """The memory of a piece of work at its peak."""

    @property
    def total_bytes(self) -> int:
        """The bytes of the whole process."""

    @property
    def work(self) -> str:
        """What needs them, as a refusal begins: with the setting that decides."""

    @property
    def share(self) -> str:
        """Which part of them the setting decides; empty if all of it."""

    @property
    def remedy(self) -> str:
        """How to need less."""

    @property
    def least_bytes(self) -> int:
        """The bytes that it needs whatever the remedy lowers."""


def check_plans(plans: Iterable[MemoryPlan], limit_bytes: int) -> None:
    """Raise MemoryRefused, with both numbers and a remedy, if one of the plans is above the limit.

    The message is about the plan that needs most, so that the number that it gives is enough for all of them.
    """
    most = max(plans, key=lambda plan: plan.total_bytes, default=None)
    if most is not None and most.total_bytes > limit_bytes:
        remedy = f"{most.remedy}, or " if most.least_bytes <= limit_bytes else ""
        raise MemoryRefused(
            f"{most.work} needs {show_need(most.total_bytes)} of memory{most.share}; {show_bytes(limit_bytes)} may be "
            f"used: {remedy}raise memory_limit"
        )


def threads_within(plan: "TrainingPlan | MetricPlan", limit_bytes: int, threads: int) -> int:
    """Return how many of these threads the memory limit leaves room for, at least one."""
    return max(1, min(threads, 1 + (limit_bytes - plan.total_bytes) // max(plan.thread_bytes, 1)))


def bytes_in_threads(plan: MemoryPlan, limit_bytes: int, threads: int) -> int:
    """Return the bytes of the whole process in as many of these threads as it uses."""
    if not isinstance(plan, TrainingPlan | MetricPlan):
        return plan.total_bytes
    return plan.total_bytes + (threads_within(plan, limit_bytes, threads) - 1) * plan.thread_bytes


@dataclass(frozen=True)
class TrainingPlan:
    """The memory of one online training process at its peak."""

    max_basis: int
    """The largest dictionary."""
    n_features: int
    """Features of a row."""
    block_bytes: int
    """Bytes of one block of features."""
    experts: int = 1
    """The number of cells that have a learner each."""
    part_bytes: int = 0
    """Bytes of the features that are divided among the cells at once."""
    chooses_experts: bool = False
    """Whether their number is yet to be chosen, and this is the largest."""

    @property
    def learner_bytes(self) -> int:
        """The learner's matrices and its dictionary, and those of all other cells."""
        n, more = self.max_basis, self.experts - 1
        return plan_learner_bytes(n, self.n_features) + 8 * more * n * (_CELL_MATRICES * n + 4 * self.n_features)

    @property
    def thread_bytes(self) -> int:
        """The bytes of each further thread that cells are shared by, the matrices of one; 0 without cells."""
        return plan_learner_bytes(self.max_basis, self.n_features) if self.experts > 1 else 0

    def learner_room_bytes(self, limit_bytes: int) -> int:
        """Return the bytes that the limit leaves for a learner whose dictionary has no limit."""
        return limit_bytes - (self.total_bytes - self.learner_bytes)

    @property
    def total_bytes(self) -> int:
        """The bytes of the whole process."""
        return _BASE_BYTES + self.learner_bytes + _stream_bytes(self.block_bytes, self.part_bytes)

    def worker_need(self, workers: int) -> MemoryNeed:
        """Return the memory of one of so many workers that share the cells."""
        share = 8 * _SENT_MATRICES * self.experts * self.max_basis * (self.max_basis + self.n_features)
        need = _BASE_BYTES + _stream_bytes(self.block_bytes, self.part_bytes) + share // max(1, workers)
        return MemoryNeed(need, f"a share of {self.experts} cells with max_basis = {self.max_basis}", self.remedy)

    @property
    def work(self) -> str:
        """What needs the memory."""
        most = "up to " if self.chooses_experts else ""
        cells = f" in each of {most}{self.experts} cells" if self.experts > 1 else ""
        return f"training with max_basis = {self.max_basis}{cells}"

    @property
    def share(self) -> str:
        """The learner's part."""
        return f", {show_bytes(self.learner_bytes)} of it for the learner, the rest whatever max_basis is"

    @property
    def remedy(self) -> str:
        """How to need less."""
        if self.chooses_experts:
            return "lower max_basis, give experts a number"
        return "lower max_basis or experts" if self.experts > 1 else "lower max_basis"

    @property
    def least_bytes(self) -> int:
        """The bytes of a learner without vectors."""
        return self.total_bytes - self.learner_bytes


@dataclass(frozen=True)
class RefitPlan:
    """The memory of a refit at its peak: the sums of a task and of all rows, and the solution."""

    max_basis: int
    """The largest dictionary."""
    n_features: int
    """Features of a row."""
    block_bytes: int
    """Bytes of one block of features."""
    kernel_bytes: int
    """Bytes of the kernel values computed at once."""
    experts: int = 1
    """The number of cells that have a dictionary each."""
    part_bytes: int = 0
    """Bytes of the features that are divided among the cells at once."""

    @property
    def sums_bytes(self) -> int:
        """The matrices and the dictionary, of each cell."""
        matrices = _REFIT_MATRICES if self.experts == 1 else _CELL_MATRICES + 1
        return 8 * self.experts * self.max_basis * (matrices * self.max_basis + 4 * self.n_features)

    @property
    def total_bytes(self) -> int:
        """The bytes of the whole process."""
        return _BASE_BYTES + self.sums_bytes + _stream_bytes(self.block_bytes, self.part_bytes) + 2 * self.kernel_bytes

    @property
    def work(self) -> str:
        """What needs the memory."""
        return f"refitting with max_basis = {self.max_basis}"

    @property
    def share(self) -> str:
        """The part of the sums."""
        return f", {show_bytes(self.sums_bytes)} of it for sums"

    @property
    def remedy(self) -> str:
        """How to need less."""
        return "lower max_basis, set refit = false"

    @property
    def least_bytes(self) -> int:
        """None without a refit."""
        return 0


@dataclass(frozen=True)
class MetricPlan:
    """The memory of learning a metric at its peak: the sums of every group of the pilot's rows, and a solution."""

    basis: int
    """The vectors of the pilot's models."""
    n_features: int
    """Features of a row."""
    block_bytes: int
    """Bytes of one block of features."""

    @property
    def sums_bytes(self) -> int:
        """The matrices, the vectors, and the metric."""
        return 8 * (_METRIC_MATRICES * self.basis**2 + 4 * self.basis * self.n_features + 8 * self.n_features**2)

    @property
    def total_bytes(self) -> int:
        """The bytes of the whole process."""
        return _BASE_BYTES + self.sums_bytes + self._rows_bytes

    @property
    def thread_bytes(self) -> int:
        """The bytes of each further thread: its sums and rows."""
        return 8 * _METRIC_THREAD_MATRICES * self.basis**2 + self._rows_bytes

    @property
    def _rows_bytes(self) -> int:
        return _PREFETCHED_BLOCKS * self.block_bytes + _KERNEL_BLOCKS * KERNEL_BYTES

    @property
    def work(self) -> str:
        """What needs the memory."""
        return f"learning a metric with metric_options.basis = {self.basis}"

    @property
    def share(self) -> str:
        """The part of the sums."""
        return f", {show_bytes(self.sums_bytes)} of it for sums"

    @property
    def remedy(self) -> str:
        """How to need less."""
        return "lower metric_options.basis"

    @property
    def least_bytes(self) -> int:
        """The bytes without the sums."""
        return self.total_bytes - self.sums_bytes


@dataclass(frozen=True)
class BatchPlan:
    """The memory of a batch method at its peak: the sums of a task and of all rows, and the selection."""

    method: str
    """The method's name."""
    n_functions: int
    """Functions whose products are summed at once: candidates, or basis vectors and the constant 1."""
    folds: int
    """Folds with sums of their own, counted over all kernels."""
    n_features: int
    """Features of a row."""
    block_bytes: int
    """Bytes of one block of features."""
    dense_rows: int = 0
    """Rows whose kernel matrix is held, by methods that are not sums over rows."""

    @property
    def sums_bytes(self) -> int:
        """Bytes of the sums of a task, of earlier tasks and their total, and of the matrices of the selection."""
        matrices = _SUMS_ALIVE * self.folds + _CHOICE_MATRICES
        return 8 * self.n_functions * (matrices * self.n_functions + 4 * self.n_features)

    @property
    def worker_bytes(self) -> int:
        """Bytes of a worker, which sums the rows of a task while it sends the sums of others."""
        sums = 8 * self.n_functions**2 * _SUMS_SENT * self.folds
        return _BASE_BYTES + sums + self._rows_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes of one process that does everything."""
        return _BASE_BYTES - _WORK_BYTES + self.own_bytes

    @property
    def own_bytes(self) -> int:
        """Bytes of a run of the method, without the interpreter and its libraries."""
        return _WORK_BYTES + self.sums_bytes + self._rows_bytes + 8 * _DENSE_MATRICES * self.dense_rows**2

    @property
    def _rows_bytes(self) -> int:
        return _PREFETCHED_BLOCKS * self.block_bytes + _KERNEL_BLOCKS * max(KERNEL_BYTES, 8 * 256 * self.n_functions)

    @property
    def work(self) -> str:
        """What needs the memory."""
        rows = f" and {self.dense_rows} rows in memory" if self.dense_rows else ""
        return f"method {self.method} with sums of {self.n_functions} vectors for {self.folds} folds{rows}"

    @property
    def share(self) -> str:
        """Nothing: vectors and folds decide all of it."""
        return ""

    @property
    def remedy(self) -> str:
        """How to need less."""
        return "lower the number of vectors or folds"

    @property
    def least_bytes(self) -> int:
        """The bytes without the sums."""
        return self.total_bytes - self.sums_bytes


def _stream_bytes(block_bytes: int, part_bytes: int) -> int:
    return _PREFETCHED_BLOCKS * block_bytes + _PARTS * part_bytes


def plan_partition_bytes(group_bytes: int, batch_bytes: int) -> int:
    """Return the bytes of a process that decodes a Parquet partition: its largest row group, some batches."""
    return _BASE_BYTES + group_bytes + _DECODED_BATCHES * batch_bytes


def plan_block_bytes(block_bytes: int) -> int:
    """Return the bytes of a process that reads and standardizes blocks of rows."""
    return _BASE_BYTES + _PREFETCHED_BLOCKS * block_bytes


def plan_learner_bytes(n_basis: int, n_features: int) -> int:
    """Return the bytes of a learner's matrices and dictionary at their peak."""
    return 8 * n_basis * (_LEARNER_MATRICES * n_basis + 4 * n_features)


def fits_growth(n_basis: int, n_features: int, limit_bytes: int | None) -> bool:
    """Return whether a learner with this many basis vectors fits the limit, if there is one."""
    return limit_bytes is None or plan_learner_bytes(n_basis, n_features) <= limit_bytes


def check_growth(n_basis: int, n_features: int, row: int, limit_bytes: int) -> None:
    """Raise MemoryRefused, with the numbers and a remedy, if the learner cannot grow beyond `n_basis` basis vectors."""
    needed = plan_learner_bytes(n_basis + 1, n_features)
    if needed > limit_bytes:
        raise MemoryRefused(
            f"the dictionary has no cap and cannot grow beyond {n_basis} basis vectors, reached before row {row} "
            f"(from zero): one more brings the learner to {show_bytes(needed)}, and {show_bytes(limit_bytes)} may be "
            f"used for it; raise memory_limit, or begin a new model with max_basis of at most {n_basis} or a higher "
            "novelty_threshold"
        )


def show_bytes(count: float) -> str:
    """Return a number of bytes as text with three digits and a decimal unit: 1.53 GB."""
    value, units = float(count), ["bytes", "kB", "MB", "GB", "TB", "PB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"


def show_need(count: int) -> str:
    """Return a number of bytes as `show_bytes` does, but rounded up: who gives that much gives enough."""
    unit = 10 ** max(0, len(str(count)) - 3)
    return show_bytes(math.ceil(count / unit) * unit)
