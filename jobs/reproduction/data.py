"""The sets of rows that studies read: Parquet files in a folder that the user names, and the bundled forest rows."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.recipes.bundled import read_recipe
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.stores.parquet.parquet_door import open_parquet

_AHEAD_BYTES = 2**20


@dataclass(frozen=True)
class Table:
    """A set of rows."""

    X: Floats
    """Raw features, an indicator for each word of a column of words, shape (rows, n_features)."""
    target: npt.NDArray[Any]
    """The column `target`, shape (rows,)."""
    continuous: npt.NDArray[np.bool_]
    """Which features have more than two values, shape (n_features,)."""


@dataclass(frozen=True)
class DataFolder:
    """A folder with a file NAME.parquet for each set, whose target is the column `target`."""

    path: Path | None
    """The folder; None if the user names none."""

    def table(self, name: str) -> Table:
        """Return a set of rows; raises JobFileError if there is none, or it has no target."""
        return _read_table(self.file(name))

    def file(self, name: str) -> Path:
        """Return the path of a set; raises JobFileError if there is none."""
        path = None if self.path is None else self.path / f"{name}.parquet"
        if path is None or not path.is_file():
            where = "" if self.path is None else f", and {self.path} has none"
            raise JobFileError(
                f"the study needs the file {name}.parquet{where}: give its folder by --data; its columns are the "
                "features, and the values to predict as `target`"
            )
        return path

    def hashes(self, names: Iterable[str]) -> dict[str, str]:
        """Return the first digits of the SHA-256 of each file."""
        return {name: hashlib.sha256(self.file(name).read_bytes()).hexdigest()[:16] for name in names}


@cache
def _read_table(path: Path) -> Table:
    table = open_parquet(path, _AHEAD_BYTES).read()
    if "target" not in table.column_names:
        raise JobFileError(f"{path} has no column `target`, the values to predict: rename the column that has them")
    X = np.column_stack([_features(table[name].to_pylist()) for name in table.column_names if name != "target"])
    continuous = np.array([len(np.unique(column)) > 2 for column in X.T])
    return Table(X, np.array(table["target"].to_pylist()), continuous)


def _features(column: list[Any]) -> Floats:
    """Return a column as features, shape (rows, n)."""
    values = np.array(column)
    if values.dtype.kind == "U":
        return np.asarray(values[:, np.newaxis] == np.unique(values), dtype=float)
    return values.astype(float)[:, np.newaxis]


@cache
def read_forest(part: str) -> tuple[Floats, Floats]:
    """Return raw features and ±1 targets, class 2 against the rest, of the bundled rows "train" or "test"."""
    recipe = read_recipe("forest")
    folder = Path(recipe["source" if part == "train" else "evaluate"]["path"])
    label, tables = (
        recipe["source"]["target"],
        [open_parquet(p, _AHEAD_BYTES) for p in sorted(folder.glob("*.parquet"))],
    )
    parts = [each.read() for each in tables]
    names = [name for name in parts[0].column_names if name != label]
    X = np.concatenate([np.column_stack([each[name].to_numpy() for name in names]).astype(float) for each in parts])
    y = np.concatenate([each[label].to_numpy() for each in parts])
    return X, np.where(y == recipe["source"]["positive"], 1.0, -1.0)
