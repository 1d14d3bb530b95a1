"""Bytes planned before a run, from the job and the store alone; the memory there is admits or refuses, nothing else."""

from dataclasses import dataclass

from ridgestream.pipeline.base.errors import MemoryRefused

_BASE_BYTES = 400 * 2**20
"""The interpreter, its libraries and their buffers."""

_WORK_BYTES = 128 * 2**20
"""The part of it that is what ingesting, decoding and evaluating hold, not what importing took."""

_LEARNER_MATRICES = 14
"""P, K, P⁻¹ and K⁻¹, and what a refresh and a commit hold beside them, and the last refresh at hand, in
(max_basis × max_basis) float64 matrices.
"""

_REFIT_MATRICES = 16
"""K and P of the model before and now, and at hand, sums that grow, sums of a segment and of all, and what factorizing
holds.
"""

_SUMS_ALIVE = 3
"""Sums alive at once, of every fold: those of a task, those before it, and both together."""

_SUMS_SENT = 5
"""Sums alive at once in a worker: those that grow, two that wait to be fetched, and copies on their way."""

_CHOICE_MATRICES = 6
"""What choosing, factorizing and judging hold beside the sums, in matrices of one fold."""

_DENSE_MATRICES = 5
"""What a method holds that keeps a kernel matrix of all rows, in matrices of that size."""

_KERNEL_BLOCKS = 3
"""Blocks of kernel values alive at once: exponents, values, and rows brought together by their folds."""

KERNEL_BYTES = 16 * 2**20
"""What the kernel values formed at once may take, unless 256 rows take more."""

_DECODED_BATCHES = 6
"""Batches alive at once: Arrow's, their values as float64, and what checks and hashes them."""

_PREFETCHED_BLOCKS = 4
"""Blocks alive at once: the one being learned, those that wait, and the one being decoded."""


@dataclass(frozen=True)
class TrainingPlan:
    """What one training process needs at its peak."""

    max_basis: int
    """The largest dictionary."""
    n_features: int
    """Features of a row."""
    block_bytes: int
    """Bytes of one block of features."""

    @property
    def learner_bytes(self) -> int:
        """The learner's matrices and its dictionary."""
        return plan_learner_bytes(self.max_basis, self.n_features)

    def learner_room_bytes(self, limit_bytes: int) -> int:
        """Return what the limit leaves for a learner whose dictionary has no cap."""
        return limit_bytes - (self.total_bytes - self.learner_bytes)

    @property
    def total_bytes(self) -> int:
        """Everything."""
        return _BASE_BYTES + self.learner_bytes + _PREFETCHED_BLOCKS * self.block_bytes

    def check(self, limit_bytes: int) -> None:
        """Raise MemoryRefused, with both numbers and a way out, if the plan is above the limit."""
        if self.total_bytes > limit_bytes:
            raise MemoryRefused(
                f"training with max_basis = {self.max_basis} needs {show_bytes(self.total_bytes)} of memory, "
                f"{show_bytes(self.learner_bytes)} of it for the learner, the rest whatever max_basis is; "
                f"{show_bytes(limit_bytes)} may be used: "
                "lower max_basis, or raise memory_limit"
            )


@dataclass(frozen=True)
class RefitPlan:
    """What a process needs at its peak that sums the rows of a task, adds up those of all, and solves."""

    max_basis: int
    """The largest dictionary."""
    n_features: int
    """Features of a row."""
    block_bytes: int
    """Bytes of one block of features."""
    kernel_bytes: int
    """Bytes of the kernel values that are formed at once."""

    @property
    def sums_bytes(self) -> int:
        """The matrices and the dictionary."""
        return 8 * self.max_basis * (_REFIT_MATRICES * self.max_basis + 4 * self.n_features)

    @property
    def total_bytes(self) -> int:
        """Everything."""
        return _BASE_BYTES + self.sums_bytes + _PREFETCHED_BLOCKS * self.block_bytes + 2 * self.kernel_bytes

    def check(self, limit_bytes: int) -> None:
        """Raise MemoryRefused, with both numbers and a way out, if the plan is above the limit."""
        if self.total_bytes > limit_bytes:
            raise MemoryRefused(
                f"refitting with max_basis = {self.max_basis} needs {show_bytes(self.total_bytes)} of memory, "
                f"{show_bytes(self.sums_bytes)} of it for sums; "
                f"{show_bytes(limit_bytes)} may be used: lower max_basis, raise memory_limit, or leave refit off"
            )


@dataclass(frozen=True)
class BatchPlan:
    """What a process needs at its peak that sums the rows of a task, adds up those of all, and chooses."""

    method: str
    """The method's name."""
    n_functions: int
    """Functions whose products are summed at once: candidates, or basis vectors and the constant one."""
    folds: int
    """Folds whose sums are kept apart, those of all kernels together."""
    n_features: int
    """Features of a row."""
    block_bytes: int
    """Bytes of one block of features."""
    dense_rows: int = 0
    """Rows whose kernel matrix is formed, by methods that are not sums over rows."""

    @property
    def sums_bytes(self) -> int:
        """Sums of a task, of the tasks before it and of both together, and the matrices that choosing makes."""
        matrices = _SUMS_ALIVE * self.folds + _CHOICE_MATRICES
        return 8 * self.n_functions * (matrices * self.n_functions + 4 * self.n_features)

    @property
    def worker_bytes(self) -> int:
        """Everything that a worker holds, which sums the rows of a task while it sends the sums of others."""
        sums = 8 * self.n_functions**2 * (_SUMS_SENT * self.folds + _CHOICE_MATRICES // 2)
        return _BASE_BYTES + sums + self._rows_bytes

    @property
    def total_bytes(self) -> int:
        """Everything that one process holds that does all of it."""
        return _BASE_BYTES - _WORK_BYTES + self.own_bytes

    @property
    def own_bytes(self) -> int:
        """What a run of the method holds, beside the interpreter and its libraries."""
        return _WORK_BYTES + self.sums_bytes + self._rows_bytes + 8 * _DENSE_MATRICES * self.dense_rows**2

    @property
    def _rows_bytes(self) -> int:
        return _PREFETCHED_BLOCKS * self.block_bytes + _KERNEL_BLOCKS * max(KERNEL_BYTES, 8 * 256 * self.n_functions)

    def check(self, limit_bytes: int) -> None:
        """Raise MemoryRefused, with both numbers and a way out, if the plan is above the limit."""
        if self.total_bytes > limit_bytes:
            rows = f" and {self.dense_rows} rows in memory" if self.dense_rows else ""
            raise MemoryRefused(
                f"method {self.method} with sums of {self.n_functions} vectors for {self.folds} folds{rows} needs "
                f"{show_bytes(self.total_bytes)} of memory; {show_bytes(limit_bytes)} may be used: lower the number of "
                "vectors or folds, or raise memory_limit"
            )


def plan_partition_bytes(group_bytes: int, batch_bytes: int) -> int:
    """Return what a process needs that decodes a Parquet partition: its largest row group, and some batches of rows."""
    return _BASE_BYTES + group_bytes + _DECODED_BATCHES * batch_bytes


def plan_block_bytes(block_bytes: int) -> int:
    """Return what a process needs that reads and standardizes blocks of rows."""
    return _BASE_BYTES + _PREFETCHED_BLOCKS * block_bytes


def plan_learner_bytes(n_basis: int, n_features: int) -> int:
    """Return what a learner's matrices and its dictionary take at their peak."""
    return 8 * n_basis * (_LEARNER_MATRICES * n_basis + 4 * n_features)


def fits_growth(n_basis: int, n_features: int, limit_bytes: int | None) -> bool:
    """Tell whether a learner with so many basis vectors fits."""
    return limit_bytes is None or plan_learner_bytes(n_basis, n_features) <= limit_bytes


def check_growth(n_basis: int, n_features: int, row: int, limit_bytes: int) -> None:
    """Raise MemoryRefused, with the numbers and a way out, if one more basis vector than `n_basis` is too many."""
    needed = plan_learner_bytes(n_basis + 1, n_features)
    if needed > limit_bytes:
        raise MemoryRefused(
            f"the dictionary has no cap and cannot grow beyond {n_basis} basis vectors, reached before row {row} "
            f"(from zero): one more brings the learner to {show_bytes(needed)}, and {show_bytes(limit_bytes)} may be "
            f"used for it; raise memory_limit, or begin a new model with max_basis of at most {n_basis} or a higher "
            "novelty_threshold"
        )


def show_bytes(count: int) -> str:
    """Return a count of bytes with three digits and a unit."""
    value, units = float(count), ["bytes", "kB", "MB", "GB", "TB", "PB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"
