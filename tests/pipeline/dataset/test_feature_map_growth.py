"""What is said of columns when a new model's feature map is frozen."""

from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pyarrow as pa
from support.jobs.recording import Notes
from support.stores.partitions import write_partition
from support.stores.stores import ledger_of, new_store

from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.dataset.feature_map_growth import plan_encodings
from ridgestream.pipeline.ingest.ingest import ingest
from ridgestream.stores.parquet.partitions import list_partitions
from ridgestream.stores.schema.schema import SchemaRequest
from ridgestream.stores.segments.segments import Segments

VALUES: dict[pa.DataType, list[Any]] = {
    pa.float64(): [None, 0.0, -0.0, 1e-30, 5e3],
    pa.int8(): [None, 0, 1],
    pa.bool_(): [None, False, True],
    pa.timestamp("s"): [None, 0, 7],
    pa.string(): [None, "a", "b"],
}


def test_columns_with_one_value_or_none_are_named_when_the_map_is_frozen(tmp_path: Path) -> None:
    rows = {f"{t}{v}": pa.array(v, t) for t, of in VALUES.items() for v in combinations_with_replacement(of, 3)}
    write_partition(tmp_path / "in" / "part-0.parquet", rows | {"y": [0.0, 1.0, 2.0]})
    store, notes = new_store(tmp_path / "store"), Notes()
    with store.lock():
        request, policies = SchemaRequest("y"), Policies(missing="impute")
        ingest(store, list_partitions(tmp_path / "in"), request, InProcess(), Silent(), policies=policies)
    ledger = ledger_of(store)
    plan_encodings(
        Segments(store.root()),
        ledger,
        record=None,
        entries=ledger.entries,
        scaling_rows=3,
        policy="ignore",
        report=notes,
    )
    different = {name: len(set(column.to_pylist()) - {None}) for name, column in rows.items()}
    for code, count in (("features.columns_constant", 1), ("features.columns_without_values", 0)):
        assert notes.facts(code)["columns"] == ", ".join(name for name, n in different.items() if n == count)
