"""The bundled forest rows as arrays, and an endless stream of rows like them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from ridgestream.pipeline.sums.moments import Moments

FOREST = Path(__file__).parents[3] / "jobs" / "recipes" / "forest"
PARTITION_ROWS = 50_000
N_FEATURES = 54
N_MEASURED = 10
"""The first columns are quantities of the map, in whole units; the others are flags."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Rows in memory with their targets."""

    X: Array
    """Features, shape (rows, 54)."""
    y: Array
    """±1, class 2 against the rest, shape (rows,)."""

    def first(self, rows: int) -> "Rows":
        """Return the first `rows` rows, sharing memory."""
        return Rows(self.X[:rows], self.y[:rows])


@dataclass(frozen=True)
class Scaling:
    """Standardizes raw features."""

    centre: Array
    """Means of the first partition, shape (54,)."""
    scale: Array
    """Its standard deviations, one where a column is constant."""

    @classmethod
    def of(cls, X: Array) -> "Scaling":
        """Compute it from the first partition of raw rows, as the main job does."""
        moments = Moments.of(X[:PARTITION_ROWS])
        return cls(moments.mean, moments.deviation())

    def apply(self, X: Array) -> Array:
        """Standardize raw rows in place, which avoids a second copy in memory, and return them."""
        X -= self.centre
        X /= self.scale
        return X


def read_forest(part: str, rows: int | None = None, *, classes: bool = False) -> tuple[Array, Array]:
    """Return raw features (rows, 54) and ±1 targets of the bundled rows: class 2 against the rest (rows,).

    With `classes`, the targets are each of the seven classes against the rest, (rows, 7). `part` is "train" or "test".
    With `rows`, only the partitions that hold the first `rows` rows are read.
    """
    files = sorted((FOREST / part).glob("*.parquet"))
    table = pq.read_table(files[: None if rows is None else -(-max(rows, 1) // PARTITION_ROWS)])
    names = [name for name in table.column_names if name != "Cover_Type"]
    features = np.empty((table.num_rows, len(names)))
    for column, name in enumerate(names):
        features[:, column] = table[name].to_numpy()
    label = table["Cover_Type"].to_numpy()[:, np.newaxis]
    return features, np.where(label == np.arange(1, 8), 1.0, -1.0) if classes else np.where(label[:, 0] == 2, 1.0, -1.0)


def standardized_forest(rows: int = 500_000) -> tuple[Rows, Rows]:
    """Return the first `rows` training rows and the 81,012 test rows, standardized by the first partition."""
    (X, y), (X_test, y_test) = read_forest("train", rows), read_forest("test")
    scaling = Scaling.of(X)
    return Rows(scaling.apply(X), y).first(rows), Rows(scaling.apply(X_test), y_test)


def stream_like_forest(seed: int = 0) -> Iterator[Rows]:
    """Yield an endless stream of standardized partitions: the bundled ones, then resampled and perturbed rows.

    −1, 0 or 1 is added to each measured quantity of a resampled row; flags and targets are unchanged.
    """
    X, y = read_forest("train")
    scaling, rng = Scaling.of(X), np.random.default_rng(seed)
    for start in range(0, len(X), PARTITION_ROWS):
        part = slice(start, start + PARTITION_ROWS)
        yield Rows(scaling.apply(X[part].copy()), y[part])
    while True:
        indices = rng.integers(len(X), size=PARTITION_ROWS)
        features = X[indices]
        features[:, :N_MEASURED] += rng.integers(-1, 2, size=(PARTITION_ROWS, N_MEASURED))
        yield Rows(scaling.apply(features), y[indices])
