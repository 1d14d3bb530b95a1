"""What streaming costs: ingest and training from Parquet partitions, over training on rows already in memory.

    python tests/benchmarks/streaming.py --basis 500

Both take the 500,000 bundled forest rows to the same dictionary in one process on one BLAS thread, in turn, three
times; decoding and scaling run ahead of the learner in a second thread. Prints one JSON object: `ratio` is that of the
median seconds, `cpu_ratio` that of the CPU seconds of all threads, and `ingest_seconds` is what a later night does not
pay again.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import Took, Watch, learn, new_learner, say, warm_up
from support.data.forest import FOREST, Rows, standardized_forest

from ridgestream.jobs.commands.ingest import run_ingest
from ridgestream.jobs.commands.train import run_train
from ridgestream.jobs.config.job_file import Job, read_job
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.stores.catalog.models import require_model
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation

JOB = f"""
store = "store"
source = {{ path = "{FOREST / "train"}", target = "Cover_Type", positive = 2 }}
[model]
max_basis = BASIS
scaling_rows = 50_000
kernel = {{ gamma = {1 / 54} }}
regularization = 1e-5
metric = "standardized"
refit = false
"""


def stream(folder: Path, basis: int) -> tuple[Took, Took, int]:
    """Ingest and train in a new store; return what each took, and the number of rows."""
    (folder / "job.toml").write_text(JOB.replace("BASIS", str(basis)))
    job: Job = read_job(folder / "job.toml", {})
    watch = Watch()
    run_ingest(job, InProcess(), Silent(), 0.0)
    ingest, watch = watch.read(), Watch()
    result = run_train(job, InProcess(), Silent(), 0.0, new_model=False)
    return ingest, watch.read(), int(result["rows_seen"])


def check_same(folder: Path, rows: Rows, basis: int) -> Took:
    """Learn the rows in memory, check that the dictionary is that of the store, and return what it took."""
    learner = new_learner(basis)
    took = learn(learner, rows)
    streamed = require_model(Store.open(StoreLocation(str(folder / "store"))).root(), "model").arrays["basis_vectors"]
    if not np.allclose(streamed, learner.state().basis_vectors):
        raise SystemExit("the dictionaries differ")
    return took


def measure(basis: int, repeats: int) -> dict[str, Any]:
    """Stream and learn in turn, and compare."""
    rows, _ = standardized_forest(500_000)
    warm_up(rows)
    runs = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            ingest, train, streamed = stream(Path(folder), basis)
            memory = check_same(Path(folder), rows, basis)
        runs.append((ingest, train, memory))
        say(f"ingest {ingest.seconds:.2f} s, training {train.seconds:.2f} s, in memory {memory.seconds:.2f} s")

    def middle(which: int, clock: str) -> float:
        return float(median(getattr(run[which], clock) for run in runs))

    return {
        "rows": streamed,
        "basis": basis,
        "ratio": round((middle(0, "seconds") + middle(1, "seconds")) / middle(2, "seconds"), 3),
        "cpu_ratio": round((middle(0, "cpu_seconds") + middle(1, "cpu_seconds")) / middle(2, "cpu_seconds"), 3),
        "ingest_seconds": round(middle(0, "seconds"), 2),
        "train_seconds": round(middle(1, "seconds"), 2),
        "memory_seconds": round(middle(2, "seconds"), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--basis", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.basis, arguments.repeats), indent=1))


if __name__ == "__main__":
    main()
