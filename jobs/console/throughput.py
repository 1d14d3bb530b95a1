"""Throughput of a step and its remaining time, from its last minute, since the beginning is seldom typical."""

import math
from collections import deque
from time import monotonic

WINDOW_SECONDS = 60.0
"""The time over which the throughput is averaged."""

_SAMPLE_SECONDS = 0.5


class Throughput:
    """Counts the rows of a step."""

    def __init__(self, total_rows: int | None, partitions: int | None) -> None:
        """Begin; progress is measured by rows, or by partitions if the number of rows is not known."""
        self._total_rows, self._partitions = total_rows, partitions
        self.rows = self.parts = 0
        self._began = monotonic()
        self._samples = deque([(self._began, 0, 0)])
        self._advanced = False

    def advance(self, rows: int) -> None:
        """Count rows. The first call does not count for the throughput: a resumed run has these rows at once."""
        self.rows, self.parts = self.rows + rows, self.parts + 1
        sample = monotonic(), self.rows, self.parts
        if not self._advanced:
            self._advanced, self._samples = True, deque([sample])
            return
        if len(self._samples) > 1 and sample[0] - self._samples[-2][0] < _SAMPLE_SECONDS:
            self._samples.pop()
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1][0] < sample[0] - WINDOW_SECONDS:
            self._samples.popleft()

    @property
    def rows_per_second(self) -> int | None:
        """The throughput of the last minute; None until it is known."""
        speed = self._speed(1)
        return None if speed is None else round(speed)

    @property
    def mean_rows_per_second(self) -> int:
        """The throughput since the beginning."""
        return round(self.rows / max(monotonic() - self._began, 1e-9))

    @property
    def percent(self) -> float | None:
        """The percentage that is done; None if the total is not known."""
        done, whole = self._done_and_whole()
        return round(min(100.0, 100.0 * done / whole), 1) if whole else None

    @property
    def remaining_seconds(self) -> int | None:
        """How long the rest takes at this throughput; None if that is not known."""
        done, whole = self._done_and_whole()
        speed = self._speed(1 if self._total_rows else 2)
        return math.ceil(max(0, whole - done) / speed) if whole and speed else None

    def _done_and_whole(self) -> tuple[int, int]:
        return (self.rows, self._total_rows) if self._total_rows else (self.parts, self._partitions or 0)

    def _speed(self, which: int) -> float | None:
        first, last = self._samples[0], self._samples[-1]
        return (last[which] - first[which]) / (last[0] - first[0]) if last[0] > first[0] else None
