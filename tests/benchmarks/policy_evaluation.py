"""Policy evaluation out of core: transitions of mountain cars from Parquet, in batches and online, and their memory.

    python tests/benchmarks/policy_evaluation.py --transitions 1000000 --basis 200

Cars are pushed the way they roll, from random states to the goal; each step costs 1; γ = 0.98. The batch learner sums
over random vectors of the first 10,000 transitions, the online one chooses its own. Prints one JSON object: the size of
the file, and for either learner seconds, CPU seconds, vectors, and the error against driving there from 2,000 random
states, beside the standard deviation and the range of the true values; peak resident memory is that of the process.
Then a job file does the same in a process of its own, from Parquet into a store, online and in batch: with its seconds,
its peak resident memory beside the plan's, and its error.
"""

import argparse
import json
import subprocess
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
from ridgestream.pipeline.base.array_checks import Floats

DISCOUNT, GAMMA, REGULARIZATION, SAMPLE, BATCH = 0.98, 2.0, 1e-6, 10_000, 25_600
JOB = {
    "store": "store",
    "source.target": "reward",
    "source.next": "*_next",
    "source.done": "done",
    "model.method": "lstd",
    "model.kernel.gamma": GAMMA,
    "model.regularization": REGULARIZATION,
    "model.novelty_threshold": 1e-3,
    "model.lstd.discount": DISCOUNT,
    "evaluate.path": "states.parquet",
    "evaluate.values": "value",
    "report": "none",
}
"""The job, but for the rows, the size of the dictionary and the update."""
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


def draw_states() -> tuple[Floats, Floats]:
    """Return states that are compared, (2000, 2), and their values."""
    rng = np.random.default_rng(1)
    states = np.column_stack([rng.uniform(-1.2, 0.49, 2000), rng.uniform(-0.07, 0.07, 2000)])
    return states, car_values(states, DISCOUNT)


def measure(learner: KernelLSTD | OnlineLSTD, path: Path) -> dict[str, Any]:
    """Learn the file and return time, size and error."""
    watch = Watch()
    for part in read(path):
        learner.partial_fit(*part.arguments)
    took, (states, known) = watch.read(), draw_states()
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


def measure_job(path: Path, n_basis: int, update: str) -> dict[str, Any]:
    """Run a job over the file, and return its time, its memory beside the plan's, and its error."""
    states, known = draw_states()
    folder = path.parent / update
    folder.mkdir()
    columns = {"position": scaled(states)[:, 0], "velocity": scaled(states)[:, 1], "value": known}
    pq.write_table(pa.table(columns), folder / "states.parquet")
    settings = JOB | {"source.path": str(path), "model.max_basis": n_basis, "model.lstd.update": update}
    job = folder / "job.toml"
    job.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
    planned, done = _command("plan", job), _command("run", job)
    facts = {name: done[name] for name in ("seconds", "rows_seen", "n_basis", "peak_rss_bytes")}
    return facts | {"planned_bytes": planned["process_memory_bytes"], "rmse": round(done["test_mse"] ** 0.5, 3)}


def _command(name: str, job: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "ridgestream", name, str(job), "--json"]
    facts: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return facts


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
        for update in ("online", "batch"):
            say(f"run a job over them: {update}")
            result[f"job, {update}"] = measure_job(path, arguments.basis, update)
    print(json.dumps({**result, "peak_rss_bytes": peak_rss_bytes()}))


if __name__ == "__main__":
    main()
