"""Read-ahead for objects: the many small, sequential reads of a Parquet file become few requests."""

import io
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

AHEAD_BYTES, FOOTER_BYTES = 8 * 2**20, 2**16
"""Bytes requested and buffered at least; and when only the footer is needed."""


class ReadAhead(io.RawIOBase):
    """A file object over an Arrow file; a read outside the buffer requests `ahead_bytes`, or more if it needs more."""

    def __init__(
        self,
        file: Any,  # noqa: ANN401 (pyarrow has no types)
        errors: Callable[[], AbstractContextManager[None]],
        ahead_bytes: int,
    ) -> None:
        self._file, self._errors, self._ahead_bytes = file, errors, ahead_bytes
        self._size, self._position = int(file.size()), 0
        self._start, self._buffer = 0, memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def size(self) -> int:
        """Return the size in bytes."""
        return self._size

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position and return it."""
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes; raises StoreError if they cannot be read."""
        remaining = max(self._size - self._position, 0)
        count = remaining if size is None or size < 0 else min(size, remaining)
        first = self._position - self._start
        if not 0 <= first <= len(self._buffer) - count:
            self._fill_buffer(count)
            first = self._position - self._start
        self._position += count
        return bytes(self._buffer[first : first + count])

    def close(self) -> None:
        """Close the file and release the buffer."""
        if not self.closed:
            self._buffer = memoryview(b"")
            self._file.close()
        super().close()

    def _fill_buffer(self, count: int) -> None:
        """Read at least `count` bytes at the position and what follows; near the end of the file, what precedes."""
        length = min(max(count, self._ahead_bytes), self._size)
        self._start = min(self._position, self._size - length)
        with self._errors():
            self._buffer = memoryview(self._file.read_at(length, self._start))
