"""Prediction: row for row with the input, one file per partition, each of which appears whole or not at all."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.recording import Notes
from support.stores.models import feature_map_of, model_with, predictions_of
from support.stores.partitions import REQUEST, mixed_columns, write_mixed, write_partition
from support.stores.stores import PicklingExecutor, ingest_folder, ledger_of, new_store

from ridgestream.pipeline.base.executor import Executor, InProcess
from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.models.predictor import ExpansionModel
from ridgestream.pipeline.prediction.predict import PredictionResult, predict
from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.parquet.partitions import check_apart, list_partitions, read_batches
from ridgestream.stores.parquet.predictions import write_predictions
from ridgestream.stores.schema.schema import Schema, SchemaRequest


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> tuple[ExpansionModel, Schema]:
    return trained(tmp_path_factory.mktemp("regression"), REQUEST)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> tuple[ExpansionModel, Schema]:
    return trained(tmp_path_factory.mktemp("classes"), SchemaRequest("y", positive=1))


def trained(folder: Path, request: SchemaRequest) -> tuple[ExpansionModel, Schema]:
    store = new_store(folder / "store")
    columns = mixed_columns(200)
    if request.positive is not None:
        columns["y"] = pa.array((columns["y"].to_numpy() > 3).astype(int))
    write_partition(folder / "train" / "part-0.parquet", columns)
    ingest_folder(store, folder / "train", request)
    schema = ledger_of(store).schema
    assert schema is not None
    return model_with(feature_map_of(store)), schema


def predict_folder(
    trained: tuple[ExpansionModel, Schema],
    source: Path,
    output: Path,
    keep: Sequence[str] = (),
    executor: Executor | None = None,
) -> int:
    return predict(*trained, list_partitions(source), output, tuple(keep), executor or InProcess(), Silent()).rows


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def without_target(rows: int, seed: int) -> dict[str, pa.Array]:
    return {name: column for name, column in mixed_columns(rows, seed).items() if name != "y"}


def test_predictions_are_in_the_users_units_row_for_row(
    regression: tuple[ExpansionModel, Schema], tmp_path: Path
) -> None:
    columns = without_target(40_000, seed=5)
    write_partition(tmp_path / "in" / "part-0.parquet", columns, row_group_size=7000)
    assert predict_folder(regression, tmp_path / "in", tmp_path / "out") == 40_000
    table = pq.read_table(tmp_path / "out" / "part-0.parquet")
    assert table.schema.equals(pa.schema({"prediction": pa.float64()}))
    expected = predictions_of(regression[0], columns)
    np.testing.assert_allclose(table["prediction"].to_numpy(), expected, rtol=1e-9, atol=1e-9)


def test_classes_are_signs_of_scores(classes: tuple[ExpansionModel, Schema], tmp_path: Path) -> None:
    columns = without_target(300, seed=5)
    write_partition(tmp_path / "in" / "part-0.parquet", columns)
    predict_folder(classes, tmp_path / "in", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "part-0.parquet")
    assert table.schema.equals(pa.schema({"prediction": pa.int8(), "score": pa.float64()}))
    scores, signs = table["score"].to_numpy(), table["prediction"].to_numpy()
    np.testing.assert_allclose(scores, predictions_of(classes[0], columns), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(signs, np.where(scores > 0, 1, -1))
    assert set(signs) == {-1, 1}


def test_each_partition_has_a_file_of_its_name_nested_and_empty_ones_too(
    regression: tuple[ExpansionModel, Schema], tmp_path: Path
) -> None:
    sizes = {"day=1/part-2.parquet": 20, "day=1/part-10.parquet": 0, "part-0.parquet": 3}
    for name, rows in sizes.items():
        write_partition(tmp_path / "in" / name, without_target(rows, seed=rows))
    assert predict_folder(regression, tmp_path / "in", tmp_path / "out") == 23
    assert files_below(tmp_path / "out") == sorted(sizes)
    assert {name: pq.read_metadata(tmp_path / "out" / name).num_rows for name in sizes} == sizes


def test_columns_of_the_input_are_repeated_unchanged(regression: tuple[ExpansionModel, Schema], tmp_path: Path) -> None:
    columns = mixed_columns(50, seed=5)
    columns |= {
        "id": pa.array(range(50), pa.uint16()),
        "tags": pa.array([[str(i)] * (i % 3) for i in range(50)]),
        "note": pa.array([None, "x"] * 25).dictionary_encode(),
    }
    write_partition(tmp_path / "in" / "part-0.parquet", columns)
    keep = ["tags", "id", "colour", "y", "note", "id"]
    predict_folder(regression, tmp_path / "in", tmp_path / "out", keep)
    table = pq.read_table(tmp_path / "out" / "part-0.parquet")
    assert table.column_names == ["tags", "id", "colour", "y", "note", "prediction"]
    for name in keep:
        assert table[name].to_pylist() == columns[name].to_pylist()
    assert table.schema.field("id").type == pa.uint16()
    np.testing.assert_allclose(table["prediction"].to_numpy(), predictions_of(regression[0], columns), rtol=1e-9)


def test_columns_may_be_permuted_and_extra_ones_are_reported(
    regression: tuple[ExpansionModel, Schema], tmp_path: Path
) -> None:
    columns = mixed_columns(30, seed=5)
    write_partition(tmp_path / "plain" / "part-0.parquet", columns)
    extra = {"extra": ["?"] * 30, "kept": range(30)}
    write_partition(tmp_path / "other" / "part-0.parquet", extra | dict(reversed(columns.items())))
    predict_folder(regression, tmp_path / "plain", tmp_path / "out")
    notes = Notes()
    predict(*regression, list_partitions(tmp_path / "other"), tmp_path / "out2", ("kept",), InProcess(), notes)
    plain, other = (pq.read_table(tmp_path / name / "part-0.parquet")["prediction"] for name in ("out", "out2"))
    assert plain.equals(other)
    assert notes.events == [("predict.columns_ignored", {"columns": "extra"})]
    assert (notes.steps, notes.rows, notes.ended) == (["predict"], 30, [{"rows": 30, "partitions": 1}])


def test_nothing_is_reported_if_no_column_is_ignored(regression: tuple[ExpansionModel, Schema], tmp_path: Path) -> None:
    notes = Notes()
    files = list_partitions(write_mixed(tmp_path / "in", [3]))
    predict(*regression, files, tmp_path / "out", (), InProcess(), notes)
    assert notes.events == []


def test_the_executor_does_not_change_the_files(regression: tuple[ExpansionModel, Schema], tmp_path: Path) -> None:
    source = write_mixed(tmp_path / "in", [30, 0, 50], seed=5)
    predict_folder(regression, source, tmp_path / "here")
    predict_folder(regression, source, tmp_path / "there", executor=PicklingExecutor())
    for name in files_below(tmp_path / "here"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    assert files_below(tmp_path / "there") == ["part-0.parquet", "part-1.parquet", "part-2.parquet"]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no feature": ({"flag": None}, r"/part-1\.parquet has no column 'flag'; it has length, count"),
    "NaN": ({"length": pa.array([0.0, np.nan])}, r"/part-1\.parquet: column 'length' has the value nan in row 1"),
    "null": ({"colour": pa.array([None, "red"])}, r"/part-1\.parquet: column 'colour' has the value null in row 0"),
    "text": ({"count": pa.array(["1", "2"])}, r"/part-1\.parquet: column 'count' has type string, the store has it"),
    "unseen category": (
        {"colour": pa.array(["red", "pink"])},
        r"/part-1\.parquet: column 'colour' has the category 'pink', which the model had not seen",
    ),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_partition_is_named_and_files_finished_before_it_stay(
    regression: tuple[ExpansionModel, Schema], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write_partition(tmp_path / "in" / "part-0.parquet", mixed_columns(5))
    columns = {k: v for k, v in (mixed_columns(2) | change).items() if v is not None}
    write_partition(tmp_path / "in" / "part-1.parquet", columns)
    with pytest.raises(PartitionError, match=message):
        predict_folder(regression, tmp_path / "in", tmp_path / "out")
    assert files_below(tmp_path / "out") == ["part-0.parquet"]


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (["id"], r"/part-0\.parquet has no column 'id'"),
        (["prediction"], r"/part-0\.parquet: column 'prediction' cannot be kept, the predictions have that name"),
    ],
)
def test_columns_that_cannot_be_kept_are_refused(
    regression: tuple[ExpansionModel, Schema], tmp_path: Path, keep: list[str], message: str
) -> None:
    write_partition(tmp_path / "in" / "part-0.parquet", mixed_columns(5) | {"prediction": range(5)})
    with pytest.raises(PartitionError, match=message):
        predict_folder(regression, tmp_path / "in", tmp_path / "out", keep)
    assert not (tmp_path / "out").exists()


def test_an_earlier_file_of_predictions_is_replaced_or_left_whole(
    regression: tuple[ExpansionModel, Schema], tmp_path: Path
) -> None:
    source = write_mixed(tmp_path / "in", [5])
    predict_folder(regression, source, tmp_path / "out")
    before = (tmp_path / "out" / "part-0.parquet").read_bytes()
    write_partition(source / "part-0.parquet", mixed_columns(40_000) | {"length": [0.0] * 39_999 + [np.nan]})
    message = r"column 'length' has the value nan in row 39999.*; .*/out/part-0.parquet is unchanged, from an earlier"
    with pytest.raises(PartitionError, match=message):
        predict_folder(regression, source, tmp_path / "out")
    assert (tmp_path / "out" / "part-0.parquet").read_bytes() == before
    write_mixed(source, [7])
    predict_folder(regression, source, tmp_path / "out")
    assert pq.read_metadata(tmp_path / "out" / "part-0.parquet").num_rows == 7
    assert files_below(tmp_path / "out") == ["part-0.parquet"]


def test_a_partition_that_changes_during_prediction_gives_no_file(
    regression: tuple[ExpansionModel, Schema], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_mixed(tmp_path / "in", [10])

    def read_then_change(*arguments: Any) -> Any:
        yield from read_batches(*arguments)
        write_mixed(source, [20])

    monkeypatch.setattr("ridgestream.pipeline.prediction.predict.read_batches", read_then_change)
    with pytest.raises(PartitionError, match=r"part-0\.parquet was changed while it was read"):
        predict_folder(regression, source, tmp_path / "out")
    assert files_below(tmp_path / "out") == []


WRITE_AND_HANG = """
import sys
from pathlib import Path
import pyarrow as pa
from ridgestream.stores.parquet.predictions import write_predictions
schema = pa.schema({"prediction": pa.float64()})
with write_predictions(Path(sys.argv[1]), schema) as writer:
    for _ in range(20):
        writer.write_batch(pa.record_batch([pa.array([float(i) for i in range(10_000)])], schema=schema))
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_killed_write_leaves_no_partial_file_under_the_final_name(tmp_path: Path) -> None:
    path = tmp_path / "out" / "part-0.parquet"
    command = [sys.executable, "-c", WRITE_AND_HANG, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        assert not path.exists()
        writer.kill()
        assert writer.wait(60) == -signal.SIGKILL
    assert not path.exists()
    with pytest.raises(PartitionError, match=r"has no file whose name ends in \.parquet"):
        list_partitions(tmp_path / "out")


def test_an_interrupted_write_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted_write(tmp_path / "part-0.parquet")
    assert files_below(tmp_path) == []


def interrupted_write(path: Path) -> None:
    schema = pa.schema({"prediction": pa.float64()})
    with write_predictions(path, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([1.0])], schema=schema))
        raise KeyboardInterrupt


def test_an_output_that_cannot_be_written_raises(regression: tuple[ExpansionModel, Schema], tmp_path: Path) -> None:
    source = write_mixed(tmp_path / "in", [5])
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match=r"the predictions .*/file/part-0\.parquet cannot be written"):
        predict_folder(regression, source, tmp_path / "file")
    (tmp_path / "out" / "part-0.parquet").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"the predictions .*/out/part-0\.parquet cannot be written"):
        predict_folder(regression, source, tmp_path / "out")
    assert files_below(tmp_path / "out") == []


@pytest.mark.parametrize("path_form", ["plain", "dotted", "linked"])
def test_predictions_never_replace_their_input(
    regression: tuple[ExpansionModel, Schema], tmp_path: Path, path_form: str
) -> None:
    source = write_mixed(tmp_path / "in", [5])
    (tmp_path / "link").symlink_to(source)
    before = (source / "part-0.parquet").read_bytes()
    output = {"plain": source, "dotted": tmp_path / "out" / ".." / "in", "linked": tmp_path / "link"}[path_form]
    (tmp_path / "out").mkdir()
    with pytest.raises(PartitionError, match=r"the predictions of .*/part-0\.parquet would replace it: choose another"):
        predict_folder(regression, source, output)
    assert (source / "part-0.parquet").read_bytes() == before


@pytest.mark.parametrize("output", ["", "predictions", "deep/er", "link/in/out"])
def test_an_output_below_the_source_is_refused(tmp_path: Path, output: str) -> None:
    source = write_mixed(tmp_path / "in", [5])
    (source / "link").symlink_to(tmp_path)
    with pytest.raises(PartitionError, match=r"the output .* lies in the source .*/in, whose partitions its files"):
        check_apart(source, source / output)


@pytest.mark.parametrize("output", ["../out", "../in-2", "_predictions", ".predictions/x", ".."])
def test_an_output_beside_the_source_or_hidden_in_it_is_accepted(tmp_path: Path, output: str) -> None:
    source = write_mixed(tmp_path / "in", [5])
    check_apart(source, source / output)
    check_apart(source / "part-0.parquet", source / "predictions")


def test_an_unfinished_file_of_the_same_process_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / f".part-0.parquet.{os.getpid()}.unfinished").write_bytes(b"half")
    schema = pa.schema({"prediction": pa.float64()})
    with write_predictions(tmp_path / "part-0.parquet", schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([1.0])], schema=schema))
    assert files_below(tmp_path) == ["part-0.parquet"]
    assert pq.read_table(tmp_path / "part-0.parquet")["prediction"].to_pylist() == [1.0]


def test_old_unfinished_files_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    unfinished = [
        tmp_path / f".{name}.parquet.{pid}.unfinished" for name, pid in (("part-0", 1), ("part-0", 2), ("part-1", 1))
    ]
    for path in unfinished:
        path.write_bytes(b"half")
    for path in unfinished[1:]:
        os.utime(path, (0, 0))
    schema = pa.schema({"prediction": pa.float64()})
    with write_predictions(tmp_path / "part-0.parquet", schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([1.0])], schema=schema))
    assert files_below(tmp_path) == [unfinished[0].name, unfinished[2].name, "part-0.parquet"]


@pytest.mark.parametrize("again", [False, True])
def test_a_foreign_file_is_not_replaced(
    regression: tuple[ExpansionModel, Schema], tmp_path: Path, *, again: bool
) -> None:
    source = write_mixed(tmp_path / "in", [5, 6])
    write_mixed(tmp_path / "out", [3])
    before = (tmp_path / "out" / "part-0.parquet").read_bytes()
    with pytest.raises(PartitionError, match=r"out/part-0\.parquet exists and was not written by predict"):
        predict(*regression, list_partitions(source), tmp_path / "out", (), InProcess(), Silent(), again=again)
    assert (tmp_path / "out" / "part-0.parquet").read_bytes() == before
    assert pq.read_metadata(tmp_path / "out" / "part-1.parquet").num_rows == 6


def times_below(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_mtime_ns for name in files_below(folder)}


def test_finished_partitions_are_skipped_unless_again_is_set(
    regression: tuple[ExpansionModel, Schema], tmp_path: Path
) -> None:
    files = list_partitions(write_mixed(tmp_path / "in", [5, 0, 7]))

    def run(*, again: bool = False) -> PredictionResult:
        return predict(*regression, files, tmp_path / "out", ("y",), InProcess(), Silent(), again=again)

    first = run()
    assert (first.rows, first.written, first.skipped) == (12, 3, 0)
    before = times_below(tmp_path / "out")
    second = run()
    assert (second.rows, second.written, second.skipped) == (12, 0, 3)
    assert second.summary == first.summary
    assert times_below(tmp_path / "out") == before
    (tmp_path / "out" / "part-1.parquet").unlink()
    (tmp_path / "out" / "part-2.parquet").write_bytes(b"cut off")
    third = run()
    assert (third.rows, third.written, third.skipped) == (12, 2, 1)
    assert run(again=True).written == 3
    assert all(time > before[name] for name, time in times_below(tmp_path / "out").items())


OTHER: dict[str, dict[str, Any]] = {
    "other coefficients": {"coefficients": 1.0},
    "other vectors": {"vectors": 1e-12},
    "kept columns": {"keep": ("x",)},
    "policies": {"policies": Policies(missing="impute")},
}


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER.keys())
def test_another_model_or_option_predicts_again(
    regression: tuple[ExpansionModel, Schema], tmp_path: Path, change: dict[str, Any]
) -> None:
    model, schema = regression
    files = list_partitions(write_partition(tmp_path / "in" / "part-0.parquet", mixed_columns(5) | {"x": range(5)}))
    predict(model, schema, files, tmp_path / "out", (), InProcess(), Silent())
    change = dict(change)
    basis = replace(model.basis, vectors=model.basis.vectors + change.pop("vectors", 0.0))
    other = replace(model, basis=basis, coefficients=model.coefficients + change.pop("coefficients", 0.0))
    keep = change.pop("keep", ())
    for expected in (1, 0):
        result = predict(other, schema, files, tmp_path / "out", keep, InProcess(), Silent(), **change)
        assert (result.written, result.skipped) == (expected, 1 - expected)
    assert predict(model, schema, files, tmp_path / "out", (), InProcess(), Silent()).written == 1


def test_another_input_under_the_same_name_is_predicted_again(
    regression: tuple[ExpansionModel, Schema], tmp_path: Path
) -> None:
    source = write_mixed(tmp_path / "in", [5, 6])
    predict_folder(regression, source, tmp_path / "out")
    (file, _) = list_partitions(source)
    os.utime(source / "part-0.parquet", ns=(file.modified_ns, file.modified_ns + 1000))
    files = list_partitions(source)
    result = predict(*regression, files, tmp_path / "out", (), InProcess(), Silent())
    assert (result.written, result.skipped) == (1, 1)


def test_bad_partitions_do_not_affect_others(regression: tuple[ExpansionModel, Schema], tmp_path: Path) -> None:
    source = write_mixed(tmp_path / "in", [5, 6, 7, 8])
    for number in (1, 2):
        write_partition(source / f"part-{number}.parquet", mixed_columns(2) | {"length": [0.0, np.nan]})
    (source / "part-0.parquet").write_bytes(b"no Parquet at all")
    notes = Notes()
    message = r"part-0\.parquet is not a readable Parquet file.* \(2 more partitions cannot be predicted\)$"
    with pytest.raises(PartitionError, match=message):
        predict(*regression, list_partitions(source), tmp_path / "out", (), InProcess(), notes)
    assert files_below(tmp_path / "out") == ["part-3.parquet"]
    assert notes.ended == [{"rows": 8, "partitions": 4, "failed": 3}]


def test_row_groups_have_131072_rows(regression: tuple[ExpansionModel, Schema], tmp_path: Path) -> None:
    write_partition(tmp_path / "in" / "part-0.parquet", mixed_columns(150_000), row_group_size=1000)
    predict_folder(regression, tmp_path / "in", tmp_path / "out")
    metadata = pq.read_metadata(tmp_path / "out" / "part-0.parquet")
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [131_072, 150_000 - 131_072]
