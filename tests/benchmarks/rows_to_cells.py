"""Two ways of bringing rows to the workers that learn their cells: every worker reads all rows, or rows are sent once.

    python tests/benchmarks/rows_to_cells.py --workers 1 2 4 --simulated 16 100

The rows are those of forest, in a store; the product's reader standardizes them, its cells route them, and nothing is
learned. Workers are processes of a local Dask cluster with one thread each.

- `read_all`: a task for each worker reads and routes every row, and keeps those of its cells, as training does.
- `send_once`: a task for each partition reads and routes its rows, and writes those of each worker's cells to a file of
  a shared folder; then a task for each worker reads its files, in the order of the rows.

Prints one JSON object. `measured` has the seconds of each way by the clock, the CPU seconds of the busiest worker (of a
way in two steps: of both), the bytes of the features and targets that workers decode, write and read again, and the
tasks and files. `simulated` has the same for more workers than there are here: CPU seconds from the microseconds a row
of each step at the largest measured number of workers, bytes and tasks by counting. `fewest_workers` is the number from
which on sending is faster, if files cost nothing but CPU time.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import Array, say
from support.data.forest import FOREST

import ridgestream
from ridgestream.pipeline.dataset.block_plan import BlockRange, plan_blocks
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES, BlockReader
from ridgestream.pipeline.models.experts_model import ExpertsModel
from ridgestream.pipeline.online.experts.cells import Cells
from ridgestream.stores.segments.segments import Segments

JOB = """
store = "store"
source = {{ path = "{rows}", target = "Cover_Type", positive = 2 }}
[model]
experts = {cells}
max_basis = 2
kernel = {{ gamma = 0.1 }}
regularization = 1e-5
metric = "standardized"
refit = false
"""


@dataclass(frozen=True)
class Source:
    """The rows, and how they are routed."""

    reader: BlockReader
    """Reads and standardizes them."""
    parts: tuple[tuple[BlockRange, ...], ...]
    """The blocks of each partition."""
    cells: Cells
    """The cells; every W-th one belongs to the same worker."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(block_range.rows for part in self.parts for block_range in part)

    @property
    def row_bytes(self) -> int:
        """The bytes of the features and the target of a row."""
        return int(8 * (self.cells.centres.shape[1] + 1))


@dataclass(frozen=True)
class Cost:
    """What a way of bringing rows to cells costs."""

    seconds: float | None
    """By the clock; None where it is not measured."""
    busiest_cpu_seconds: float
    """CPU seconds of the busiest worker."""
    decoded_bytes: int
    """Read from the store by all workers."""
    sent_bytes: int
    """Written to files, and read from them again."""
    tasks: int
    """Of the scheduler."""
    files: int = 0
    """In the shared folder."""


def open_source(folder: Path, cells: int) -> Source:
    """Ingest the rows of forest, place the cells, and return both."""
    job = folder / "job.toml"
    job.write_text(JOB.format(rows=FOREST / "train", cells=cells))
    ridgestream.run(job)
    stored = ridgestream.open(folder / "store").models["model"]
    model, segments = stored.model, Segments(stored.store.root())
    assert isinstance(model, ExpertsModel)
    numbers = [number for night in stored.record.history for number in night.segments or ()]
    reader = BlockReader(segments, model.feature_map)
    shapes = [(number, segments[number].rows, reader.rows_of_chunk(number)) for number in numbers]
    row_bytes = 8 * model.feature_map.n_features
    parts = tuple(tuple(plan_blocks([shape], BLOCK_BYTES, row_bytes)) for shape in shapes)
    return Source(reader, parts, model.cells)


def keep_own(source: Source, workers: int, number: int) -> float:
    """Read and route all rows and keep those of a worker's cells; return the CPU seconds."""
    began = process_time()
    for part in source.parts:
        block = source.reader.read_joined(part)
        own = np.flatnonzero(source.cells.nearest(block.features) % workers == number)
        _ = block.features[own], block.targets[own]
    return process_time() - began


def send(source: Source, workers: int, position: int, folder: str) -> float:
    """Read and route the rows of a partition and write those of each worker's cells; return the CPU seconds."""
    began = process_time()
    block = source.reader.read_joined(source.parts[position])
    worker_of = source.cells.nearest(block.features) % workers
    rows = np.hstack([block.features, block.targets])
    for number in range(workers):
        np.save(file_of(folder, position, number), rows[worker_of == number])
    return process_time() - began


def receive(source: Source, number: int, folder: str) -> float:
    """Read the rows of a worker's cells in their order; return the CPU seconds."""
    began = process_time()
    for position in range(len(source.parts)):
        rows: Array = np.load(file_of(folder, position, number))
        rows.sum()
    return process_time() - began


def file_of(folder: str, position: int, number: int) -> Path:
    return Path(folder) / f"{position}-{number}.npy"


def read_all(client: Client, source: Source, workers: int) -> Cost:
    """Measure the way of training: every worker reads all rows."""
    began = perf_counter()
    took = client.gather([client.submit(keep_own, source, workers, number, pure=False) for number in range(workers)])
    return Cost(perf_counter() - began, max(took), workers * source.rows * source.row_bytes, 0, workers)


def send_once(client: Client, source: Source, workers: int) -> tuple[Cost, float, float]:
    """Measure the other way; return its cost, and the CPU seconds of all tasks that send and that receive."""
    positions = range(len(source.parts))
    with tempfile.TemporaryDirectory() as folder:
        began = perf_counter()
        sent = client.gather([client.submit(send, source, workers, each, folder, pure=False) for each in positions])
        received = client.gather([client.submit(receive, source, each, folder, pure=False) for each in range(workers)])
        seconds = perf_counter() - began
    row_bytes = source.rows * source.row_bytes
    busiest = sum(sent) / min(workers, len(sent)) + max(received)
    cost = Cost(seconds, busiest, row_bytes, 2 * row_bytes, len(sent) + workers, len(sent) * workers)
    return cost, sum(sent), sum(received)


def measure(source: Source, workers: Sequence[int], simulated: Sequence[int]) -> Any:
    """Return both ways by number of workers, measured and simulated."""
    measured: dict[int, Any] = {}
    for number in sorted(workers):
        with (
            LocalCluster(n_workers=number, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            client.run(process_time)
            everywhere, (once, sending, receiving) = read_all(client, source, number), send_once(client, source, number)
        measured[number] = {"read_all": asdict(everywhere), "send_once": asdict(once)}
        say(f"{number} workers: {measured[number]}")
    reading, both, bytes_once = everywhere.busiest_cpu_seconds, sending + receiving, source.rows * source.row_bytes
    parts = len(source.parts)
    forecast = {
        number: {
            "read_all": asdict(Cost(None, reading, number * bytes_once, 0, number)),
            "send_once": asdict(Cost(None, both / number, bytes_once, 2 * bytes_once, parts + number, parts * number)),
        }
        for number in simulated
    }
    return {
        "rows": source.rows,
        "cells": len(source.cells),
        "measured": measured,
        "simulated": forecast,
        "fewest_workers": int(both / reading) + 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=300)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--simulated", type=int, nargs="+", default=[16, 100])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = open_source(Path(folder), options.cells)
        print(json.dumps(measure(source, options.workers, options.simulated), indent=1))


if __name__ == "__main__":
    main()
