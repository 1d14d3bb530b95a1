"""A recipe as a user runs it, in its own order of rows and in permutations of it: test error, seconds and memory.

    python tests/benchmarks/recipe_error.py forest-metric --sizes 100 300 500 --permutations 3
    python tests/benchmarks/recipe_error.py forest-metric --sizes 500 --permutations 0 --set model.refit=true

Each run is `ridgestream run` on a store of its own, from Parquet to the committed model with its evaluation, in its
process or with --workers N local worker processes. Prints one JSON object: for each size and order, the test error in
per cent, the seconds of the command, and the peak of resident memory (VmHWM) of each process.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them


from benchmarks.forest_jobs import COMMAND, run_and_watch
from benchmarks.measuring import say
from support.data.forest import FOREST, PARTITION_ROWS


def put_rows(folder: Path, order: npt.NDArray[np.int64]) -> None:
    """Write the training rows in an order as partitions of PARTITION_ROWS rows."""
    table = pq.read_table(sorted((FOREST / "train").glob("*.parquet")))
    folder.mkdir()
    for number, start in enumerate(range(0, len(order), PARTITION_ROWS)):
        part = table.take(pa.array(order[start : start + PARTITION_ROWS]))
        pq.write_table(part, folder / f"part-{number:02d}.parquet")


def measure(folder: Path, options: argparse.Namespace, rows: Path, size: int) -> dict[str, Any]:
    """Return what one run of the command took and how many test rows are wrong."""
    settings = [f"store={folder / 'store'}", f"source.path={rows}", f"model.max_basis={size}", *options.set]
    flags = [part for setting in settings for part in ("--set", setting)]
    flags += ["--cluster", f"local:{options.workers}"] if options.workers else []
    began = perf_counter()
    result, peaks = run_and_watch([COMMAND, "run", options.recipe, "--json", *flags], folder)
    found = {
        "error_percent": round(100 * float(result["test_error"]), 3),
        "seconds": round(perf_counter() - began, 1),
        "peak_bytes": peaks,
    }
    say(f"{size}: {found}")
    return found


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 500])
    parser.add_argument("--permutations", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0, help="local worker processes; 0 runs all in one process")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the job file")
    options = parser.parse_args()
    found: dict[int, list[dict[str, Any]]] = {size: [] for size in options.sizes}
    n_rows = sum(pq.read_metadata(path).num_rows for path in (FOREST / "train").glob("*.parquet"))
    for seed in range(options.permutations + 1):
        order = np.random.default_rng(seed).permutation(n_rows) if seed else np.arange(n_rows)
        with tempfile.TemporaryDirectory() as place:
            put_rows(Path(place, "rows"), order)
            for size in options.sizes:
                with tempfile.TemporaryDirectory(dir=place) as folder:
                    found[size].append(measure(Path(folder), options, Path(place, "rows"), size))
    orders = {size: {"recipe": runs[0], "permutations": runs[1:]} for size, runs in found.items()}
    print(json.dumps({"recipe": options.recipe, "workers": options.workers, "sizes": orders}))


if __name__ == "__main__":
    main()
