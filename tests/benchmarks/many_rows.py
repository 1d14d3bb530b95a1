"""More rows than memory on one machine: ingest and one online pass, their memory, and whether the pace holds.

    python tests/benchmarks/many_rows.py --rows 50000000 --basis 100

Rows are the bundled forest rows, drawn again and moved a little, in partitions of 50,000. Each step is a process of its
own, on one core. Prints one JSON object: for each step its seconds, CPU seconds and peak resident memory (VmHWM), and
for the training the CPU microseconds a row of each tenth of the rows. The dictionary is full after the first partition;
`pace` is the largest of the other nine tenths over the smallest.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import say
from support.data.many_rows import write_many_rows

from ridgestream.jobs.commands.ingest import run_ingest
from ridgestream.jobs.commands.train import run_train
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Fact, Silent

TENTHS = 10
JOB = """
store = "store"
source = {{ path = "rows", target = "Cover_Type", positive = 2 }}
[model]
max_basis = {basis}
kernel = {{ gamma = 0.0185 }}
regularization = 1e-5
metric = "standardized"
refit = false
"""


class Pace(Silent):
    """Notes the CPU time of this process at each tenth of the rows of a step."""

    def __init__(self, rows: int) -> None:
        self._rows, self._done, self.cpu_seconds = rows, 0, [process_time()]

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:  # noqa: ARG002
        """Begin to count."""
        self._done, self.cpu_seconds = 0, [process_time()]

    def advance(self, rows: int, **facts: Fact) -> None:  # noqa: ARG002
        """Note the time if another tenth is done."""
        self._done += rows
        if self._done * TENTHS >= self._rows * len(self.cpu_seconds):
            self.cpu_seconds.append(process_time())
            say(f"{self._done:,} rows, {peak_rss_bytes() / 1e6:.0f} MB at most")


def do_step(step: str, job: Path, rows: int) -> dict[str, Any]:
    """Do a step in this process and return what it took."""
    pace, began = Pace(rows), perf_counter()
    if step == "ingest":
        result = run_ingest(read_job(job, {}), InProcess(), pace, 0.0)
    else:
        result = run_train(read_job(job, {}), InProcess(), pace, 0.0, new_model=False)
    tenths = [after - before for before, after in zip(pace.cpu_seconds, pace.cpu_seconds[1:], strict=False)]
    return {
        "rows": result["new_rows"],
        "seconds": round(perf_counter() - began, 1),
        "cpu_seconds": round(process_time(), 1),
        "peak_rss_bytes": peak_rss_bytes(),
        "cpu_us_per_row": [round(1e6 * tenth * TENTHS / rows, 3) for tenth in tenths],
    }


def measure(rows: int, basis: int, folder: Path) -> dict[str, Any]:
    """Write the rows, then ingest and train, each in a process of its own."""
    say(f"writing {rows:,} rows")
    write_many_rows(folder / "rows", rows)
    job = folder / "job.toml"
    job.write_text(JOB.format(basis=basis))
    measured: dict[str, Any] = {"rows": rows, "basis": basis}
    for step in ("ingest", "train"):
        say(step)
        command = [sys.executable, __file__, "--step", step, "--rows", str(rows), str(job)]
        measured[step] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    settled = measured["train"]["cpu_us_per_row"][1:]
    return measured | {"pace": round(max(settled) / min(settled), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--basis", type=int, default=100)
    parser.add_argument("--step", choices=["ingest", "train"], help=argparse.SUPPRESS)
    parser.add_argument("job", type=Path, nargs="?", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        print(json.dumps(do_step(arguments.step, arguments.job, arguments.rows)))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(arguments.rows, arguments.basis, Path(folder)), indent=1))


if __name__ == "__main__":
    main()
