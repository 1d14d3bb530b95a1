"""Policy evaluation out of core: transitions of mountain cars from Parquet, in batches and online, and their memory.

    python tests/benchmarks/policy_evaluation.py --transitions 1000000 --basis 200

Cars are pushed the way they roll, from random states to the goal; each step costs 1; γ = 0.98. The batch learner sums
over random vectors of the first 10,000 transitions, the online one chooses its own. Prints one JSON object: the size of
the file, and for either learner seconds, CPU seconds, vectors, and the error against driving there from 2,000 random
states, beside the standard deviation and the range of the true values; peak resident memory is that of the process.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import Watch, say

from ridgestream import RBF, KernelLSTD, OnlineLSTD
from ridgestream.jobs.reproduction.jung_polani.processes import Transitions, car_values, mountain_car, scaled
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes

DISCOUNT, GAMMA, REGULARIZATION, SAMPLE, BATCH = 0.98, 2.0, 1e-6, 10_000, 25_600
NAMES = ("position", "velocity", "reward", "position_next", "velocity_next", "done")


def write(path: Path, n_rows: int) -> int:
    """Write whole episodes, in random order within some thousand, until there are `n_rows` transitions."""
    written = seed = 0
    schema = pa.schema([(name, pa.float64()) for name in NAMES])
    with pq.ParquetWriter(path, schema) as writer:
        while written < n_rows:
            drives = mountain_car(500, seed)
            order = np.random.default_rng(seed).permutation(len(drives.X))[: n_rows - written]
            columns = np.column_stack([drives.X, drives.reward, drives.X_next, drives.done])[order]
            writer.write_table(pa.table(dict(zip(NAMES, columns.T, strict=True)), schema=schema))
            written, seed = written + len(columns), seed + 1
    return written


def read(path: Path) -> Iterator[Transitions]:
    """Yield the transitions in batches."""
    for batch in pq.ParquetFile(path).iter_batches(BATCH):
        columns = np.column_stack([column.to_numpy() for column in batch.columns])
        yield Transitions(columns[:, :2], columns[:, 2], columns[:, 3:5], columns[:, 5])


def measure(learner: KernelLSTD | OnlineLSTD, path: Path) -> dict[str, Any]:
    """Learn the file and return time, size and error."""
    watch = Watch()
    for part in read(path):
        learner.partial_fit(*part.arguments)
    rng = np.random.default_rng(1)
    states = np.column_stack([rng.uniform(-1.2, 0.49, 2000), rng.uniform(-0.07, 0.07, 2000)])
    known, took = car_values(states, DISCOUNT), watch.read()
    error = learner.predict(scaled(states))[:, 0] - known
    return {
        "seconds": round(took.seconds, 1),
        "cpu_seconds": round(took.cpu_seconds, 1),
        "transitions": learner.rows_seen,
        "vectors": learner.n_basis,
        "rmse": round(float(np.sqrt(np.mean(error**2))), 3),
        "median_error": round(float(np.median(np.abs(error))), 3),
        "std_of_values": round(float(np.std(known)), 3),
        "range_of_values": round(float(np.ptp(known)), 1),
    }


def main() -> None:
    """Write, learn, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--basis", type=int, default=200)
    arguments = parser.parse_args()
    common: dict[str, Any] = {"discount": DISCOUNT, "regularization": REGULARIZATION}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "transitions.parquet"
        say(f"write {arguments.transitions} transitions")
        write(path, arguments.transitions)
        sample = next(pq.ParquetFile(path).iter_batches(SAMPLE))
        X = np.column_stack([sample.column(name).to_numpy() for name in NAMES[:2]])
        dictionary = np.random.default_rng(0).choice(X, arguments.basis, replace=False)
        learners: dict[str, KernelLSTD | OnlineLSTD] = {
            "batch": KernelLSTD(RBF(GAMMA), dictionary=dictionary, **common),
            "online": OnlineLSTD(RBF(GAMMA), max_basis=arguments.basis, novelty_threshold=1e-3, **common),
        }
        result: dict[str, Any] = {"file_bytes": path.stat().st_size, "in_memory_bytes": 8 * 6 * arguments.transitions}
        for name, learner in learners.items():
            say(f"learn them: {name}")
            result[name] = measure(learner, path)
    print(json.dumps({**result, "peak_rss_bytes": peak_rss_bytes()}))


if __name__ == "__main__":
    main()
