"""Random partitions with missing values, and a reference implementation with pandas and scikit-learn."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from support.stores.partitions import write_partition

Array = npt.NDArray[np.float64]

SCHEMA = pa.schema(
    {"length": pa.float64(), "count": pa.int32(), "flag": pa.bool_(), "colour": pa.string(), "y": pa.float64()}
)
NUMERIC, CATEGORICAL = ["length", "count", "flag"], ["colour"]


def draw_with_missing(
    rows: int, seed: int, *, share: float = 0.2, colours: Sequence[str] = ("red", "green", "blue"), target: bool = False
) -> pa.Table:
    """Draw rows in which a share of the values of features, and of the target if `target`, is missing.

    Every number is exact in single precision, so that a store does not round it.
    """
    rng = np.random.default_rng(seed)
    length = rng.standard_normal(rows).astype(np.float32).astype(np.float64)
    count, flag = rng.integers(0, 50, rows), rng.random(rows) < 0.6
    colour = rng.integers(0, len(colours), rows)
    y = np.sin(length) + 0.1 * count - flag + 0.5 * colour
    columns: dict[str, Any] = {"length": length, "count": count, "flag": flag}
    columns |= {"colour": np.array(colours, dtype=object)[colour], "y": y}
    absent = {name: rng.random(rows) < share for name in columns}
    absent["y"] &= target
    return pa.table({n: pa.array(v, SCHEMA.field(n).type, mask=absent[n]) for n, v in columns.items()}, SCHEMA)


def write_all(folder: Path, tables: Sequence[pa.Table]) -> Path:
    for number, table in enumerate(tables):
        write_partition(folder / f"part-{number}.parquet", table)
    return folder


@st.composite
def tables(draw: st.DrawFn, *, target: bool = False, most: int = 12) -> pa.Table:
    """Draw up to `most` rows with any values missing, as null or NaN."""
    rows = draw(st.integers(1, most))

    def column(values: st.SearchStrategy[Any], *, missing: bool = True) -> list[Any]:
        return draw(st.lists(st.one_of(st.none(), values) if missing else values, min_size=rows, max_size=rows))

    grid = st.integers(-8, 8).map(lambda n: n / 4)
    return pa.table(
        {
            "length": column(st.one_of(grid, st.just(float("nan")))),
            "count": column(st.integers(-5, 5)),
            "flag": column(st.booleans()),
            "colour": column(st.sampled_from(["a", "b", "c", ""])),
            "y": column(grid, missing=target),
        },
        SCHEMA,
    )


def drop_missing(table: pa.Table) -> pa.Table:
    """Return the rows without missing values, as `DataFrame.dropna` does."""
    complete = table.to_pandas().notna().all(axis=1).to_numpy()
    return table.filter(pa.array(complete))


def frame_of(table: pa.Table) -> pd.DataFrame:
    """Return the features as a data frame: numbers as floats with NaN, categories as objects with None."""
    columns: dict[str, Any] = {}
    for name in NUMERIC:
        columns[name] = np.array([np.nan if v is None else float(v) for v in table[name].to_pylist()])
    for name in CATEGORICAL:
        columns[name] = pd.Series(table[name].to_pylist(), dtype=object)
    return pd.DataFrame(columns)


@dataclass(frozen=True)
class Pipeline:
    """The reference in scikit-learn: impute, encode, and standardize by the training rows that have a value."""

    training: pd.DataFrame
    """The training rows."""
    categories: Sequence[str]
    """The categories that have an indicator column, in order."""

    def features(self, rows: pd.DataFrame) -> Array:
        return np.hstack([self._numbers(rows), self._indicators(rows)])

    def _numbers(self, rows: pd.DataFrame) -> Array:
        with np.errstate(invalid="ignore"):  # a column without a value
            scaler = StandardScaler().fit(self.training[NUMERIC])  # ignores NaN
        means = SimpleImputer(strategy="mean", keep_empty_features=True).fit(self.training[["length", "count"]])
        modes = SimpleImputer(strategy="most_frequent", keep_empty_features=True).fit(self.training[["flag"]])
        filled = np.hstack([means.transform(rows[["length", "count"]]), modes.transform(rows[["flag"]])])
        centre, scale = np.nan_to_num(scaler.mean_), np.nan_to_num(scaler.scale_, nan=1.0)
        return np.asarray((filled - centre) / scale)

    def _indicators(self, rows: pd.DataFrame) -> Array:
        present = self.training[CATEGORICAL].dropna()
        if not len(present):  # scikit-learn raises: nothing is centred, scaled or imputed
            indicators = [[value == category for category in self.categories] for value in rows["colour"]]
            return np.array(indicators, dtype=np.float64).reshape(len(rows), len(self.categories))
        encoder = OneHotEncoder(categories=[list(self.categories)], handle_unknown="ignore", sparse_output=False)
        encoder.fit(present.to_numpy(dtype=object))
        scaler = StandardScaler().fit(encoder.transform(present.to_numpy(dtype=object)))
        modes = SimpleImputer(strategy="most_frequent", missing_values=None).fit(self.training[CATEGORICAL])
        filled = modes.transform(rows[CATEGORICAL])
        return np.asarray(scaler.transform(encoder.transform(filled)))
