"""The batch methods on forest, as ratios in one run.

    python tests/benchmarks/batch.py

Prints one JSON object:

- `pass` and `path`: one pass of ISLS-SVM over the bare Gram accumulation, and its whole path over a single fit
  (`batch_path.py`; 500,000 rows, 500 vectors);
- `ols`: OLS-59 over the bare products of a pass a round with stored columns (`batch_selection.py`; 50,000 rows);
- `workers`: the seconds of one job, shard-merge-select, with one local worker process over those with two;
- `memory`: of the same job in one process and of OLS, the bytes planned for the method itself over the peak of resident
  memory (VmHWM) above what the process has after its imports.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks import batch_path, batch_selection, forest_jobs
from benchmarks.measuring import say
from support.data.forest import N_FEATURES, standardized_forest

from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.requests import model_request
from ridgestream.jobs.config.values import parse_flags
from ridgestream.pipeline.base.memory_plan import BatchPlan
from ridgestream.pipeline.training.trainer import trainer_of

IMPORTS = "from ridgestream.jobs import run, cluster, progress; from ridgestream.pipeline import methods; "
PRINT_PEAK = "from ridgestream.jobs.runs.peak_memory import peak_rss_bytes; print(peak_rss_bytes())"


def run_job(method: str, rows: int, workers: int, settings: list[str]) -> tuple[dict[str, Any], int]:
    """Return what a job on forest told, and the bytes planned for its method."""
    with tempfile.TemporaryDirectory() as place:
        folder, assignments = Path(place), [part for assignment in settings for part in ("--set", assignment)]
        options = forest_jobs.parse([method, "--rows", str(rows), "--workers", str(workers), *assignments])
        result = forest_jobs.measure(options, folder)
        request = model_request(read_job(folder / "job.toml", parse_flags(settings)))
    plan = trainer_of(request).plan_memory(None, rows, N_FEATURES, 1)
    assert isinstance(plan, BatchPlan)
    return result, plan.own_bytes


def measure_workers(rows: int, settings: list[str]) -> dict[str, Any]:
    """Return how many times as fast two worker processes are as one."""
    one, two = (run_job("shard-merge-select", rows, workers, settings)[0] for workers in (1, 2))
    seconds = [result["run"]["train_seconds"] for result in (one, two)]
    return {
        "ratio": round(seconds[0] / seconds[1], 3),
        "seconds": seconds,
        "same_bits": one["model_hash"] == two["model_hash"],
    }


def measure_memory(method: str, rows: int, settings: list[str]) -> dict[str, Any]:
    """Return the bytes planned, and measured above the process's size after imports, and their ratio."""
    base = int(subprocess.run([sys.executable, "-c", IMPORTS + PRINT_PEAK], capture_output=True, check=True).stdout)
    result, planned = run_job(method, rows, 0, settings)
    measured = result["run"]["peak_rss_bytes"] - base
    return {"ratio": round(planned / measured, 3), "planned_bytes": planned, "measured_bytes": measured}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return every measurement that is asked for."""
    found: dict[str, Any] = {}
    shards = [f"model.shard_merge_select.shard_basis={options.shard_basis}", "model.regularization=[1e-7,1e-6,1e-5]"]
    if {"pass", "path"} & set(options.parts):
        rows, _ = standardized_forest(options.rows)
        found |= batch_path.measure(rows, options.basis, options.repeats)
    if "ols" in options.parts:
        rows, _ = standardized_forest(min(options.rows, 50_000))
        found["ols"] = batch_selection.measure_ols(rows, options.basis)
    if "workers" in options.parts:
        found["workers"] = measure_workers(options.rows, shards)
    if "memory" in options.parts:
        few = min(options.rows, 50_000)
        found["memory"] = {
            "shard-merge-select": measure_memory("shard-merge-select", few, shards),
            "ols": measure_memory("ols", few, [f"model.max_basis={options.basis}"]),
        }
    say("done")
    return found


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--basis", type=int, default=500)
    parser.add_argument("--shard-basis", type=int, default=250)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--parts", nargs="+", default=["pass", "path", "ols", "workers", "memory"])
    return parser.parse_args(arguments)


if __name__ == "__main__":
    print(json.dumps(measure(parse())))
