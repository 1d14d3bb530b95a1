"""Evaluation: errors match their definitions, with weights, partition by partition."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.jobs.recording import Notes
from support.stores.models import feature_map_of, model_with, predictions_of
from support.stores.partitions import REQUEST, mixed_columns, write_mixed, write_partition
from support.stores.stores import PicklingExecutor, ingest_folder, ledger_of, new_store

from ridgestream.pipeline.base.executor import Executor, InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.models.predictor import ExpansionModel
from ridgestream.pipeline.prediction.evaluate import Evaluation, evaluate
from ridgestream.pipeline.prediction.last_value import LastValue
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.partitions import list_partitions, read_batches
from ridgestream.stores.schema.schema import Schema, SchemaRequest


def trained(tmp_path: Path, request: SchemaRequest = REQUEST, **more: Any) -> tuple[ExpansionModel, Schema]:
    """Return a model for an ingested partition, and the schema of the store."""
    store = new_store(tmp_path / "store")
    write_partition(tmp_path / "train" / "part-0.parquet", mixed_columns(200) | {k: v(200) for k, v in more.items()})
    ingest_folder(store, tmp_path / "train", request)
    schema = ledger_of(store).schema
    assert schema is not None
    return model_with(feature_map_of(store)), schema


def evaluate_folder(
    model: ExpansionModel, schema: Schema, folder: Path, executor: Executor | None = None
) -> Evaluation:
    return evaluate(model, schema, list_partitions(folder), executor or InProcess(), Silent())


def test_mean_squared_error_is_in_the_users_units(tmp_path: Path) -> None:
    model, schema = trained(tmp_path)
    folder = write_mixed(tmp_path / "test", [300, 0, 77], seed=50)
    errors = [
        predictions_of(model, columns) - columns["y"].to_numpy()
        for columns in (mixed_columns(300, seed=50), mixed_columns(77, seed=52))
    ]
    result = evaluate_folder(model, schema, folder)
    assert result.weight == 377
    assert result.test_error is None
    assert result.test_mse == pytest.approx(np.mean(np.concatenate(errors) ** 2), rel=1e-10)


def classes(rows: int, seed: int = 0) -> dict[str, pa.Array]:
    columns = mixed_columns(rows, seed)
    return columns | {"y": pa.array(np.where(columns["y"].to_numpy() > 3, "yes", "no"))}


def classifier(tmp_path: Path, weight: str | None = None) -> tuple[ExpansionModel, Schema]:
    request = SchemaRequest("y", positive="yes", weight=weight)
    store = new_store(tmp_path / "store")
    write_partition(tmp_path / "train" / "0.parquet", classes(200) | ({weight: np.ones(200)} if weight else {}))
    ingest_folder(store, tmp_path / "train", request)
    schema = ledger_of(store).schema
    assert schema is not None
    return model_with(feature_map_of(store)), schema


def test_mistakes_are_wrong_signs(tmp_path: Path) -> None:
    model, schema = classifier(tmp_path)
    columns = classes(500, seed=50)
    write_partition(tmp_path / "test" / "0.parquet", columns)
    result = evaluate_folder(model, schema, tmp_path / "test")
    predicted = predictions_of(model, columns) > 0
    truth = np.array(columns["y"].to_pylist()) == "yes"
    assert 0 < truth.sum() < 500
    assert result.mistakes == (predicted != truth).sum()
    assert result.test_error == (predicted != truth).mean()
    assert result.test_mse is None
    assert (result.positive, result.true_positive) == (truth.sum(), (truth & predicted).sum())


def test_weights_count_rows(tmp_path: Path) -> None:
    model, schema = classifier(tmp_path, weight="w")
    weights = np.arange(300) % 3
    columns = classes(300, seed=50)
    write_partition(tmp_path / "weighted" / "0.parquet", columns | {"w": weights})
    repeated = pa.table(columns).take(pa.array(np.repeat(np.arange(300), weights)))
    write_partition(tmp_path / "repeated" / "0.parquet", repeated.append_column("w", pa.array(np.ones(300))))
    weighted = evaluate_folder(model, schema, tmp_path / "weighted")
    plain = evaluate_folder(model, schema, tmp_path / "repeated")
    # a repeated row follows itself, so that the last value has other errors
    weighted, plain = (replace(each, squares=(), last_value=LastValue()) for each in (weighted, plain))
    assert weighted == plain
    np.testing.assert_allclose(weighted.squares, plain.squares, rtol=1e-12)


@pytest.mark.parametrize("weights", [[0.0, 0.0], []], ids=["weight zero", "no rows"])
def test_an_evaluation_without_rows_has_no_error(tmp_path: Path, weights: list[float]) -> None:
    model, schema = classifier(tmp_path, weight="w")
    write_partition(tmp_path / "test" / "0.parquet", classes(len(weights)) | {"w": pa.array(weights, pa.float64())})
    result = evaluate_folder(model, schema, tmp_path / "test")
    assert (result.weight, result.test_error, result.test_mse) == (0.0, None, None)


def test_the_executor_does_not_change_the_result(tmp_path: Path) -> None:
    model, schema = trained(tmp_path)
    folder = write_mixed(tmp_path / "test", [30, 40, 50], seed=50)
    assert evaluate_folder(model, schema, folder, PicklingExecutor()) == evaluate_folder(model, schema, folder)


def test_splits_into_row_groups_and_files_change_only_rounding(tmp_path: Path) -> None:
    model, schema = trained(tmp_path)
    table = pa.table(mixed_columns(20_000, seed=50))
    write_partition(tmp_path / "whole" / "0.parquet", table)
    for i in range(4):
        write_partition(tmp_path / "cut" / f"{i}.parquet", table.slice(5000 * i, 5000), row_group_size=999)
    whole, cut = (evaluate_folder(model, schema, tmp_path / name).test_mse for name in ("whole", "cut"))
    assert cut == pytest.approx(whole, rel=1e-12)


def test_columns_may_be_permuted_and_extra_ones_are_ignored(tmp_path: Path) -> None:
    model, schema = trained(tmp_path)
    columns = mixed_columns(30, seed=50)
    write_partition(tmp_path / "plain" / "0.parquet", columns)
    write_partition(tmp_path / "other" / "0.parquet", {"extra": ["?"] * 30} | dict(reversed(columns.items())))
    plain = evaluate_folder(model, schema, tmp_path / "plain")
    assert evaluate_folder(model, schema, tmp_path / "other") == plain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, r"part\.parquet has no column 'y'"),
        ({"flag": None}, r"part\.parquet has no column 'flag'"),
        ({"y": pa.array([0.0, np.nan])}, r"part\.parquet: column 'y' has the value nan in row 1"),
        ({"length": pa.array([0.0, np.inf])}, r"part\.parquet: column 'length' has the value inf in row 1"),
        ({"y": pa.array(["a", "b"])}, r"part\.parquet: column 'y' has type string, the store has it as numeric"),
        ({"colour": pa.array(["red", "pink"])}, r"part\.parquet: column 'colour' has the category 'pink', which the m"),
    ],
    ids=["no target", "no feature", "target NaN", "infinite", "target of text", "unseen category"],
)
def test_bad_partitions_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    model, schema = trained(tmp_path)
    columns = {k: v for k, v in (mixed_columns(2, colours=["red"]) | change).items() if v is not None}
    write_partition(tmp_path / "test" / "part.parquet", columns)
    with pytest.raises(PartitionError, match=message):
        evaluate_folder(model, schema, tmp_path / "test")


def test_a_partition_that_changes_while_it_is_evaluated_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, schema = trained(tmp_path)
    folder = write_mixed(tmp_path / "test", [10])

    def read_then_change(*arguments: Any) -> Any:
        yield from read_batches(*arguments)
        write_mixed(folder, [20])

    monkeypatch.setattr("ridgestream.pipeline.prediction.held_out.read_batches", read_then_change)
    with pytest.raises(PartitionError, match=r"part-0\.parquet was changed while it was read"):
        evaluate_folder(model, schema, folder)


def test_progress_is_reported(tmp_path: Path) -> None:
    model, schema = trained(tmp_path)
    notes = Notes()
    result = evaluate(model, schema, list_partitions(write_mixed(tmp_path / "test", [3, 4])), InProcess(), notes)
    assert (notes.steps, notes.rows) == (["evaluate"], 7)
    assert notes.ended == [{"test_error": None, "test_mse": result.test_mse}]
