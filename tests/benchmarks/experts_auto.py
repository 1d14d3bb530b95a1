"""Local experts whose number is chosen, on a real regression, against one dictionary and gradient boosting.

    python tests/benchmarks/experts_auto.py --splits 3

The rows are the 138,632 points of a terrain that comes with matplotlib, around the Jacksboro fault in Tennessee: the
elevation in metres by column and line. For each random split, 70 % are learned and 30 % held out. `auto` is a job with
`experts = "auto"`, `one` the same job without, `boosting` scikit-learn's HistGradientBoostingRegressor with its default
settings. Prints the mean and standard deviation of each held-out mean squared error as JSON.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib import get_data_path
from sklearn.model_selection import train_test_split

sys.path.insert(0, str(Path(__file__).parents[1]))  # `benchmarks`, as pytest finds them

from benchmarks.defaults import DataSet, boosting, ours
from benchmarks.measuring import say


def read_terrain() -> DataSet:
    """Return the elevation of each point of the grid."""
    elevation = np.load(Path(get_data_path(), "sample_data", "jacksboro_fault_dem.npz"))["elevation"].astype(float)
    line, column = np.indices(elevation.shape, dtype=float)
    return DataSet(pa.table({"column": column.ravel(), "line": line.ravel(), "target": elevation.ravel()}))


def measure(data: DataSet, splits: int) -> dict[str, Any]:
    """Return the errors of each model, by split."""
    errors: dict[str, list[float]] = {"auto": [], "one": [], "boosting": []}
    for split in range(splits):
        rows = train_test_split(np.arange(len(data.table)), test_size=0.3, random_state=split)
        errors["boosting"].append(boosting(data, *rows))
        errors["auto"].append(ours(data, *rows, 'experts = "auto"'))
        errors["one"].append(ours(data, *rows))
        say(f"{split}: { ({name: values[-1] for name, values in errors.items()}) }")
    return {name: {"mean": float(np.mean(each)), "deviation": float(np.std(each))} for name, each in errors.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    data = read_terrain()
    print(json.dumps({"rows": len(data.table), **measure(data, options.splits)}, indent=1))


if __name__ == "__main__":
    main()
