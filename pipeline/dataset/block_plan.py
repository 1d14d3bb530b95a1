"""Block ranges: the division of segments into blocks, which depends on the store alone, so that all runs agree."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True)
class BlockRange:
    """Rows of one segment; no block spans two."""

    segment: int
    """The segment's number."""
    start: int
    """First row."""
    stop: int
    """One past the last row."""
    ends_segment: bool
    """Whether the segment ends here."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.stop - self.start

    def shifted(self, rows: int) -> Self:
        """Return the range shifted by `rows` rows."""
        return replace(self, start=self.start + rows, stop=self.stop + rows)


Part = tuple[BlockRange, ...]
"""Consecutive ranges of one segment."""


def plan_blocks(segments: Sequence[tuple[int, int, int]], block_bytes: int, row_bytes: int) -> Iterator[BlockRange]:
    """Yield the blocks of each (segment, rows, chunk_rows) in turn; an empty segment has one empty block.

    A block is a multiple of 256 rows, which every learner's own block size divides, within `block_bytes` at `row_bytes`
    per row, and at most one chunk of the store.
    """
    for segment, rows, chunk_rows in segments:
        fitting = max(256, block_bytes // max(1, row_bytes))
        step = min(chunk_rows, 1 << (fitting.bit_length() - 1))
        starts = range(0, rows, max(256, step)) or range(1)
        for start in starts:
            stop = min(start + max(256, step), rows)
            yield BlockRange(segment, start, stop, stop == rows)
