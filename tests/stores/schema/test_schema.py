"""The schema: inferred from the first partition, stored as JSON, and checked against later jobs and files."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.schema import Classes, Feature, Schema, SchemaRequest, check_request, infer_schema

ARROW = pa.schema(
    {
        "length": pa.float32(),
        "count": pa.int16(),
        "flag": pa.bool_(),
        "seen": pa.timestamp("ns", "UTC"),
        "day": pa.date32(),
        "colour": pa.dictionary(pa.int8(), pa.string()),
        "shape": pa.large_string(),
        "code": pa.int32(),
        "y": pa.float64(),
        "w": pa.float64(),
    }
)


def infer(arrow: pa.Schema = ARROW, **request: object) -> Schema:
    return infer_schema(replace(SchemaRequest("y"), **request), arrow, "part-0.parquet")  # type: ignore[arg-type]


def kinds(schema: Schema) -> dict[str, str]:
    return {feature.name: feature.kind for feature in schema.features}


def test_every_other_column_is_a_feature_of_the_kind_of_its_type() -> None:
    assert kinds(infer(weight="w", categorical=("code",))) == {
        "length": "numeric",
        "count": "numeric",
        "flag": "boolean",
        "seen": "timestamp",
        "day": "timestamp",
        "colour": "categorical",
        "shape": "categorical",
        "code": "categorical",
    }


def test_named_features_are_the_only_ones_and_keep_their_order() -> None:
    schema = infer(features=("shape", "count"))
    assert kinds(schema) == {"shape": "categorical", "count": "numeric"}
    assert schema.columns(with_target=True) == ["shape", "count", "y"]
    assert schema.columns(with_target=False) == ["shape", "count"]


def test_ignored_columns_are_no_features_and_may_be_missing() -> None:
    assert "length" not in kinds(infer(ignore=("length", "not yet there")))


def test_an_index_written_by_pandas_is_a_feature_only_if_named() -> None:
    indexed = ARROW.append(pa.field("__index_level_0__", pa.int64()))
    inferred, selected = (infer(indexed, features=features) for features in ((), ("length", "__index_level_0__")))
    assert "length" in kinds(inferred)
    assert "__index_level_0__" not in kinds(inferred)
    assert list(kinds(selected)) == ["length", "__index_level_0__"]


def test_the_weight_is_read_only_with_the_target() -> None:
    schema = infer(weight="w", features=("length",))
    assert schema.columns(with_target=True) == ["length", "y", "w"]
    assert schema.columns(with_target=False) == ["length"]


@pytest.mark.parametrize("key", ["target", "weight"])
def test_a_missing_column_is_refused(key: str) -> None:
    with pytest.raises(PartitionError, match=r"part-0\.parquet has no column 'z'; it has length, count"):
        infer(**{key: "z"})


@pytest.mark.parametrize("key", ["features", "categorical"])
def test_a_missing_named_feature_is_refused(key: str) -> None:
    with pytest.raises(PartitionError, match=r"part-0\.parquet has no column 'z'"):
        infer(**{key: ("z",)})


@pytest.mark.parametrize("request_", [SchemaRequest("y"), SchemaRequest("y", features=("x",))], ids=["all", "named"])
def test_a_duplicate_feature_is_refused(request_: SchemaRequest) -> None:
    arrow = pa.schema([pa.field("x", pa.int8()), pa.field("x", pa.int8()), pa.field("y", pa.int8())])
    with pytest.raises(PartitionError, match=r"part-0\.parquet has 2 columns 'x'; names must be unique"):
        infer_schema(request_, arrow, "part-0.parquet")


def test_a_duplicate_column_may_be_ignored() -> None:
    arrow = pa.schema([pa.field(name, pa.int8()) for name in ("x", "z", "z", "y")])
    assert kinds(infer(arrow, ignore=("z",))) == {"x": "numeric"}


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float64()),
        pa.struct({"a": pa.int8()}),
        pa.map_(pa.string(), pa.int8()),
        pa.binary(),
        pa.duration("s"),
        pa.time32("s"),
        pa.null(),
        pa.dictionary(pa.int8(), pa.binary()),
    ],
    ids=str,
)
@pytest.mark.parametrize("categorical", [(), ("x",)], ids=["", "categorical"])
def test_a_type_that_cannot_be_a_feature_is_refused(kind: pa.DataType, categorical: tuple[str, ...]) -> None:
    arrow = pa.schema({"x": kind, "y": pa.int8()})
    with pytest.raises(PartitionError, match=r"part-0\.parquet: column 'x' has type .*(under ignore|categoric)"):
        infer(arrow, categorical=categorical)
    assert kinds(infer(pa.schema({"x": kind, "y": pa.int8(), "z": pa.int8()}), ignore=("x",))) == {"z": "numeric"}


def test_dates_cannot_be_categories() -> None:
    with pytest.raises(PartitionError, match=r"column 'day' has type date32.*only text and numbers can be categorical"):
        infer(categorical=("day",))


def test_a_schema_without_features_is_refused() -> None:
    arrow = pa.schema({"y": pa.int8(), "w": pa.int8(), "id": pa.string()})
    with pytest.raises(PartitionError, match=r"part-0\.parquet has no feature column besides id, w, y"):
        infer(arrow, weight="w", ignore=("id",))


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (SchemaRequest("y", features=("length", "y")), "y"),
        (SchemaRequest("y", features=("length", "w"), weight="w"), "w"),
        (SchemaRequest("y", features=("length", "flag"), ignore=("flag",)), "flag"),
    ],
    ids=["target", "weight", "ignored"],
)
def test_a_column_with_two_roles_is_refused(request_: SchemaRequest, name: str) -> None:
    with pytest.raises(PartitionError, match=rf"column '{name}' is named as a feature and as target, weight or ignor"):
        infer_schema(request_, ARROW, "part-0.parquet")


@pytest.mark.parametrize(
    ("request_", "name"),
    [(SchemaRequest("y", features=("flag", "flag")), "flag"), (SchemaRequest("y", weight="y"), "y")],
    ids=["feature", "target as weight"],
)
def test_a_column_named_twice_is_refused(request_: SchemaRequest, name: str) -> None:
    with pytest.raises(PartitionError, match=rf"part-0\.parquet: column '{name}' is named twice"):
        infer_schema(request_, ARROW, "part-0.parquet")


@pytest.mark.parametrize(
    "request_",
    [
        SchemaRequest("y", categorical=("y",)),
        SchemaRequest("y", categorical=("w",), weight="w"),
        SchemaRequest("y", categorical=("code",), ignore=("code",)),
        SchemaRequest("y", categorical=("code",), features=("length",)),
    ],
    ids=["target", "weight", "ignored", "left out"],
)
def test_a_category_that_is_no_feature_is_refused_in_the_first_run(request_: SchemaRequest) -> None:
    (name,) = request_.categorical
    with pytest.raises(
        PartitionError, match=rf"part-0\.parquet: column '{name}' is listed as categorical, but is not a fea"
    ):
        infer_schema(request_, ARROW, "part-0.parquet")


@pytest.mark.parametrize("positive", [None, True, False, 0, 2, -1.5, 2.0, "b", "", 2**53])
def test_a_schema_round_trips_through_json(positive: Label | None) -> None:
    schema = infer(positive=positive, weight="w", categorical=("code",), ignore=("flag",))
    restored = Schema.from_dict(json.loads(json.dumps(schema.as_dict())))
    assert restored == schema
    assert type(restored.positive) is type(positive)


@pytest.mark.parametrize("classes", ["all", (1, 2), (3,)])
def test_classes_round_trip_through_json(classes: Classes) -> None:
    schema = infer(target="count", classes=classes)
    restored = Schema.from_dict(json.loads(json.dumps(schema.as_dict())))
    assert restored == schema
    assert (restored.classes, restored.class_kind) == (classes, "integer")
    assert restored.classifies


def test_several_targets_round_trip_through_json() -> None:
    schema = infer(target=("y", "count"))
    restored = Schema.from_dict(json.loads(json.dumps(schema.as_dict())))
    assert restored == schema
    assert restored.targets == ("y", "count")
    assert restored.columns(with_target=True)[-2:] == ["y", "count"]
    assert not restored.classifies


@pytest.mark.parametrize("positive", [None, 2])
def test_json_of_one_target_is_that_of_the_first_release(positive: Label | None) -> None:
    schema = infer(positive=positive)
    assert list(schema.as_dict()) == ["target", "positive", "features", "ignore", "weight"]
    assert schema.as_dict()["target"] == "y"
    assert schema.classifies == (positive is not None)


STORED = infer(weight="w", categorical=("code",), ignore=("flag",), positive=2)
REQUEST = SchemaRequest("y", 2, weight="w", categorical=("code",), ignore=("flag",))


@pytest.mark.parametrize(
    "later_request",
    [
        REQUEST,
        replace(REQUEST, features=tuple(reversed([feature.name for feature in STORED.features]))),
        replace(REQUEST, ignore=("flag", "a column that came later")),
        replace(REQUEST, ignore=()),
        replace(REQUEST, categorical=("code", "colour")),
    ],
    ids=["same", "permuted", "more ignored", "none ignored", "text called categorical"],
)
def test_a_job_with_the_same_columns_is_accepted(later_request: SchemaRequest) -> None:
    check_request(STORED, later_request, "here")


@pytest.mark.parametrize(
    ("later_request", "message"),
    [
        (replace(REQUEST, target="length"), "made with target = 'y', the job says 'length'; .*use another store"),
        (replace(REQUEST, positive=None), "made with positive = 2, the job says none"),
        (replace(REQUEST, positive="2"), "made with positive = 2, the job says '2'"),
        (replace(REQUEST, weight=None), "made with weight = 'w', the job says none"),
        (replace(REQUEST, features=("length", "new")), "other features: they differ in code, colour, count, .*new"),
        (replace(REQUEST, ignore=("length",)), "made with 'length' as a feature, the job ignores it"),
        (replace(REQUEST, categorical=("count",)), "made with 'count' as a number, the job calls it categorical"),
    ],
    ids=["target", "positive", "type of positive", "weight", "features", "ignore", "categorical"],
)
def test_a_job_that_contradicts_the_store_is_refused(later_request: SchemaRequest, message: str) -> None:
    with pytest.raises(StoreError, match=rf"the store here was {message}" if "features:" not in message else message):
        check_request(STORED, later_request, "here")


def test_true_is_not_one() -> None:
    with pytest.raises(StoreError, match="made with positive = 1, the job says True"):
        check_request(infer(positive=1), SchemaRequest("y", positive=True), "here")


LISTED = infer(target="count", classes=(3, 1, 2.0))


@pytest.mark.parametrize("classes", [(1, 2, 3), (3.0, 2, 1)], ids=str)
def test_classes_are_the_same_in_any_order(classes: Classes) -> None:
    assert LISTED.classes == (1, 2, 3)
    check_request(LISTED, SchemaRequest("count", classes=classes), "here")


@pytest.mark.parametrize("classes", ["all", (1, 2), (1, 2, 4), (True, 2, 3), ("1", "2", "3"), None], ids=str)
def test_other_classes_contradict_the_store(classes: Classes | None) -> None:
    with pytest.raises(StoreError, match=r"the store here was made with classes = \(1, 2, 3\), the job says .*"):
        check_request(LISTED, SchemaRequest("count", classes=classes), "here")


def test_kinds_are_split_in_the_order_of_the_features() -> None:
    schema = Schema("y", None, (Feature("c", "categorical"), Feature("b", "boolean"), Feature("a", "numeric")))
    assert [feature.name for feature in schema.numeric] == ["b", "a"]
    assert [feature.name for feature in schema.categorical] == ["c"]


def test_a_text_target_needs_a_positive_class() -> None:
    arrow = pa.schema([("x", pa.float64()), ("y", pa.large_string())])
    with pytest.raises(PartitionError, match=r"the target 'y' has type large_string, .*say which one counts as \+1"):
        infer_schema(SchemaRequest("y"), arrow, "part-0.parquet")
    assert infer_schema(SchemaRequest("y", positive="yes"), arrow, "part-0.parquet").positive == "yes"
