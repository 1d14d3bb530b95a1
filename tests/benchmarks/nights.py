"""Hundreds of nights: one small partition arrives, `ridgestream run`, and again; how time, memory and store grow.

    python tests/benchmarks/nights.py --nights 500 --rows 2000

Every night is the installed command in a process of its own, over forest rows. Prints one JSON object: seconds, by the
clock and of the processor, of the first and the last tenth of the nights, and their ratios, peak resident memory of the
same, and, at each quarter, the bytes of the store before and after `ridgestream clean`.
"""

import argparse
import json
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import perf_counter
from typing import Any

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import say
from support.data.forest import FOREST

COMMAND = str(Path(sysconfig.get_path("scripts")) / "ridgestream")
JOB = """
store = "store"
source = {{ path = "rows", target = "Cover_Type", positive = 2 }}
[model]
max_basis = {max_basis}
kernel = {{ gamma = 0.0185 }}
regularization = 1e-5
metric = "standardized"
refit = false
scaling_rows = {rows}
"""


def run(*arguments: str | Path) -> dict[str, Any]:
    """Run the command and return what it tells."""
    done = subprocess.run([COMMAND, *map(str, arguments), "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def cpu_seconds() -> float:
    """Return what the commands so far have taken of the processor."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(name: str, values: list[float]) -> dict[str, float]:
    """Return the medians of the first and the last tenth, and their ratio."""
    tenth = max(1, len(values) // 10)
    first, last = median(values[:tenth]), median(values[-tenth:])
    return {f"first_{name}": round(first, 3), f"last_{name}": round(last, 3), f"{name}_ratio": round(last / first, 3)}


def measure(folder: Path, nights: int, rows: int, max_basis: int, keep_nights: int | None) -> dict[str, Any]:
    """Return the figures of so many nights."""
    (folder / "job.toml").write_text(JOB.format(rows=rows, max_basis=max_basis))
    (folder / "rows").mkdir()
    table = pq.read_table(FOREST / "train" / "part-00.parquet")
    seconds, cpu, peaks, sizes = [], [], [], []
    keeping = [] if keep_nights is None else ["--keep-nights", str(keep_nights)]
    for night in range(nights):
        start = night * rows % (len(table) - rows)
        pq.write_table(table.slice(start, rows), folder / "rows" / f"part-{night:04d}.parquet")
        began, used = perf_counter(), cpu_seconds()
        result = run("run", folder / "job.toml")
        seconds.append(perf_counter() - began)
        cpu.append(cpu_seconds() - used)
        peaks.append(result["peak_rss_bytes"])
        if (night + 1) % max(1, nights // 4) == 0:
            cleaned = run("clean", folder / "job.toml", "--older-than", "0", *keeping)
            sizes.append({"nights": night + 1, **{k: cleaned[k] for k in ("bytes_before", "bytes_after", "seconds")}})
            say(json.dumps(sizes[-1]))
    return {
        "nights": nights,
        "rows_a_night": rows,
        "max_basis": max_basis,
        "keep_nights": keep_nights,
        **compare("seconds", seconds),
        **compare("cpu_seconds", cpu),
        **compare("peak_rss_bytes", peaks),
        "sizes": sizes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=500)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--max-basis", type=int, default=100)
    parser.add_argument("--keep-nights", type=int)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asked = (arguments.nights, arguments.rows, arguments.max_basis, arguments.keep_nights)
        print(json.dumps(measure(Path(folder), *asked)))


if __name__ == "__main__":
    main()
