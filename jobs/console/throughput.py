"""How fast a step goes, and how long it will take: from its last minute, since a beginning is seldom typical."""

import math
from collections import deque
from time import monotonic

WINDOW_SECONDS = 60.0
"""The time over which speed is told."""

_SAMPLE_SECONDS = 0.5


class Pace:
    """The rows of one step."""

    def __init__(self, total_rows: int | None, partitions: int | None) -> None:
        """Begin; the share that is done is that of the rows, or of the partitions where the rows are not known."""
        self._total_rows, self._partitions = total_rows, partitions
        self.rows = self.parts = 0
        self._began = monotonic()
        self._samples = deque([(self._began, 0, 0)])
        self._advanced = False

    def advance(self, rows: int) -> None:
        """Count rows. The first time does not count for the speed: a run that goes on has these at once."""
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
        """The speed; None as long as nothing is known of it."""
        speed = self._speed(1)
        return None if speed is None else round(speed)

    @property
    def mean_rows_per_second(self) -> int:
        """The speed from the beginning on."""
        return round(self.rows / max(monotonic() - self._began, 1e-9))

    @property
    def percent(self) -> float | None:
        """The share that is done; None where the whole is not known."""
        done, whole = self._done_and_whole()
        return round(min(100.0, 100.0 * done / whole), 1) if whole else None

    @property
    def remaining_seconds(self) -> int | None:
        """How long the rest takes at this speed; None where that is not known."""
        done, whole = self._done_and_whole()
        speed = self._speed(1 if self._total_rows else 2)
        return math.ceil(max(0, whole - done) / speed) if whole and speed else None

    def _done_and_whole(self) -> tuple[int, int]:
        return (self.rows, self._total_rows) if self._total_rows else (self.parts, self._partitions or 0)

    def _speed(self, which: int) -> float | None:
        first, last = self._samples[0], self._samples[-1]
        return (last[which] - first[which]) / (last[0] - first[0]) if last[0] > first[0] else None
