"""Many small partitions: what each costs in CPU time, memory and bytes of the store, and whether that stays constant.

    python tests/benchmarks/many_partitions.py --partitions 500 1000 2000 5000 20000 --rows 50 --plot many.png

Partitions hold the bundled forest rows over and over, 54 numeric columns and a class; the model is the online learner
with 20 basis vectors, so that time is spent on partitions rather than on the dictionary. `ingest`, `train` and a night
that adds one partition are commands of their own, as a user starts them. Prints one JSON object: for each number of
partitions and each command, CPU milliseconds a partition, peak resident memory, and the longest time without a line;
seconds of the night; and the bytes of the store by kind, also relative to those of the rows as they are stored:
54 × float32 and a float64 target.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.measuring import say
from support.data.forest import FOREST, N_FEATURES

ROW_BYTES = 4 * N_FEATURES + 8
KINDS = ("chunks", "manifests", "snapshots", "transactions", "refs")
JOB = """
store = "store"
source = { path = "rows", target = "Cover_Type", positive = 2 }
[model]
max_basis = 20
kernel = { gamma = 0.0185 }
regularization = 1e-5
metric = "standardized"
refit = false
"""


@dataclass(frozen=True)
class Outcome:
    """What a command took."""

    seconds: float
    """Wall-clock time."""
    cpu_seconds: float
    """CPU time of its process, in user and system mode."""
    peak_rss_bytes: int
    """Its largest resident memory."""
    longest_silence: float
    """Largest number of seconds without a line, from start to end."""


def write_partitions(folder: Path, first: int, stop: int, rows: int) -> None:
    """Write partitions of `rows` forest rows each, with the numbers from `first` up to `stop`."""
    folder.mkdir(exist_ok=True)
    forest = pq.read_table(sorted((FOREST / "train").glob("*.parquet"))[0])
    for number in range(first, stop):
        indices = np.arange(number * rows, (number + 1) * rows) % forest.num_rows
        pq.write_table(forest.take(pa.array(indices)), folder / f"part-{number:06d}.parquet")


def run(folder: Path, *arguments: str) -> Outcome:
    """Run a command in the folder to its end; raises RuntimeError if it fails."""
    command = [str(Path(sys.executable).with_name("ridgestream")), *arguments, "--json"]
    began = last = monotonic()
    silence, lines = 0.0, list[str]()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr or ():
            silence, last = max(silence, monotonic() - last), monotonic()
            lines.append(line)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{arguments[0]} failed with {process.returncode}: {''.join(lines[-5:])}")
    ended = monotonic()
    cpu = usage.ru_utime + usage.ru_stime
    return Outcome(ended - began, cpu, usage.ru_maxrss * 1024, max(silence, ended - last))


def count_bytes(store: Path) -> dict[str, int]:
    """Return the bytes of the store's files by kind."""
    sizes = dict.fromkeys((*KINDS, "others"), 0)
    for path in store.rglob("*"):
        if path.is_file():
            kind = path.relative_to(store).parts[0]
            sizes[kind if kind in sizes else "others"] += path.stat().st_size
    return sizes


def measure(folder: Path, partitions: int, rows: int) -> dict[str, Any]:
    """Ingest and train so many partitions, then one more."""
    folder.mkdir()
    say(f"writing {partitions:,} partitions")
    write_partitions(folder / "rows", 0, partitions, rows)
    (folder / "job.toml").write_text(JOB)
    outcomes = {}
    for step in ("ingest", "train"):
        outcomes[step] = run(folder, step, "job.toml")
        say(f"{step}: {outcomes[step]}")
    sizes = count_bytes(folder / "store")
    write_partitions(folder / "rows", partitions, partitions + 1, rows)
    night = run(folder, "run", "job.toml")
    say(f"one more night: {night}")
    raw, total = partitions * rows * ROW_BYTES, sum(sizes.values())
    return {
        "partitions": partitions,
        "rows": rows,
        "store_bytes": sizes,
        "raw_bytes": raw,
        "store_to_raw": round(total / raw, 3),
        "bytes_of_a_night": sum(count_bytes(folder / "store").values()) - total,
        **{f"{step}_cpu_ms": round(1e3 * outcome.cpu_seconds / partitions, 3) for step, outcome in outcomes.items()},
        "peak_rss_mb": round(max(o.peak_rss_bytes for o in (*outcomes.values(), night)) / 1e6),
        "night_seconds": round(night.seconds, 2),
        "night_cpu_seconds": round(night.cpu_seconds, 2),
        "longest_silence": round(max(o.longest_silence for o in (*outcomes.values(), night)), 1),
    }


def plot(measured: list[dict[str, Any]], file: Path) -> None:
    """Draw the figures against the number of partitions."""
    from matplotlib.figure import Figure

    panels = {
        "store / raw values": ("store_to_raw",),
        "CPU ms a partition": ("ingest_cpu_ms", "train_cpu_ms"),
        "largest resident memory (MB)": ("peak_rss_mb",),
        "one more night (s)": ("night_seconds", "night_cpu_seconds"),
        "kB written by one more night": ("bytes_of_a_night",),
        "longest silence (s)": ("longest_silence",),
    }
    figure = Figure(figsize=(12, 7), layout="constrained")
    partitions = [each["partitions"] for each in measured]
    for axes, (title, names) in zip(figure.subplots(2, 3).flat, panels.items(), strict=True):
        for name in names:
            scale = 1e-3 if name == "bytes_of_a_night" else 1.0
            axes.plot(partitions, [scale * each[name] for each in measured], "o-", label=name.replace("_", " "))
        axes.set(title=title, xlabel="partitions", xscale="log", ylim=(0, None))
        axes.grid(alpha=0.3)
        if len(names) > 1:
            axes.legend()
    figure.suptitle(f"Partitions of {measured[0]['rows']} rows, {N_FEATURES} features")
    figure.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[500, 1000, 2000, 5000, 20000])
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), "warm")  # compiling is no cost of a partition
        measured = [measure(Path(folder) / str(n), n, asked.rows) for n in asked.partitions]
    if asked.plot:
        plot(measured, asked.plot)
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
