"""What predicting partitions costs, Parquet to Parquet, over the bare products of a kernel expansion.

    python tests/benchmarks/predict.py --rows 500000 --basis 500

On the bundled forest rows (54 integers each), by a model with a random dictionary of them, in a process that has done
it all once before, as JSON. Both are taken in turn, `--repeats` times; `ratio` is the median of the CPU seconds that
`predict` takes over the median of the bare products': kernel blocks of standardized rows in memory, times the
coefficients, in the blocks that predictions use. BLAS has one thread in both.
"""

import argparse
import cProfile
import json
import pstats
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.measuring import GAMMA, Array, Watch, say
from support.data.forest import FOREST, PARTITION_ROWS, Rows, standardized_forest
from support.stores.stores import ingest_folder, ledger_of, new_store

from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.dataset.feature_map_fit import fit_feature_map
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.models.predictor import PREDICTION_BYTES, ExpansionModel
from ridgestream.pipeline.prediction.predict import predict
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.stores.parquet.partitions import PartitionFile, list_partitions
from ridgestream.stores.schema.schema import Schema, SchemaRequest
from ridgestream.stores.segments.segments import Segments


def make_model(folder: Path, rows: Rows, n_basis: int) -> tuple[ExpansionModel, Schema]:
    """Return a model whose dictionary is drawn from the rows, with random coefficients, and the schema of forest."""
    (folder / "first").mkdir()
    (folder / "first" / "part-00.parquet").symlink_to(FOREST / "train" / "part-00.parquet")
    store = new_store(folder / "store")
    ingest_folder(store, folder / "first", SchemaRequest("Cover_Type", positive=2))
    feature_map, schema = (
        fit_feature_map(Segments(store.root()), ledger_of(store), PARTITION_ROWS),
        ledger_of(store).schema,
    )
    assert schema is not None
    rng = np.random.default_rng(0)
    vectors = rows.X[np.sort(rng.choice(len(rows.X), n_basis, replace=False))]
    basis = Basis(RBF(GAMMA), vectors, np.zeros(vectors.shape[1]), constant=True)
    return ExpansionModel(basis, rng.standard_normal((n_basis + 1, 1)), feature_map), schema


def bare_products(rows: Rows, model: ExpansionModel) -> Array:
    """Return Σ β_i k(x_i, x) + b of standardized rows in memory."""
    found, step = np.empty((len(rows.X), 1)), max(1, PREDICTION_BYTES // (8 * len(model.coefficients)))
    with one_blas_thread():
        for start in range(0, len(rows.X), step):
            part = slice(start, start + step)
            found[part] = model.basis.kernel.block(rows.X[part], model.basis.vectors) @ model.coefficients[:-1]
    return np.asarray(found + model.coefficients[-1])


def measure(n_rows: int, n_basis: int, repeats: int, *, profile: bool) -> dict[str, Any]:
    """Return `ratio`, and both in CPU seconds."""
    rows, _ = standardized_forest(n_rows)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        model, schema = make_model(folder, rows, n_basis)
        files = list_partitions(FOREST / "train")[: -(-n_rows // PARTITION_ROWS)]
        took = [(_whole(model, schema, files, folder), _bare(rows, model)) for _ in range(repeats + 1)][1:]
        if profile:
            _profile(model, schema, files, folder)
    ours, bare = (median(column) for column in zip(*took, strict=True))
    return {
        "rows": len(rows.X),
        "n_basis": n_basis,
        "ratio": round(ours / bare, 3),
        "predict_seconds": round(ours, 9),
        "bare_seconds": round(bare, 9),
        "all_seconds": took,
    }


def _whole(model: ExpansionModel, schema: Schema, files: tuple[PartitionFile, ...], folder: Path) -> float:
    watch = Watch()
    done = predict(model, schema, files, folder / "out", (), InProcess(), Silent(), again=True)
    took = watch.read()
    say(f"predict: {done.rows:,} rows, {took}")
    return took.cpu_seconds


def _bare(rows: Rows, model: ExpansionModel) -> float:
    watch = Watch()
    bare_products(rows, model)
    took = watch.read()
    say(f"bare products: {took}")
    return took.cpu_seconds


def _profile(model: ExpansionModel, schema: Schema, files: tuple[PartitionFile, ...], folder: Path) -> None:
    profiler = cProfile.Profile()
    profiler.runcall(predict, model, schema, files, folder / "out", (), InProcess(), Silent(), again=True)
    pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(15)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000, help="at most, by whole partitions of 50,000")
    parser.add_argument("--basis", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="tell where the time goes, on standard error")
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.rows, arguments.basis, arguments.repeats, profile=arguments.profile)))


if __name__ == "__main__":
    main()
