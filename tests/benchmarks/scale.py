"""What local experts cost at scale: seconds, memory and bytes by rows, cells and workers, and a cost model from them.

    python tests/benchmarks/scale.py --rows 1e5 1e6 1e7 1e8 --cells 1 10 100 1000 --workers 1 2 4   # many hours
    python tests/benchmarks/scale.py --rows 5e4 1e5 --cells 1 10 100 --workers 1 2 --basis 50       # minutes

Rows are an endless stream like those of forest, generated as they are learned, so that none is on a disk. Each of W
workers is a process that sees the whole stream, finds the cells of its rows, and learns those of every W-th cell. For
each number of cells and workers the stream continues to the largest number of rows, with what it took at each.

Prints one JSON object. `points` have CPU microseconds a row for finding cells and for learning, since the point before,
of the worker that took longest, the peak of resident memory, and the bytes of the state and of the rows read; --points
adds those of other runs. `model` has the coefficients of

    routing  = a + b · cells · features
    learning = (c + d · m² + (e + f · m²) · changes + (g + h · m³) · cells / rows of a partition) / workers
    memory   = i + j · cells · m² / workers, no more workers than there are cells

with m the vectors of a cell in the mean, and the changes of dictionaries by a row: one for each of the first m rows of
a cell, and m/n after n. They are fitted by non-negative least squares: microseconds a row and bytes.
`residuals` are the factors between model and points: their geometric mean deviation, and the smallest and largest.
`forecast` is what the model says of --forecast rows on as many workers with full dictionaries, and --decode
microseconds for reading a row: where every worker reads all rows, and where each is sent once; `limit` names the
largest part of each.
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.optimize import nnls

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import GAMMA, REGULARIZATION, Array, say, warm_up
from support.data.forest import N_FEATURES, PARTITION_ROWS, stream_like_forest

from ridgestream import RBF, LocalExperts
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.online.experts.cell_learning import part_rows
from ridgestream.pipeline.selection.starts.kmeans import kmeans_centres
from ridgestream.pipeline.sums.row_set import ArrayRows

ROWS_A_CENTRE = 20
KMEANS_PASSES = 3


@dataclass(frozen=True)
class Point:
    """What one worker took for the rows of the stream since the point before."""

    rows: int
    cells: int
    workers: int
    basis: int
    routing_us: float
    """CPU microseconds a row of the stream."""
    learning_us: float
    """CPU microseconds a row of the stream, those of other workers included."""
    peak_bytes: float
    state_bytes: int = 0
    read_bytes: int = 0
    since: int = 0
    """The rows of the point before."""

    @property
    def vectors(self) -> float:
        """The vectors of a cell in the mean, of whose m² + m · (features + 4) numbers the state consists."""
        if not self.state_bytes:
            return float(self.basis)
        half, numbers = (N_FEATURES + 4) / 2, self.state_bytes / 8 / self.cells
        return min(float(self.basis), float(np.sqrt(half**2 + numbers)) - half)

    @property
    def load(self) -> "Load":
        """What decides its costs."""
        return Load.of(self.cells, self.vectors, self.workers, (self.since, self.rows))


@dataclass(frozen=True)
class Load:
    """What decides what a row costs."""

    cells: float
    """The number of cells."""
    vectors: float
    """Their vectors in the mean."""
    workers: float
    """The number of workers that have some of them."""
    changes: float
    """Changes of dictionaries by a row."""

    @classmethod
    def of(cls, cells: float, vectors: float, workers: float, rows: tuple[float, float]) -> "Load":
        """Return the load of the rows of a stream between these two numbers."""
        full = cells * vectors
        before, after = (min(n, full) + full * float(np.log(max(n / full, 1.0))) for n in rows)
        return cls(cells, vectors, min(workers, cells), (after - before) / (rows[1] - rows[0]))


def centres_of(rows: Array, cells: int) -> Array:
    """Return the centres of this many cells of the first rows."""
    some = rows[: max(ROWS_A_CENTRE * cells, 1_000)]
    return kmeans_centres(ArrayRows(some, np.zeros(len(some))), cells, 0, KMEANS_PASSES, Silent()).vectors


def work(cells: int, workers: int, number: int, basis: int, stops: Sequence[int]) -> Iterator[Point]:
    """Learn every `workers`-th cell's rows of the stream; yield a point at each of the ascending numbers of rows."""
    stream = stream_like_forest()
    first = next(stream)
    warm_up(first)
    learner = LocalExperts(RBF(16 * GAMMA), centres_of(first.X, cells), regularization=REGULARIZATION, max_basis=basis)
    seen, told, routing, learning = 0, 0, 0.0, 0.0
    for block in chain([first], stream):
        began = process_time()
        own = np.flatnonzero(learner.cells.nearest(block.X) % workers == number)
        routed = process_time()
        learner.partial_fit(block.X[own], block.y[own])
        learner.refresh()
        again = (routed - began) * len(own) / len(block.X)  # partial_fit finds the cells of its rows once more
        seen, routing, learning = (
            seen + len(block.X),
            routing + routed - began,
            learning + process_time() - routed - again,
        )
        if seen >= stops[0]:
            point = Point(
                seen,
                cells,
                workers,
                basis,
                1e6 * routing / (seen - told),
                1e6 * learning / (seen - told),
                1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                sum(packed.nbytes for packed in learner.state().packed),
                8 * N_FEATURES * seen,
                told,
            )
            say(f"worker {number}: {point}")  # a run that takes too long leaves what it has measured
            yield point
            told, routing, learning, stops = seen, 0.0, 0.0, [stop for stop in stops if stop > seen]
        if not stops:
            return


def measure(cells: int, workers: int, basis: int, rows: Sequence[int]) -> list[Point]:
    """Run all workers at once; return, for each number of rows, what the slowest took, and the bytes of all."""
    command = [sys.executable, __file__, "--basis", str(basis), "--rows", *map(str, rows), "--worker"]
    running = [
        subprocess.Popen([*command, str(cells), str(workers), str(number)], stdout=subprocess.PIPE)
        for number in range(workers)
    ]
    told = [[Point(**point) for point in json.loads(process.communicate()[0])] for process in running]
    return [merge(points) for points in zip(*told, strict=True)]


def merge(points: Sequence[Point]) -> Point:
    slowest = max(points, key=lambda point: point.routing_us + point.learning_us)
    plain = asdict(slowest) | {
        "peak_bytes": max(point.peak_bytes for point in points),
        "state_bytes": sum(point.state_bytes for point in points),
        "read_bytes": sum(point.read_bytes for point in points),
    }
    say(f"{plain}")
    return Point(**plain)


def routing_terms(load: Load) -> list[float]:
    return [1.0, load.cells * N_FEATURES]


def learning_terms(load: Load) -> list[float]:
    m, visits = load.vectors, load.cells / min(part_rows(N_FEATURES), PARTITION_ROWS)
    terms = 1.0, m**2, load.changes, load.changes * m**2, visits, visits * m**3
    return [term / load.workers for term in terms]


def memory_terms(load: Load) -> list[float]:
    return [1.0, load.cells * load.vectors**2 / load.workers]


FITTED = {
    "routing_us": (routing_terms, ("row", "cells_features")),
    "learning_us": (learning_terms, ("row", "update", "changed_row", "change", "visit", "refresh")),
    "peak_bytes": (memory_terms, ("process", "cell_matrix")),
}
"""What is fitted: the terms of each cost, and their names."""


def fit(points: Sequence[Point]) -> dict[str, dict[str, float]]:
    """Return the coefficients of each cost, fitted to relative errors."""
    found: dict[str, dict[str, float]] = {}
    for cost, (terms, names) in FITTED.items():
        wanted = np.array([getattr(point, cost) for point in points])
        table = np.array([terms(point.load) for point in points])
        weights = 1 / np.maximum(wanted, 1e-9)
        scale = np.maximum(np.abs(table * weights[:, np.newaxis]).max(axis=0), 1e-300)
        coefficients = nnls(table * weights[:, np.newaxis] / scale, wanted * weights)[0] / scale
        found[cost] = dict(zip(names, coefficients.tolist(), strict=True))
    return found


def predict(model: dict[str, dict[str, float]], cost: str, load: Load) -> float:
    """Return a cost by the model."""
    terms, names = FITTED[cost]
    return sum(model[cost][term] * value for term, value in zip(names, terms(load), strict=True))


def residuals(model: dict[str, dict[str, float]], points: Sequence[Point]) -> dict[str, dict[str, float]]:
    """Return, for each cost, the factors between what the model says and the points."""
    found = {}
    for cost in FITTED:
        factors = [predict(model, cost, p.load) / getattr(p, cost) for p in points]
        deviation = float(np.exp(np.sqrt(np.mean(np.log(factors) ** 2))))
        found[cost] = {"deviation": deviation, "smallest": min(factors), "largest": max(factors)}
    return found


def forecast(
    model: dict[str, dict[str, float]], rows: float, cells: int, basis: int, workers: int, decode: float
) -> Any:
    """Return the hours of both ways of bringing rows to cells, with what limits each, and the memory of a worker."""

    def cost(name: str) -> float:
        return predict(model, name, Load.of(cells, basis, workers, (0, rows)))

    hours = rows / 3.6e9
    ways = {
        "every worker reads all rows": {
            "decoding": decode,
            "routing": cost("routing_us"),
            "learning": cost("learning_us"),
        },
        "rows are sent once": {
            "decoding": 2 * decode / workers,  # read from the store, and again where they arrive
            "routing": cost("routing_us") / workers,
            "learning": cost("learning_us"),
        },
    }
    return {
        "rows": rows,
        "cells": cells,
        "basis": basis,
        "workers": workers,
        "peak_bytes": cost("peak_bytes"),
        "state_bytes": 8 * cells * (basis**2 + basis * (N_FEATURES + 3)),
        "row_bytes": 8 * N_FEATURES * rows,
        "ways": {
            way: {name: hours * part for name, part in parts.items()}
            | {"hours": hours * sum(parts.values()), "limit": max(parts, key=lambda name: parts[name])}
            for way, parts in ways.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 1e7, 1e8])
    parser.add_argument("--cells", type=int, nargs="*", default=[1, 10, 100, 1000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--basis", type=int, nargs="+", default=[100, 200])
    parser.add_argument("--forecast", type=float, nargs=2, default=[1e9, 100], metavar=("ROWS", "WORKERS"))
    parser.add_argument("--decode", type=float, default=3.0, help="microseconds to read and decode a row")
    parser.add_argument(
        "--points", type=Path, nargs="+", default=[], help="outputs of other runs, whose points are added"
    )
    parser.add_argument("--worker", type=int, nargs=3, metavar=("CELLS", "WORKERS", "NUMBER"))
    options = parser.parse_args()
    rows = sorted(int(number) for number in options.rows)
    if options.worker:
        cells, workers, number = options.worker
        print(json.dumps([asdict(point) for point in work(cells, workers, number, options.basis[0], rows)]))
        return
    points = [Point(**point) for path in options.points for point in json.loads(path.read_text())["points"]]
    points += [
        point
        for basis in options.basis
        for cells in options.cells
        for workers in options.workers
        for point in measure(cells, workers, basis, rows)
    ]
    model, (n_rows, workers) = fit(points), options.forecast
    largest = max(point.cells for point in points), max(point.basis for point in points)
    facts = {
        "points": [asdict(point) for point in points],
        "model": model,
        "residuals": residuals(model, points),
        "forecast": forecast(model, n_rows, *largest, int(workers), options.decode),
    }
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
