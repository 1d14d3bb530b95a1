"""A batch of rows as stored: raw numbers, category codes, targets and weights."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Rows:
    """A batch of consecutive rows."""

    numeric: npt.NDArray[np.floating]
    """Numeric, boolean and timestamp features, raw, shape (rows, n_numeric), float32 or float64; NaN for a missing
    value."""
    codes: npt.NDArray[np.int32]
    """Categorical features as indices into the segment's own tables, shape (rows, n_categorical); −1 for a missing
    value."""
    targets: npt.NDArray[np.float64] | None
    """Shape (rows, n_targets); ±1 for one class against the rest, codes of the segment's own class table for
    multi-class targets; None for rows to be predicted."""
    weights: npt.NDArray[np.float64] | None
    """Shape (rows,); None if the store has no weight column."""
    ahead: npt.NDArray[np.float64] | None = None
    """Of transitions, the raw features after the step, zeros where an episode ended, and 1 there, else 0, shape (rows,
    n_numeric + 1); None for other rows."""

    def __len__(self) -> int:
        return len(self.numeric)

    def incomplete(self) -> npt.NDArray[np.bool_]:
        """Return which rows have a missing value, shape (rows,)."""
        mask = np.isnan(self.numeric).any(axis=1) | (self.codes < 0).any(axis=1)
        if self.targets is not None:
            mask |= np.isnan(self.targets).any(axis=1)
        if self.weights is not None:
            mask |= np.isnan(self.weights)
        if self.ahead is not None:
            mask |= np.isnan(self.ahead).any(axis=1)
        return np.asarray(mask)

    def part(self, start: int, stop: int) -> Self:
        """Return the rows from `start` up to `stop`."""
        return self.take(slice(start, stop))

    def take(self, indices: slice | npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Self:
        """Return the rows at these indices."""
        targets = None if self.targets is None else self.targets[indices]
        weights = None if self.weights is None else self.weights[indices]
        ahead = None if self.ahead is None else self.ahead[indices]
        return type(self)(self.numeric[indices], self.codes[indices], targets, weights, ahead)


def join_rows(parts: list[Rows]) -> Rows:
    """Return the rows of all parts (at least one), in order."""
    targets = [part.targets for part in parts if part.targets is not None]
    weights = [part.weights for part in parts if part.weights is not None]
    ahead = [part.ahead for part in parts if part.ahead is not None]
    return Rows(
        np.concatenate([part.numeric for part in parts]),
        np.concatenate([part.codes for part in parts]),
        np.concatenate(targets) if targets else None,
        np.concatenate(weights) if weights else None,
        np.concatenate(ahead) if ahead else None,
    )


def regroup(batches: Iterable[Rows], rows: int) -> Iterator[Rows]:
    """Yield the same rows in batches of exactly `rows` rows, the last one possibly shorter."""
    waiting: list[Rows] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        if count >= rows:
            joined = join_rows(waiting)
            full = count - count % rows
            yield from (joined.part(start, start + rows) for start in range(0, full, rows))
            waiting, count = [joined.part(full, count)], count - full
    if count:
        yield join_rows(waiting)
