"""Which learned rows calibrate a model: a sample of fixed size in which recent rows weigh more.

Row t has the weight ω = (t + 1)³·exp(t / MEMORY_ROWS): the last rows count most, those of a model that had hardly
learned count least. Priority sampling (Duffield, Lund & Thorup 2007, "Priority sampling for estimation of arbitrary
subset sums") keeps the rows of largest priority ω/u, where u in (0, 1) is a hash of t. Each row that is kept stands for
the weight max(ω, τ), with τ the largest priority that was left out. A row's priority never changes, so the sample
depends on the number of rows alone, however they are divided into blocks and nights.
"""

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.sums.folds import scramble

MEMORY_ROWS = 20_000
"""The number of later rows after which a row's weight has fallen to 1/e."""

MOST_ROWS, LEAST_ROWS = 8192, 2048
"""The size of a sample: fewer rows where each has many outputs."""

_NUMBERS = 65_536
_REACH = 64
"""A row that is so many times MEMORY_ROWS old is never sampled."""

_STEP = 2**20
_NONE_LEFT_OUT = -1e300


def sample_size(n_outputs: int) -> int:
    """Return the number of rows that are kept of a model with this number of outputs."""
    return max(LEAST_ROWS, min(MOST_ROWS, _NUMBERS // n_outputs))


@dataclass(frozen=True)
class PrioritySample:
    """Rows by their numbers in the order of learning."""

    rows: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Their numbers, ascending, shape (n_kept,)."""
    threshold: float = _NONE_LEFT_OUT
    """log τ, the largest priority of a row that was left out."""

    @classmethod
    def of(cls, n_rows: int, size: int) -> Self:
        """Return the sample of the first `n_rows` rows; O(n_rows), at most 64 · MEMORY_ROWS."""
        sample = cls()
        for start in range(max(0, n_rows - _REACH * MEMORY_ROWS), n_rows, _STEP):
            sample, _ = sample.after(start, min(_STEP, n_rows - start), size)
        return sample

    def after(self, first: int, count: int, size: int) -> tuple[Self, Integers]:
        """Return the sample after `count` rows from number `first` on, and the positions of its rows.

        Positions are among the rows before, followed by the new ones.
        """
        rows = np.concatenate([self.rows, np.arange(first, first + count, dtype=np.int64)])
        priorities = _log_weights(rows) - np.log(_uniform(rows))
        order = np.argsort(priorities, kind="stable")
        left, kept = order[: max(0, len(rows) - size)], np.sort(order[max(0, len(rows) - size) :])
        threshold = max(self.threshold, float(priorities[left[-1]])) if len(left) else self.threshold
        return type(self)(rows[kept], threshold), kept

    @property
    def weights(self) -> Floats:
        """The weight that each row stands for, at most 1, shape (n_kept,)."""
        logs = np.maximum(_log_weights(self.rows), self.threshold)
        return np.asarray(np.exp(logs - logs.max(initial=_NONE_LEFT_OUT)))


def _log_weights(rows: Integers) -> Floats:
    return np.asarray(rows / MEMORY_ROWS + 3 * np.log1p(rows))


def _uniform(rows: Integers) -> Floats:
    """Return a hash of each number as a fraction above 0 and below 1."""
    return np.asarray(((scramble(rows.astype(np.uint64)) >> np.uint64(12)) + 0.5) * 2.0**-52)
