"""Measures whether intervals and probabilities hold: coverage at 90 % over splits and nights, calibration error.

    python tests/benchmarks/uncertainty.py intervals abalone.parquet --splits 20
    python tests/benchmarks/uncertainty.py intervals generated --rows 50000 --splits 20
    python tests/benchmarks/uncertainty.py drift --nights 20 --splits 10
    python tests/benchmarks/uncertainty.py probabilities covtype.parquet --rows 60000
    python tests/benchmarks/uncertainty.py probabilities forest

A Parquet file has its features and a column `target`; `generated` rows have noise that grows with a feature, `forest`
is the recipe's bundled rows. Each split is a job of its own, as the command runs it, which tells coverage by
`evaluate`; in `drift` a night's rows are predicted by the model before it. Prints JSON.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support`, as pytest finds it

from support.jobs.jobs import FOREST, Settings, Workplace

from ridgestream.stores.catalog.models import require_model
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation

NIGHT_ROWS = 2000
SHARE = 0.2
"""The share of rows held out in a split."""


def generate(rows: int, seed: int, trend: float = 0.0) -> pa.Table:
    """Four features and `target`, with noise that grows with the first, and a shift by `trend` deviations."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4))
    signal = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + trend * (1 + 0.5 * X[:, 3])
    noise = (0.3 + 0.3 * (X[:, 0] > 0) + 0.15 * trend) * rng.standard_t(5, size=rows)
    return pa.table({**{f"x{i}": X[:, i] for i in range(4)}, "target": signal + noise})


def split(table: pa.Table, work: Workplace, seed: int) -> None:
    """Write a permutation of the rows as partitions and held-out rows."""
    order = np.random.default_rng(seed).permutation(len(table))
    held = int(SHARE * len(table))
    parts = np.array_split(order[held:], max(1, (len(table) - held) // 10_000))
    for number, part in enumerate(parts):
        work.put(number, table.take(part))
    put_held_out(work, table.take(order[:held]))


def put_held_out(work: Workplace, table: pa.Table) -> None:
    """Write the held-out rows."""
    (work.folder / "held-out").mkdir(exist_ok=True)
    pq.write_table(table, work.folder / "held-out" / "rows.parquet")


def settings(changes: Settings) -> Settings:
    """Return the job's settings: the defaults, but for what is given."""
    none = {"model.regularization": None, "model.max_basis": None, "model.scaling_rows": None, "source.positive": None}
    return {**none, "source.target": "target", "model.refit": None, **changes}


def measure_splits(table: pa.Table, splits: int, changes: Settings) -> dict[str, Any]:
    """Return the figures of each split of the rows."""
    found = []
    for seed in range(splits):
        with tempfile.TemporaryDirectory() as folder:
            work = Workplace(Path(folder))
            split(table, work, seed)
            work.run_here(settings(changes))
            result = work.evaluate_here(settings(changes))
            found.append(result.get("intervals") or result["probabilities"])
            print(seed, {k: v for k, v in found[-1].items() if k != "reliability"}, file=sys.stderr)
    return summarize(found)


def summarize(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation of each number over the splits."""
    names = [name for name, value in found[0].items() if isinstance(value, float)]
    widths = [each["of"]["target"]["mean_width"] for each in found if each.get("of")]
    figures = {name: spread([each[name] for each in found]) for name in names}
    return figures | ({"mean_width": spread(widths)} if widths else {})


def spread(values: list[float]) -> dict[str, float]:
    """Return mean and standard deviation."""
    return {"mean": round(mean(values), 5), "std": round(stdev(values), 5) if len(values) > 1 else 0.0}


def measure_drift(nights: int, splits: int, changes: Settings) -> dict[str, Any]:
    """Return the coverage of each night's rows by the intervals of the model before, and the mean over the nights."""
    runs = []
    for seed in range(splits):
        with tempfile.TemporaryDirectory() as folder:
            work = Workplace(Path(folder))
            put_held_out(work, generate(100, 10**6 + seed))
            for night in range(nights):
                work.put(night, generate(NIGHT_ROWS, 1000 * seed + night, trend=2.0 * night / nights))
                work.run_here(settings(changes))
            record = require_model(Store.open(StoreLocation.parse(str(work.store), work.folder)).root(), "model")
            runs.append([night.coverage for night in record.history[1:]])
            print(seed, runs[-1], file=sys.stderr)
    by_night = np.array(runs, dtype=float).mean(axis=0)
    return {"coverage_by_night": by_night.round(4).tolist(), "coverage": round(float(by_night.mean()), 5)}


def read_rows(name: str, rows: int | None) -> pa.Table:
    """Return the rows that are named: generated, the recipe's, or of a file; at most `rows`, drawn at random."""
    if name == "generated":
        return generate(rows or 50_000, 0)
    if name == "forest":
        table = pq.read_table(FOREST / "train")
        table = table.rename_columns([*table.column_names[:-1], "target"])
    else:
        table = pq.read_table(name)
    if rows is None or rows >= len(table):
        return table
    return table.take(np.random.default_rng(0).choice(len(table), rows, replace=False))


def main() -> None:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["intervals", "drift", "probabilities"])
    parser.add_argument("rows_of", nargs="?", default="generated", help="a Parquet file, generated or forest")
    parser.add_argument("--rows", type=int, help="draw so many rows")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--nights", type=int, default=20)
    parser.add_argument("--positive", type=int, help="learn one class against the rest, in place of each")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="a key of the job file")
    options = parser.parse_args()
    changes: dict[str, Any] = {key: json.loads(value) for key, value in (each.split("=", 1) for each in options.set)}
    if options.what == "drift":
        figures = measure_drift(options.nights, options.splits, changes)
    else:
        if options.what == "probabilities":
            changes |= {"source.positive": options.positive} if options.positive else {"source.classes": "all"}
        figures = measure_splits(read_rows(options.rows_of, options.rows), options.splits, changes)
    print(json.dumps({"what": options.what, "rows_of": Path(options.rows_of).name, "splits": options.splits} | figures))


if __name__ == "__main__":
    main()
