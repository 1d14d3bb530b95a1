"""A batch method on forest as a user runs it: Parquet, store, command, workers; errors of every size, memory, seconds.

    python tests/benchmarks/forest_jobs.py ols --rows 500000 --sizes 100 300 500
    python tests/benchmarks/forest_jobs.py shard-merge-select --set model.regularization=[1e-7,1e-6,1e-5] --workers 2

Makes a job over the first --rows bundled rows in a folder of its own and runs `ridgestream run` on it, in its process
or with --workers N local worker processes. Prints one JSON object: the run's own report, the peak of resident memory
(VmHWM) of every process, a hash of the model's arrays, and the test error in per cent of the models of the first m
vectors of the dictionary, in the order in which they were chosen, each fitted to all rows.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import error_percent, say
from support.data.forest import FOREST, PARTITION_ROWS, read_forest

from ridgestream.pipeline.models.model_record import fitted_of, model_of
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.stores.catalog.models import ModelRecord, require_model
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation

COMMAND = str(Path(sysconfig.get_path("scripts")) / "ridgestream")
LOOK_SECONDS = 0.25
JOB = """
store = "store"
source = {{ path = "rows", target = "Cover_Type", positive = 2 }}
evaluate = {{ path = "{test}" }}
[model]
method = "{method}"
kernel = {{ gamma = {gamma} }}
metric = "standardized"
scaling_rows = {scaling_rows}
"""


def put_rows(folder: Path, rows: int) -> None:
    """Put the first rows of the bundled partitions into a folder."""
    folder.mkdir()
    for number, start in enumerate(range(0, rows, PARTITION_ROWS)):
        name = f"part-{number:02d}.parquet"
        table = pq.read_table(FOREST / "train" / name)
        pq.write_table(table.slice(0, min(rows - start, PARTITION_ROWS)), folder / name)


def run_and_watch(arguments: list[str], folder: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Run the command; return what it told, and the peak of resident memory of each of its processes, in bytes."""
    peaks: dict[str, int] = {}
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=folder)
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        _look(watched, peaks)
        try:
            process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    out = process.stdout.read() if process.stdout else b""
    if process.returncode:
        raise SystemExit(f"the command ended with {process.returncode}")
    return json.loads(out), peaks


def _look(watched: psutil.Process, peaks: dict[str, int]) -> None:
    try:
        family = [watched, *watched.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        try:
            status = Path(f"/proc/{member.pid}/status").read_text()
        except OSError:
            continue
        peak = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
        name = "job" if member.pid == watched.pid else f"child {member.pid}"
        peaks[name] = max(peaks.get(name, 0), peak)


def hash_model(record: ModelRecord) -> str:
    """Return a hash of everything that the model computes with."""
    digest = hashlib.sha256()
    for name in sorted(record.arrays):
        digest.update(name.encode() + np.ascontiguousarray(record.arrays[name]).tobytes())
    return digest.hexdigest()[:16]


def errors_by_size(record: ModelRecord, sizes: list[int]) -> dict[int, float]:
    """Return the test error of the first m vectors for each size m, each model fitted to all rows by the kept sums."""
    model, fitted = model_of(record), fitted_of(record)
    sums, functions = fitted.sums.total(), np.arange(fitted.basis.n_functions)
    raw, y = read_forest("test")
    features = model.feature_map.features(raw, np.empty((len(raw), 0), dtype=np.int32), [])
    found = {}
    for size in [s for s in sizes if s <= len(fitted.basis.vectors)]:
        kept = np.r_[functions[:size], functions[len(fitted.basis.vectors) :]]
        basis = Basis(fitted.basis.kernel, fitted.basis.vectors[:size], fitted.basis.centre, fitted.basis.constant)
        part = sums.choose(kept)
        beta = part.factorize(basis.penalty(), fitted.regularization).solve(part.rhs)
        scores = [basis.values(features[start : start + 4096]) @ beta for start in range(0, len(features), 4096)]
        found[size] = error_percent(np.concatenate(scores)[:, 0], y)
    return found


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the job and return everything that is to be told."""
    put_rows(folder / "rows", options.rows)
    scaling = min(options.rows, PARTITION_ROWS)
    job = JOB.format(test=FOREST / "test", method=options.method, gamma=options.gamma, scaling_rows=scaling)
    (folder / "job.toml").write_text(job)
    flags = [part for assignment in options.set for part in ("--set", assignment)]
    flags += ["--cluster", f"local:{options.workers}"] if options.workers else []
    began = perf_counter()
    result, peaks = run_and_watch([COMMAND, "run", "job.toml", "--json", *flags], folder)
    seconds = perf_counter() - began
    record = require_model(Store.open(StoreLocation(str(folder / "store"))).root(), "model")
    say(f"{options.method}: {seconds:.1f} s, {result['test_error']:.4f}")
    return {
        "method": options.method,
        "rows": options.rows,
        "workers": options.workers,
        "settings": options.set,
        "seconds": round(seconds, 2),
        "run": result,
        "peak_bytes": peaks,
        "model_hash": hash_model(record),
        "regularization": record.parameters["learner"]["regularization"],
        "test_error_percent": errors_by_size(record, options.sizes),
        "path": path_of(record, options.sizes),
    }


def path_of(record: ModelRecord, sizes: list[int]) -> dict[str, Any]:
    """Return the criterion along the way for the sizes that are told, by λ."""
    path = fitted_of(record).path
    if path is None:
        return {}
    result = [i for i, size in enumerate(path.n_basis) if int(size) in sizes]
    return {
        path.criterion: [
            {"n_basis": int(path.n_basis[i]), "regularization": float(path.regularization[i]), "value": path.value[i]}
            for i in result
        ]
    }


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--gamma", type=float, default=1 / 54)
    parser.add_argument("--workers", type=int, default=0, help="local worker processes; 0 runs all in one process")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 500])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(measure(parse(), Path(place))))
