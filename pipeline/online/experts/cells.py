"""Cells: space cut by centres, every row belonging to the nearest one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers, check_rows
from ridgestream.pipeline.base.blas_threads import map_in_threads, one_blas_thread
from ridgestream.pipeline.base.errors import InputError

ROUTED_ROWS = 2048
"""Rows whose distances from all centres are computed at once."""

BLUR = 1e-12
"""Differences of products below this share of their size are computed again, feature by feature."""


@dataclass(frozen=True)
class Cells:
    """The cells of some centres."""

    centres: Floats
    """The centres, shape (n_cells, n_features)."""

    @classmethod
    def of(cls, centres: npt.ArrayLike) -> Self:
        """Return the cells of these centres; raises InputError unless there are some, all finite and different."""
        checked = check_rows(centres, name="centres").copy()
        if not len(checked):
            raise InputError("centres must have at least one row, they have none")
        _, first, group = np.unique(checked, axis=0, return_index=True, return_inverse=True)
        repeated = np.flatnonzero(first[group.ravel()] != np.arange(len(checked)))
        if repeated.size:
            other = first[group.ravel()][repeated[0]]
            raise InputError(f"centres {other} and {repeated[0]} are the same: leave one of them out")
        return cls(checked)

    def __len__(self) -> int:
        return len(self.centres)

    def nearest(self, rows: Floats, threads: int = 1) -> Integers:
        """Return the number of each row's nearest centre; O(n_cells · n_features) a row, which `threads` share.

        Of several at the same distance it is the lowest. How many rows are asked for at once does not matter.
        """
        half = 0.5 * np.einsum("ij,ij->i", self.centres, self.centres)

        def of_rows(start: int) -> Integers:
            return self._nearest(rows[start : start + ROUTED_ROWS], half)

        with one_blas_thread():
            found = map_in_threads(of_rows, range(0, len(rows), ROUTED_ROWS), threads)
            return np.concatenate([np.empty(0, dtype=np.int64), *found])

    def groups(self, rows: Floats, answering: Integers | None = None) -> Iterator[tuple[int, Integers]]:
        """Yield each cell that has some of the rows, in ascending order, and the indices of its rows, likewise.

        With `answering`, the numbers of some cells in ascending order, these alone divide the rows.
        """
        if answering is not None and not len(answering):
            return
        cells = self.nearest(rows) if answering is None else answering[Cells(self.centres[answering]).nearest(rows)]
        yield from group(cells)

    def _nearest(self, rows: Floats, half: Floats) -> Integers:
        """Return the nearest centres by x·c − ‖c‖²/2, or by differences where rounding could decide."""
        scores = rows @ self.centres.T - half
        found: Integers = np.argmax(scores, axis=1)
        size = np.sqrt(np.einsum("ij,ij->i", rows, rows) * 2 * half.max()) + half.max()
        least = scores[np.arange(len(rows)), found] - BLUR * size
        near = scores >= least[:, np.newaxis]
        if np.count_nonzero(near) == len(rows):  # each row's own centre alone
            return found
        for row in np.flatnonzero(np.count_nonzero(near, axis=1) > 1):
            differences = self.centres - rows[row]
            found[row] = np.argmin(np.einsum("ij,ij->i", differences, differences))
        return found


def group(cells: Integers) -> Iterator[tuple[int, Integers]]:
    """Yield each of these cells, in ascending order, and the indices at which it stands, likewise."""
    order = np.argsort(cells, kind="stable")
    present, starts = np.unique(cells[order], return_index=True)
    yield from zip(present.tolist(), np.split(order, starts)[1:], strict=True)
