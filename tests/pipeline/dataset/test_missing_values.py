"""Missing values, null and NaN, through the store: refused, dropped, or imputed as by scikit-learn."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.data.missing_values import SCHEMA, Pipeline, draw_with_missing, drop_missing, frame_of, tables, write_all
from support.jobs.recording import Notes
from support.stores.models import model_with, plain_map
from support.stores.partitions import column_of, only_partition, write_partition
from support.stores.stores import ledger_of, new_store, same_rows, segment_rows, stored_rows

from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.dataset.dask_arrays import open_dask_arrays
from ridgestream.pipeline.dataset.feature_map_fit import fit_feature_map
from ridgestream.pipeline.dataset.feature_map_growth import plan_encodings
from ridgestream.pipeline.dataset.stored_rows import StoredRows
from ridgestream.pipeline.features.columns import NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.ingest.ingest import ingest
from ridgestream.pipeline.ingest.partition_profile import content_of, profile_partition
from ridgestream.pipeline.prediction.evaluate import evaluate
from ridgestream.pipeline.prediction.predict import predict
from ridgestream.pipeline.sums.moments import Moments
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.partitions import list_partitions
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.column_rules import OF_OLDER_MODELS
from ridgestream.stores.schema.schema import Feature, Schema, SchemaRequest
from ridgestream.stores.segments.segments import Segment, Segments

KINDS = {"length": "numeric", "count": "numeric", "flag": "boolean", "colour": "categorical"}
WHOLE = Schema("y", None, tuple(Feature(name, kind) for name, kind in KINDS.items()))
REQUEST = SchemaRequest("y")
OTHERS: dict[str, list[Any]] = {
    "length": [0.0],
    "count": [0, -1],
    "flag": [False],
    "colour": ["", "a"],
    "y": [0.0],
}
"""Values that must not have the hash of a missing one."""
EVERY = ("error", "drop", "impute")

quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ingested_store(path: Path, missing: str, request: SchemaRequest = REQUEST, report: Notes | None = None) -> Store:
    """Return a new store that has ingested the partitions below `path`/in."""
    store = new_store(path / f"store-{missing}")
    with store.lock():
        files = list_partitions(path / "in")
        ingest(store, files, request, InProcess(), report or Silent(), policies=Policies(missing=missing))
    return store


def features_of(store: Store, feature_map: FeatureMap) -> RowBlock:
    """Return the standardized rows of the whole store."""
    ledger = ledger_of(store)
    segments = [entry.segment for entry in ledger.entries]
    rows = StoredRows(Segments(store.root()), ledger, segments, feature_map, InProcess(), Silent())
    return rows.take(np.arange(ledger.rows))


@pytest.mark.thorough
@quick
@given(parts=st.lists(tables(target=True), min_size=1, max_size=3))
def test_dropped_rows_leave_no_trace_in_the_store(
    tmp_path_factory: pytest.TempPathFactory, parts: list[pa.Table]
) -> None:
    path = tmp_path_factory.mktemp("drop")
    complete = [drop_missing(part) for part in parts]
    write_all(path / "dirty" / "in", parts)
    write_all(path / "clean" / "in", complete)
    dirty, clean = ingested_store(path / "dirty", "drop"), ingested_store(path / "clean", "error")
    dirty_ledger, clean_ledger = ledger_of(dirty), ledger_of(clean)
    assert same_rows(stored_rows(dirty), stored_rows(clean))
    assert dirty_ledger.categories == clean_ledger.categories
    assert [entry.rows for entry in dirty_ledger.entries] == [part.num_rows for part in complete]
    dropped = [part.num_rows - clean_part.num_rows for part, clean_part in zip(parts, complete, strict=True)]
    assert [entry.dropped for entry in dirty_ledger.entries] == dropped
    for number in range(len(parts)):
        with_drop, without = (Segment.open(s.root(), number).facts() for s in (dirty, clean))
        np.testing.assert_array_equal(with_drop.moments, without.moments)
        assert (with_drop.categories, with_drop.category_counts) == (without.categories, without.category_counts)
        assert with_drop.missing == ()


@pytest.mark.thorough
@quick
@given(parts=st.lists(tables(), min_size=1, max_size=3), scaling=st.booleans())
def test_imputed_features_are_those_of_scikit_learn(
    tmp_path_factory: pytest.TempPathFactory, parts: list[pa.Table], scaling: bool
) -> None:
    path = tmp_path_factory.mktemp("impute")
    write_all(path / "in", parts)
    store = ingested_store(path, "impute")
    ledger = ledger_of(store)
    feature_map = fit_feature_map(Segments(store.root()), ledger, 1 if scaling else None, OF_OLDER_MODELS)
    training = frame_of(parts[0] if scaling else pa.concat_tables(parts))
    expected = Pipeline(training, ledger.categories[0]).features(frame_of(pa.concat_tables(parts)))
    block = features_of(store, feature_map)
    np.testing.assert_allclose(block.features, expected, rtol=1e-9, atol=1e-9)
    assert block.targets.shape == (len(expected), 1)
    assert FeatureMap.from_dict(feature_map.as_dict()) == feature_map


@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
def test_missing_values_are_read_back_as_missing(tmp_path: Path, wide: bool) -> None:
    largest = 3.4028234e38 if wide else 1.5
    x = pa.array([largest, None, -0.0, float("nan"), 2.0])
    columns = {"x": x, "c": pa.array(["a", None, "b", "a", None]), "y": np.arange(5.0)}
    write_partition(tmp_path / "in" / "part-0.parquet", columns)
    store = ingested_store(tmp_path, "impute")
    segment = Segment.open(store.root(), 0)
    rows = segment.read(0, 5)
    assert rows.numeric.dtype == (np.float64 if wide else np.float32)
    np.testing.assert_array_equal(rows.numeric[:, 0], [largest, np.nan, -0.0, np.nan, 2.0])
    assert rows.codes[:, 0].tolist() == [0, -1, 1, 0, -1]
    assert segment.facts().missing == (2, 2)
    np.testing.assert_array_equal(segment.facts().moments[0], [3.0, 5.0])
    assert segment.facts().category_counts == ((2.0, 1.0),)
    data = open_dask_arrays(store)
    np.testing.assert_array_equal(data.numeric.compute(), rows.numeric)
    np.testing.assert_array_equal(data.codes.compute(), rows.codes)


@quick
@given(table=tables(target=True))
def test_the_content_hash_does_not_depend_on_the_policy(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table
) -> None:
    path = tmp_path_factory.mktemp("hash")
    file = only_partition(write_partition(path / "part-0.parquet", table))
    plain = content_of(file, WHOLE)
    assert profile_partition(file, WHOLE, "drop").content_sha256 == plain
    whole = drop_missing(table)
    if table["y"].null_count == 0:
        assert profile_partition(file, WHOLE, "impute").content_sha256 == plain
    if whole.num_rows == table.num_rows:
        assert profile_partition(file, WHOLE).content_sha256 == plain
    nulls = table.set_column(0, "length", [pa.array(table["length"].to_numpy(), from_pandas=True)])
    rewritten = only_partition(write_partition(path / "nulls" / "part-0.parquet", nulls, row_group_size=1))
    assert content_of(rewritten, WHOLE) == plain  # null and NaN are equal
    for number, row in enumerate(table.to_pylist()):
        for name, value in row.items():
            if value is None:
                for other in OTHERS[name]:
                    column = table[name].to_pylist()
                    column[number] = other
                    changed = table.set_column(
                        table.column_names.index(name), name, [pa.array(column, SCHEMA.field(name).type)]
                    )
                    file = only_partition(write_partition(path / "other" / "part-0.parquet", changed))
                    assert content_of(file, WHOLE) != plain


@pytest.mark.parametrize("missing", EVERY)
@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), 1e200, -1e101])
@pytest.mark.parametrize("name", ["x", "y", "w"])
def test_no_policy_accepts_an_infinite_or_huge_value(tmp_path: Path, missing: str, bad: float, name: str) -> None:
    """Not even in a row that is dropped because it lacks another value."""
    columns: dict[str, Any] = {n: pa.array([1.0, 2.0, 3.0]) for n in ("x", "y", "w")}
    columns["z"] = pa.array([1.0, None if missing != "error" else 2.0, 3.0])
    columns[name] = pa.array([1.0, bad, 3.0])
    files = list_partitions(write_partition(tmp_path / "in" / "part-0.parquet", columns).parent)
    request, policies = SchemaRequest("y", weight="w"), Policies(missing=missing)
    message = rf"part-0\.parquet: column '{name}' has the value {bad!r} in row 1; values must be finite".replace(
        "+", r"\+"
    )
    store = new_store(tmp_path / "store")
    with store.lock(), pytest.raises(PartitionError, match=message):
        ingest(store, files, request, InProcess(), Silent(), policies=policies)
    schema = Schema("y", None, (Feature("x", "numeric"), Feature("z", "numeric")), weight="w")
    model = model_with(plain_map(["x", "z"]))
    with pytest.raises(PartitionError, match=message):
        evaluate(model, schema, files, InProcess(), Silent(), policies)
    if name == "x":
        with pytest.raises(PartitionError, match=message):
            predict(model, schema, files, tmp_path / "out", (), InProcess(), Silent(), policies=policies)


@pytest.mark.parametrize("missing", ["error", "impute"])
@pytest.mark.parametrize("name", ["y", "w"])
@pytest.mark.parametrize("value", [None, float("nan")], ids=["null", "nan"])
def test_a_missing_target_or_weight_is_refused_with_the_remedy(
    tmp_path: Path, missing: str, name: str, value: float | None
) -> None:
    columns: dict[str, Any] = {n: pa.array([1.0, 2.0, 3.0]) for n in ("x", "y", "w")}
    columns[name] = pa.array([1.0, 2.0, value])
    write_partition(tmp_path / "in" / "part-0.parquet", columns)
    shown = "null" if value is None else "nan"
    message = rf'part-0\.parquet: column \'{name}\' has the value {shown} in row 2; .*never imputed: .*"drop"$'
    with pytest.raises(PartitionError, match=message):
        ingested_store(tmp_path, missing, SchemaRequest("y", weight="w"))
    store = ingested_store(tmp_path, "drop", SchemaRequest("y", weight="w"))
    assert [(e.rows, e.dropped) for e in ledger_of(store).entries] == [(2, 1)]


@pytest.mark.parametrize("positive", [2, None], ids=["one class", "all classes"])
def test_a_missing_class_is_dropped(tmp_path: Path, positive: int | None) -> None:
    columns = {"x": [1.0, 2.0, 3.0, 4.0], "y": pa.array([5, None, 2, 5])}
    write_partition(tmp_path / "in" / "part-0.parquet", columns)
    request = SchemaRequest("y", positive=positive, classes=None if positive else "all")
    store = ingested_store(tmp_path, "drop", request)
    targets = segment_rows(store.root(), 0).targets
    assert targets is not None
    assert targets[:, 0].tolist() == ([-1.0, 1.0, -1.0] if positive else [0.0, 1.0, 0.0])
    assert ledger_of(store).classes == (() if positive else (5, 2))


def test_a_class_that_only_dropped_rows_have_is_no_class(tmp_path: Path) -> None:
    columns = {"x": pa.array([None, 2.0, 3.0, 4.0]), "y": pa.array([7, 5, 2, 5])}
    write_partition(tmp_path / "in" / "part-0.parquet", columns)
    store = ingested_store(tmp_path, "drop", SchemaRequest("y", classes="all"))
    assert ledger_of(store).classes == (5, 2)
    assert Segment.open(store.root(), 0).facts().classes == (5, 2)


def test_a_column_without_any_value_stays_zero_until_it_has_one_and_is_reported(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"x": pa.nulls(3, pa.float64()), "c": pa.nulls(3, pa.string()), "z": [1.0, 2.0, 4.0]}
    write_partition(tmp_path / "in" / "part-0.parquet", columns | {"y": [0.0, 1.0, 2.0]})
    write_partition(
        tmp_path / "in" / "part-1.parquet", {"x": [5.0, 7.0], "c": ["a", "b"], "z": [1.0, 1.0], "y": [0.0, 1.0]}
    )
    store, notes = ingested_store(tmp_path, "impute"), Notes()
    ledger = ledger_of(store)
    encodings = plan_encodings(
        Segments(store.root()),
        ledger,
        record=None,
        entries=ledger.entries,
        scaling_rows=1,
        policy="ignore",
        report=notes,
    )
    assert notes.events[0][1] == {"columns": "x, c"}
    feature_map = encodings.last
    assert (feature_map.numeric[0].centre, feature_map.numeric[0].scale, feature_map.categorical[0].categories) == (
        6.0,
        2.0,
        (),
    )
    np.testing.assert_array_equal(features_of(store, feature_map).features[:, 0], [0.0, 0.0, 0.0, -0.5, 0.5])
    unopened = fit_feature_map(Segments(store.root()), ledger, 1)
    np.testing.assert_array_equal(features_of(store, unopened).features[:3, 0], [0.0, 0.0, 0.0])


def test_a_partition_whose_rows_are_all_dropped_has_no_rows(tmp_path: Path) -> None:
    write_partition(tmp_path / "in" / "part-0.parquet", column_of("x", pa.array([1.0, 2.0])))
    write_partition(tmp_path / "in" / "part-1.parquet", column_of("x", pa.nulls(3)))
    notes = Notes()
    store = ingested_store(tmp_path, "drop", report=notes)
    assert [(e.rows, e.dropped) for e in ledger_of(store).entries] == [(2, 0), (0, 3)]
    assert notes.ended == [{"partitions": 2, "rows": 2, "dropped": 3}]


@pytest.mark.parametrize("missing", ["drop", "impute"])
def test_predictions_are_row_for_row_and_null_where_a_row_is_left_out(tmp_path: Path, missing: str) -> None:
    table = draw_with_missing(300, 1)
    store = ingested_store(write_all(tmp_path / "in", [draw_with_missing(300, 0)]).parent, "impute")
    model = model_with(fit_feature_map(Segments(store.root()), ledger_of(store), None, OF_OLDER_MODELS))
    files = list_partitions(write_partition(tmp_path / "new" / "part-0.parquet", table, row_group_size=70))
    notes, policies = Notes(), Policies(missing=missing)
    summary = predict(model, WHOLE, files, tmp_path / "out", ("y",), InProcess(), notes, policies=policies).summary
    table_out = pq.read_table(tmp_path / "out" / "part-0.parquet")
    assert table_out["y"].equals(table["y"])
    lacking = table.drop_columns("y").to_pandas().isna().any(axis=1).to_numpy()
    assert 100 < lacking.sum() < 250
    features = Pipeline(frame_of(draw_with_missing(300, 0)), model.feature_map.categorical[0].categories).features(
        frame_of(table)
    )
    values = model.basis.values(features) @ model.coefficients
    expected = values[:, 0] * model.feature_map.target.scale[0] + model.feature_map.target.centre[0]
    predicted = table_out["prediction"].to_pandas().to_numpy()
    if missing == "drop":
        np.testing.assert_array_equal(np.isnan(predicted), lacking)
        assert (summary.rows, summary.left_out, summary.imputed) == (300, lacking.sum(), {})
        assert notes.events == [("predict.rows_left_out", {"rows": lacking.sum()})]
        np.testing.assert_allclose(predicted[~lacking], expected[~lacking], rtol=1e-9)
    else:
        np.testing.assert_allclose(predicted, expected, rtol=1e-9)
        counts = {name: table[name].null_count for name in KINDS}
        assert (summary.left_out, summary.imputed) == (0, counts)
        assert notes.events[0][1] == {"lacking": ", ".join(f"{name} ({n})" for name, n in counts.items())}


@pytest.mark.parametrize("missing", ["drop", "impute"])
def test_left_out_rows_are_not_evaluated(tmp_path: Path, missing: str) -> None:
    table = draw_with_missing(200, 1, target=missing == "drop")
    store = ingested_store(write_all(tmp_path / "in", [draw_with_missing(300, 0)]).parent, "impute")
    model = model_with(fit_feature_map(Segments(store.root()), ledger_of(store), None, OF_OLDER_MODELS))
    files = list_partitions(write_partition(tmp_path / "held" / "part-0.parquet", table))
    notes = Notes()
    evaluation = evaluate(model, WHOLE, files, InProcess(), notes, Policies(missing=missing))
    evaluated = drop_missing(table) if missing == "drop" else table
    features = Pipeline(frame_of(draw_with_missing(300, 0)), model.feature_map.categorical[0].categories).features(
        frame_of(evaluated)
    )
    values = (model.basis.values(features) @ model.coefficients)[:, 0]
    predicted = values * model.feature_map.target.scale[0] + model.feature_map.target.centre[0]
    assert evaluation.weight == evaluated.num_rows
    assert evaluation.left_out == table.num_rows - evaluated.num_rows
    assert evaluation.test_mse == pytest.approx(float(np.mean((predicted - evaluated["y"].to_numpy()) ** 2)), rel=1e-9)
    assert notes.codes == ["evaluate.rows_left_out" if missing == "drop" else "predict.values_imputed"]


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_missing_value_is_refused_by_default(tmp_path: Path, command: str) -> None:
    files = list_partitions(write_partition(tmp_path / "part-0.parquet", column_of("x", pa.array([1.0, None]))))
    model = model_with(plain_map(["x"]))
    schema = Schema("y", None, (Feature("x", "numeric"),))
    message = (
        r"part-0\.parquet: column 'x' has the value null in row 1; .*fill or remove the row, or set source\.missing"
    )

    def use_model() -> object:
        if command == "predict":
            return predict(model, schema, files, tmp_path / "out", (), InProcess(), Silent())
        return evaluate(model, schema, files, InProcess(), Silent())

    with pytest.raises(PartitionError, match=message):
        use_model()


def test_a_feature_map_without_fills_takes_its_boolean_columns_from_the_schema(tmp_path: Path) -> None:
    """As written by releases that did not support missing values."""
    old = FeatureMap((NumericColumn("flag", 0.3, 0.5, 0.3),), (), TargetMap((0.0,), (1.0,)))
    schema = Schema("y", None, (Feature("flag", "boolean"),))
    files = list_partitions(
        write_partition(tmp_path / "part-0.parquet", {"flag": pa.array([None, False]), "y": [0.0, 1.0]})
    )
    model, policies = model_with(old), Policies(missing="impute")
    predict(model, schema, files, tmp_path / "out", (), InProcess(), Silent(), policies=policies)
    first, second = pq.read_table(tmp_path / "out" / "part-0.parquet")["prediction"].to_pylist()
    assert first == second
    assert "fill" not in old.as_dict()


@given(
    values=st.lists(st.lists(st.sampled_from([np.nan, 0.5, -1.0, 3.0]), min_size=2, max_size=2), max_size=20),
    split=st.integers(0, 20),
)
def test_moments_skip_missing_values(values: list[list[float]], split: int) -> None:
    x = np.array(values).reshape(-1, 2)
    w = np.resize([1.0, 0.5, 0.0, 2.0], len(x))
    assume(len(x))
    merged = Moments.of(x[:split], w[:split]).merge(Moments.of(x[split:], w[split:]))
    for column in range(2):
        present = ~np.isnan(x[:, column]) & (w > 0)
        alone = Moments.of(x[present][:, [column]], w[present])
        for name in ("count", "mean", "squares", "minimum", "maximum"):
            assert getattr(merged, name)[column] == pytest.approx(getattr(alone, name)[0], rel=1e-12, abs=1e-12)
