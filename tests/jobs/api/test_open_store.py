"""A store opened from Python: predictions of frames as the command writes them, nights, reports, rows as arrays."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray
from support.jobs.jobs import REGRESSION, Workplace, draw_regression, open_store, set_column

import ridgestream
from ridgestream import InputError, InputWarning, JobFileError, ModelError, OpenStore, PartitionError, StoreError


@dataclass(frozen=True)
class Nights:
    """Two nights of one class against the rest, and the store as it was opened after the first."""

    work: Workplace
    before: OpenStore


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    work = Workplace.new(tmp_path_factory.mktemp("api") / "binary", range(1))
    work.run_here()
    before = ridgestream.open(work.store)
    work.put(1)
    work.run_here()
    return Nights(work, before)


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("api"))
    for number, where in ((0, "rows"), (1, "rows"), (1000, "held-out")):
        work.put(number, draw_regression(number), where)
    work.run_here({**REGRESSION, "model.metric": "diagonal"})
    return work


@pytest.fixture
def store(regression: Workplace) -> OpenStore:
    return ridgestream.open(regression.store)


ROWS = draw_regression(7, 20_000)
"""More rows than one batch has."""


def test_a_table_is_predicted_as_the_command_predicts_its_file(regression: Workplace, store: OpenStore) -> None:
    pq.write_table(ROWS, regression.folder / "new.parquet")
    expected = regression.predict_here(
        "new.parquet", {**REGRESSION, "model.metric": "diagonal"}, with_std=True, level=0.9
    )
    model = store.models["model"]
    assert model.predict(ROWS, std=True, interval=0.9).equals(expected)
    cut = pa.Table.from_batches(ROWS.to_batches(max_chunksize=1000))
    assert model.predict(cut, std=True, interval=0.9).equals(expected)
    assert expected.column_names == ["prediction", "std", "std_observed", "lower", "upper"]


def test_frames_come_back_as_they_came_in(store: OpenStore) -> None:
    model, rows = store.models["model"], ROWS.slice(0, 5)
    expected = model.predict(rows)
    frame = rows.to_pandas().set_axis([10, 20, 30, 40, 50])
    predicted = model.predict(frame[["price", "age", "size"]])
    assert isinstance(predicted, pd.DataFrame)
    assert predicted.index.equals(frame.index)
    assert predicted["prediction"].tolist() == expected["prediction"].to_pylist()
    arrays = {name: rows[name].to_numpy() for name in ("age", "size")}
    assert model.predict(arrays).equals(expected)
    assert model.predict(rows.to_batches()[0]).equals(expected)
    assert model.predict(_Stream(rows)).equals(expected)
    assert model.predict(rows.slice(0, 0)).schema == expected.schema


class _Stream:
    """A frame of a library that is not known by name."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_classes_have_their_columns(nights: Nights) -> None:
    binary = nights.work
    model = ridgestream.open(str(binary.store)).models["model"]
    rows = pq.read_table(binary.folder / "held-out")
    expected = binary.predict_here("held-out", with_probabilities=True)
    assert model.predict(rows, proba=True).equals(expected)
    assert expected.column_names == ["prediction", "score", "probability_2"]
    with pytest.raises(JobFileError, match=r"^interval is for numbers, and the target is a class"):
        model.predict(rows, interval=0.9)


BAD_ROWS: dict[str, tuple[object, type[Exception], str]] = {
    "no column": ({"size": [1.0]}, PartitionError, "the table has no column 'age'"),
    "text": ({"size": ["1"], "age": [1.0]}, PartitionError, "the table: column 'size' has type string"),
    "missing": ({"size": [1.0, None], "age": [1.0, 2.0]}, PartitionError, "'size' has the value null in row 1"),
    "infinite": ({"size": [np.inf], "age": [1.0]}, PartitionError, "'size' has the value inf in row 0"),
    "ragged": ({"size": [1.0], "age": [1.0, 2.0]}, InputError, "cannot be read as a table: Column 1 named age"),
    "scalars": ({"size": 1.0, "age": 2.0}, InputError, "cannot be read as a table"),
    "objects": (pd.DataFrame({"size": [object()], "age": [1.0]}), InputError, "cannot be read as a table"),
    "array": (np.zeros((3, 2)), InputError, "numpy.ndarray is none of these"),
}


@pytest.mark.parametrize(("rows", "kind", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_rows_that_cannot_be_used_are_refused(store: OpenStore, rows: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        store.models["model"].predict(rows)


def test_a_frame_of_polars_comes_back_as_one(store: OpenStore) -> None:
    rows, model = ROWS.slice(0, 50), store.models["model"]
    predicted = model.predict(pl.from_arrow(rows), std=True)
    assert isinstance(predicted, pl.DataFrame)
    assert predicted.to_arrow().to_pydict() == model.predict(rows, std=True).to_pydict()


def test_missing_values_follow_the_policy(store: OpenStore) -> None:
    rows, model = {"size": [1.0, None], "age": [1.0, 2.0]}, store.models["model"]
    assert model.predict(rows, missing="drop")["prediction"].null_count == 1
    assert model.predict(rows, missing="impute")["prediction"].null_count == 0
    with pytest.raises(InputError, match="missing is one of 'error', 'drop', 'impute'; 'fill' is none"):
        model.predict(rows, missing="fill")


def test_rows_outside_of_the_range_learned_are_warned_of(store: OpenStore) -> None:
    far = set_column(ROWS.slice(0, 50), "size", pa.array(np.full(50, 99.0)))
    with pytest.warns(
        InputWarning, match=r"outside the range .* \(rows=50, of_rows=50, columns=size \(50\)\)$"
    ) as caught:
        store.models["model"].predict(far)
    assert caught[0].filename == __file__


def test_nights_importance_and_reports_are_told(nights: Nights, store: OpenStore) -> None:
    model = ridgestream.open(nights.work.store).models["model"]
    table = model.nights
    assert table["number"].to_pylist() == [1, 2]
    assert table["partitions"].to_pylist() == [["part-00.parquet"], ["part-01.parquet"]]
    assert table["test_error"].to_pylist() == [night.test_error for night in nights.work.model().history]
    assert table.schema.field("finished_at").type == pa.timestamp("s", "UTC")
    assert table.schema.field("test_mse").type == pa.float64()
    assert (model.report()["night"], model.report(1)["night"]) == (2, 1)
    assert model.report_page().startswith("<!DOCTYPE html>")
    assert model.importance == {}
    importance = store.models["model"].importance
    assert set(importance) == {"size", "age"}
    assert sum(importance.values()) == pytest.approx(1.0)


def test_a_store_stays_at_its_snapshot_and_shows_earlier_nights(nights: Nights) -> None:
    before, now, rows = (
        nights.before,
        ridgestream.open(nights.work.store),
        pq.read_table(nights.work.folder / "held-out"),
    )
    first, model = before.models["model"].predict(rows), now.models["model"]
    open_store(nights.work.store).tag("sample", before.snapshot)
    assert (before.rows, now.rows) == (200, 400)
    assert before.models["model"].nights.num_rows == 1
    assert not model.predict(rows).equals(first)
    assert model.at(1).predict(rows).equals(first)
    assert ridgestream.open(nights.work.store, snapshot="sample").models["model"].predict(rows).equals(first)
    assert ridgestream.open(nights.work.store, snapshot=before.snapshot).snapshot == before.snapshot
    with pytest.raises(ModelError, match=r"the model 'model' has no night 9; its nights: 1, 2$"):
        model.at(9)
    with pytest.raises(StoreError, match=r"in place of '1', use store.models\[NAME\].at\(1\)"):
        ridgestream.open(nights.work.store, snapshot="1")
    with pytest.raises(StoreError, match="a snapshot is a tag or an id, a text, it is 1"):
        ridgestream.open(nights.work.store, snapshot=1)  # type: ignore[arg-type]


def test_a_model_is_an_estimator(nights: Nights, store: OpenStore) -> None:
    rows, model = ROWS.slice(0, 200), store.models["model"]
    predicted = model.predict(rows, interval=0.9, std=True)
    estimator: Any = model.estimator()
    frame = rows.to_pandas()[["size", "age"]]
    prediction, deviation = estimator.predict(frame, return_std=True)
    assert prediction.tolist() == predicted["prediction"].to_pylist()
    assert deviation.tolist() == predicted["std"].to_pylist()
    bounds = estimator.predict_interval(frame, alpha=0.1)
    np.testing.assert_allclose(bounds.T, [predicted["lower"].to_numpy(), predicted["upper"].to_numpy()], rtol=1e-12)
    binary, X = ridgestream.open(nights.work.store).models["model"], pq.read_table(nights.work.folder / "held-out")
    classifier = binary.estimator()
    assert classifier.predict(X.drop_columns("label")).tolist() == binary.predict(X)["prediction"].to_pylist()
    assert type(classifier) is ridgestream.OnlineLSSVMClassifier
    assert type(estimator) is ridgestream.OnlineLSSVMRegressor


def test_models_are_a_mapping(store: OpenStore) -> None:
    assert list(store.models) == ["model"]
    assert "forest" not in store.models
    assert store.models.get("forest") is None
    with pytest.raises(ModelError, match="the store has no model 'forest'; its models: model"):
        store.models["forest"]


def test_the_dataset_has_the_rows_and_their_names(store: OpenStore) -> None:
    rows = store.dataset()
    assert rows.numeric_names == ("size", "age")
    assert rows.numeric.shape == (store.rows, 2)
    assert store.schema is not None
    assert store.schema.targets == ("price",)


def test_rows_are_a_dataset_of_xarray(nights: Nights, store: OpenStore) -> None:
    rows = store.dataset().to_xarray()
    assert dict(rows.sizes) == {"row": 400, "numeric_column": 2, "categorical_column": 0, "target": 1}
    size = rows["numeric"].sel(numeric_column="size").to_numpy()
    np.testing.assert_allclose(size[:200], draw_regression(0)["size"].to_numpy(), rtol=1e-6)
    root = ridgestream.open(nights.work.store).root
    opened = xarray.open_zarr(root.store, group="segments/000000-000000", consolidated=False, chunks=None)
    assert opened["numeric"].dims == ("row", "numeric_column")
    assert opened["targets"].dims == ("row", "target")
    assert opened["numeric"].shape == (200, 4)
    where: Any = root.store
    everything = xarray.open_datatree(where, engine="zarr", consolidated=False, chunks=None)
    assert everything["models/model"]["coefficients"].shape == (20, 1)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        ridgestream.open(tmp_path / "nothing")
    with pytest.raises(JobFileError, match=r"storage cannot be used: .*permitted"):
        ridgestream.open(tmp_path, storage={"endpoint": "http://localhost"})
