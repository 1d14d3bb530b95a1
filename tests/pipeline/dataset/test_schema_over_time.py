"""Every kind of column with every Arrow type, for every command that reads Parquet: accepted, or refused by name."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data.arrow_types import BOOLEAN, NULL, NUMBER, OTHER, SAMPLES, TEXT, TIME, VALUES, Sample
from support.stores.models import model_with, plain_map
from support.stores.partitions import column_of, only_partition, write_partition
from support.stores.stores import ingest_folder, new_store, segment_rows

from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.features.columns import CategoricalColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.ingest.ingest import ingest
from ridgestream.pipeline.models.predictor import Model
from ridgestream.pipeline.prediction.evaluate import evaluate
from ridgestream.pipeline.prediction.predict import predict
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.partitions import list_partitions, read_arrow_schema
from ridgestream.stores.schema.schema import Feature, Schema, SchemaRequest, infer_schema

ACCEPTED = {
    "numeric": {NUMBER, BOOLEAN},
    "boolean": {NUMBER, BOOLEAN},
    "timestamp": {TIME},
    "categorical": {TEXT, NUMBER, BOOLEAN},
}
"""The groups of types that each kind of column accepts, as the documentation says."""

BASE = {
    "numeric": pa.array([0.5, 2.0]),
    "boolean": pa.array([True, False]),
    "timestamp": pa.array([0, 10**6], pa.timestamp("us")),
    "categorical": pa.array(["0", "1"]),
}
"""A first partition's column of each kind."""

DAY = 86400.0
Y = pa.array([0.0, 1.0, 2.0, 3.0])

every_type = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())
every_kind = pytest.mark.parametrize("kind", ACCEPTED)


def schema_of(kind: str) -> Schema:
    return Schema("y", None, (Feature("x", kind),))


def model_of_kind(kind: str) -> Model:
    if kind != "categorical":
        return model_with(plain_map(["x"]))
    categories = ("0", "1", "true", "false", "0.00", "1.00")
    column = CategoricalColumn("x", categories, (0.0,) * 6, (1.0,) * 6)
    return model_with(FeatureMap((), (column,), TargetMap((0.0,), (1.0,))))


def refusal(sample: Sample, kind: str, name: str = "x") -> str:
    """The pattern of a message about a type that a kind does not accept: file, column, both types, and a remedy."""
    shown = re.escape(sample.shown) if sample.shown else ".+"
    remedy = "which takes .*; write the file again with the type of the earlier ones"
    return rf"part-1\.parquet: column '{name}' has type {shown}, the store has it as {kind}, {remedy}"


def put(folder: Path, sample: Sample, name: str = "x", others: dict[str, Any] | None = None) -> Path:
    return write_partition(folder / "part-1.parquet", sample.table(name, {"y": Y} if others is None else others))


@pytest.mark.samples(11)
@every_kind
@every_type
def test_ingest_accepts_or_refuses_a_later_partition(tmp_path: Path, sample: Sample, kind: str) -> None:
    write_partition(tmp_path / "in" / "part-0.parquet", column_of("x", BASE[kind]))
    store = new_store(tmp_path / "store")
    ingest_folder(store, tmp_path / "in", SchemaRequest("y"))
    put(tmp_path / "in", sample)
    if sample.group not in ACCEPTED[kind]:
        null = r"part-1\.parquet: column 'x' has the value null in row 0; .*source\.missing"
        before = store.snapshot()
        with pytest.raises(PartitionError, match=null if sample.group == NULL else refusal(sample, kind)):
            ingest_folder(store, tmp_path / "in", SchemaRequest("y"))
        assert store.snapshot() == before
        return
    ingest_folder(store, tmp_path / "in", SchemaRequest("y"))
    rows, ledger = segment_rows(store.root(), 1), read_ledger(store.root())
    if kind == "categorical":
        names = [float({"true": "1", "false": "0"}.get(v, v)) for v in ledger.categories[0]]
        assert set(names) == {0.0, 1.0}
        assert rows.codes[:, 0].tolist() == [0, 1, 1, 0]  # codes of its own table, by first appearance
    else:
        np.testing.assert_array_equal(rows.numeric[:, 0], np.array(VALUES) * (DAY if kind == "timestamp" else 1.0))


@pytest.mark.samples(22)
@every_kind
@every_type
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_model_accepts_or_refuses_a_partition(tmp_path: Path, sample: Sample, kind: str, command: str) -> None:
    files = list_partitions(put(tmp_path / "in", sample))
    model, schema = model_of_kind(kind), schema_of(kind)

    def use_model() -> Any:
        if command == "predict":
            predict(model, schema, files, tmp_path / "out", (), InProcess(), Silent())
            return pq.read_table(tmp_path / "out" / "part-1.parquet")["prediction"].to_numpy()
        return evaluate(model, schema, files, InProcess(), Silent()).test_mse

    if sample.group not in ACCEPTED[kind]:
        null = r"part-1\.parquet: column 'x' has the value null in row 0"
        with pytest.raises(PartitionError, match=null if sample.group == NULL else refusal(sample, kind)):
            use_model()
        return
    result = use_model()
    if command == "predict":
        assert (result[0], result[1]) == (result[3], result[2])
        assert result[0] != result[1]
    else:
        assert result > 0.0


@every_type
@pytest.mark.parametrize("categorical", [(), ("x",)], ids=["plain", "called categorical"])
def test_the_first_partition_determines_the_kind(tmp_path: Path, sample: Sample, categorical: tuple[str, ...]) -> None:
    file = only_partition(put(tmp_path / "in", sample))
    arrow = read_arrow_schema(file)
    expected = {NUMBER: "numeric", BOOLEAN: "boolean", TEXT: "categorical", TIME: "timestamp"}.get(sample.group)
    if categorical and sample.group in (NUMBER, BOOLEAN):
        expected = "categorical"
    request = SchemaRequest("y", categorical=categorical)
    if expected is None or (categorical and expected != "categorical"):
        shown = re.escape(sample.shown) if sample.shown else ".+"
        remedy = "(list it under ignore|only text and numbers can be categorical)"
        with pytest.raises(PartitionError, match=rf"part-1\.parquet: column 'x' has type {shown}[,;] .*{remedy}"):
            infer_schema(request, arrow, str(file.path))
        return
    assert infer_schema(request, arrow, str(file.path)).features == (Feature("x", expected),)


@every_type
@pytest.mark.parametrize("part", ["target", "weight"])
def test_a_later_target_or_weight_must_be_a_number(tmp_path: Path, sample: Sample, part: str) -> None:
    others = {"x": Y} | ({"y": Y} if part == "weight" else {})
    files = list_partitions(put(tmp_path / "in", sample, "y" if part == "target" else "w", others))
    schema = Schema("y", None, (Feature("x", "numeric"),), weight="w" if part == "weight" else None)
    name = "y" if part == "target" else "w"
    if sample.group not in ACCEPTED["numeric"]:
        null = rf"part-1\.parquet: column '{name}' has the value null in row 0"
        with pytest.raises(PartitionError, match=null if sample.group == NULL else refusal(sample, "numeric", name)):
            evaluate(model_of_kind("numeric"), schema, files, InProcess(), Silent())
        return
    assert evaluate(model_of_kind("numeric"), schema, files, InProcess(), Silent()).weight == (
        4.0 if part == "target" else 2.0
    )


@every_type
@pytest.mark.parametrize(
    ("positive", "group"), [("1", TEXT), (1, NUMBER), (True, BOOLEAN)], ids=["text", "number", "boolean"]
)
def test_a_later_class_must_have_the_type_of_the_positive_one(
    tmp_path: Path, sample: Sample, positive: str | int, group: str
) -> None:
    files = list_partitions(put(tmp_path / "in", sample, "y", {"x": Y}))
    schema = Schema("y", positive, (Feature("x", "numeric"),))
    if sample.group == group:
        assert evaluate(model_of_kind("numeric"), schema, files, InProcess(), Silent()).positive == 2.0
        return
    kind = re.escape(sample.shown) if sample.shown else ".+"
    message = rf"part-1\.parquet: column 'y' has type {kind}, which positive = {positive!r} cannot equal; give the cl"
    null = r"part-1\.parquet: column 'y' has the value null in row 0"
    with pytest.raises(PartitionError, match=null if sample.group == NULL else message):
        evaluate(model_of_kind("numeric"), schema, files, InProcess(), Silent())


@every_type
@pytest.mark.parametrize("class_kind", ["text", "boolean", "integer", "number"])
def test_a_later_class_must_have_the_kind_of_the_store(tmp_path: Path, sample: Sample, class_kind: str) -> None:
    files = list_partitions(put(tmp_path / "in", sample, "y", {"x": Y}))
    schema = Schema("y", None, (Feature("x", "numeric"),), classes="all", class_kind=class_kind)
    classes: tuple[Any, ...] = {"text": ("0", "1"), "boolean": (False, True)}.get(class_kind, (0, 1))
    model = model_with(plain_map(["x"], TargetMap.of_classes(classes)))
    if sample.group == {"text": TEXT, "boolean": BOOLEAN}.get(class_kind, NUMBER):
        assert np.sum(evaluate(model, schema, files, InProcess(), Silent()).confusion) == 4.0
        return
    kind = re.escape(sample.shown) if sample.shown else ".+"
    message = rf"part-1\.parquet: column 'y' has type {kind}, the store has its classes as {class_kind}; write the f"
    null = r"part-1\.parquet: column 'y' has the value null in row 0"
    with pytest.raises(PartitionError, match=null if sample.group == NULL else message):
        evaluate(model, schema, files, InProcess(), Silent())


@pytest.mark.parametrize("type_name", [name for name, s in SAMPLES.items() if s.group == OTHER or name == "null"])
def test_predictions_repeat_a_column_of_any_type(tmp_path: Path, type_name: str) -> None:
    sample = SAMPLES[type_name]
    files = list_partitions(put(tmp_path / "in", sample, "extra", {"x": Y}))
    predict(model_of_kind("numeric"), schema_of("numeric"), files, tmp_path / "out", ("extra",), InProcess(), Silent())
    before, after = (pq.read_table(tmp_path / where / "part-1.parquet")["extra"] for where in ("in", "out"))
    assert after.equals(before)


def test_an_extension_type_is_refused_by_name_where_its_library_is_not_loaded(tmp_path: Path) -> None:
    """Arrow would read its storage type, whole numbers, so that workers with and without the library would differ."""
    write = f"""
import pandas as pd
pd.DataFrame({{"x": pd.period_range("2020-01", periods=4, freq="M"), "y": [0.0, 1, 2, 3]}}).to_parquet({str(tmp_path)!r}
+ "/period.parquet")
"""
    subprocess.run([sys.executable, "-c", write], check=True)
    read = f"""
import sys
from pathlib import Path
from ridgestream.stores.parquet.partitions import list_partitions, read_arrow_schema
from ridgestream.stores.schema.schema import SchemaRequest, infer_schema
(file,) = list_partitions(Path({str(tmp_path)!r}) / "period.parquet")
assert "pandas" not in sys.modules
infer_schema(SchemaRequest("y"), read_arrow_schema(file), file.name)
"""
    process = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=False)
    assert (
        "period.parquet: column 'x' has type extension<pandas.period>, which cannot be a feature; list"
        in process.stderr
    )


TABLE = {"length": Y, "colour": pa.array(["a", "b", "a", "b"]), "y": Y}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"color": "colour"},
            "no column 'colour'; if 'color' is that column under a new name, rename it back; new her",
        ),
        (
            {"COLOUR": "colour"},
            "no column 'colour'; if 'COLOUR' is that column under a new name, rename it back; new h",
        ),
        ({"hue": "colour"}, "no column 'colour'; new here: hue; write the file again with the column"),
        (
            {"colour ": "colour", "extra": "y"},
            "no column 'colour'; if 'colour ' is that .*; new here: colour , extra; ",
        ),
        ({"Length": "length"}, "no column 'length'; if 'Length' is that column under a new name"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_the_new_name_of_a_renamed_column_is_suggested(tmp_path: Path, columns: dict[str, str], message: str) -> None:
    write_partition(tmp_path / "in" / "part-0.parquet", TABLE)
    store = new_store(tmp_path / "store")
    ingest_folder(store, tmp_path / "in", SchemaRequest("y"))
    missing = set(columns.values()) - {"y"}
    later = {name: values for name, values in TABLE.items() if name not in missing}
    later |= {new: TABLE[old] for new, old in columns.items()}
    write_partition(tmp_path / "in" / "part-1.parquet", later)
    with pytest.raises(PartitionError, match=rf"part-1\.parquet has {message}"):
        ingest_folder(store, tmp_path / "in", SchemaRequest("y"))


def test_a_missing_column_without_a_new_one(tmp_path: Path) -> None:
    files = list_partitions(write_partition(tmp_path / "part-1.parquet", {"y": Y}))
    with pytest.raises(PartitionError, match=r"part-1\.parquet has no column 'x'; it has y; write"):
        predict(model_of_kind("numeric"), schema_of("numeric"), files, tmp_path / "out", (), InProcess(), Silent())


def test_reordered_and_extra_columns_give_the_same_rows(tmp_path: Path) -> None:
    write_partition(tmp_path / "in" / "part-0.parquet", TABLE)
    write_partition(tmp_path / "in" / "part-1.parquet", {"new": Y, **dict(reversed(TABLE.items()))})
    store = new_store(tmp_path / "store")
    ingest_folder(store, tmp_path / "in", SchemaRequest("y"))
    first, second = (segment_rows(store.root(), n) for n in (0, 1))
    np.testing.assert_array_equal(first.numeric, second.numeric)
    np.testing.assert_array_equal(first.codes, second.codes)
    hashes = [entry.content_sha256 for entry in read_ledger(store.root()).entries]
    assert len(hashes) == 2
    assert hashes[0] == hashes[1]


@every_kind
def test_a_column_of_type_null_has_only_missing_values(tmp_path: Path, kind: str) -> None:
    write_partition(tmp_path / "in" / "part-0.parquet", column_of("x", BASE[kind]))
    put(tmp_path / "in", SAMPLES["null"])
    store = new_store(tmp_path / "store")
    with store.lock():
        files = list_partitions(tmp_path / "in")
        ingest(store, files, SchemaRequest("y"), InProcess(), Silent(), policies=Policies(missing="impute"))
    rows = segment_rows(store.root(), 1)
    assert rows.incomplete().all()
    assert read_ledger(store.root()).categories == ((("0", "1"),) if kind == "categorical" else ())
