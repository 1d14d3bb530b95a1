"""Reading objects ahead: many small reads of a Parquet file, one after the other, become few requests."""

import io
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

AHEAD_BYTES, FOOTER_BYTES = 8 * 2**20, 2**16
"""What is read at least, and kept; and where nothing but the footer is asked for."""


class ReadAhead(io.RawIOBase):
    """A file over one of Arrow's; a read beyond what is kept brings `ahead_bytes`, or what it needs if more."""

    def __init__(
        self,
        file: Any,  # noqa: ANN401 (pyarrow has no types)
        guard: Callable[[], AbstractContextManager[None]],
        ahead_bytes: int,
    ) -> None:
        self._file, self._guard, self._ahead_bytes = file, guard, ahead_bytes
        self._size, self._position = int(file.size()), 0
        self._start, self._kept = 0, memoryview(b"")

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it has positions."""
        return True

    def size(self) -> int:
        """Return the size in bytes."""
        return self._size

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position and return it."""
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes; raise StoreError where they cannot be had."""
        left = max(self._size - self._position, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        first = self._position - self._start
        if not 0 <= first <= len(self._kept) - wanted:
            self._bring(wanted)
            first = self._position - self._start
        self._position += wanted
        return bytes(self._kept[first : first + wanted])

    def close(self) -> None:
        """Close the file and forget what is kept."""
        if not self.closed:
            self._kept = memoryview(b"")
            self._file.close()
        super().close()

    def _bring(self, wanted: int) -> None:
        """Bring what is wanted and what comes after it; at the end of the file, what comes before it."""
        length = min(max(wanted, self._ahead_bytes), self._size)
        self._start = min(self._position, self._size - length)
        with self._guard():
            self._kept = memoryview(self._file.read_at(length, self._start))
