"""Scales that are open until a column varies: no row before changes, and the record keeps what is known."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.serialization import hash_of
from ridgestream.pipeline.features.columns import CategoricalColumn, NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.metric_summary import column_importance, summarize_metric
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.sums.moments import Moments

VALUES = st.lists(st.sampled_from([math.nan, 0.1, 0.0, 1.0, -7e80, 1e-300, 3.25]), min_size=1, max_size=6)


def map_of(*columns: NumericColumn) -> FeatureMap:
    return FeatureMap(columns, (), TargetMap((0.0,), (1.0,)))


def features_of(feature_map: FeatureMap, values: list[float]) -> list[float]:
    numeric = np.array(values)[:, np.newaxis]
    return [float(row[0]) for row in feature_map.features(numeric, np.empty((len(values), 0), dtype=np.int32), [])]


def open_column() -> FeatureMap:
    return map_of(NumericColumn("x", 0.0, 1.0, 0.0, distinct=0))


@given(partitions=st.lists(VALUES, min_size=1, max_size=5))
def test_rows_before_a_column_varies_are_zero_by_every_later_map(partitions: list[list[float]]) -> None:
    feature_map, seen = open_column(), []
    for values in partitions:
        feature_map = feature_map.opened(Moments.of(np.array(values)[:, np.newaxis]))
        (column,) = feature_map.numeric
        if column.distinct < 2:
            seen += values
        present = {value for value in seen if not math.isnan(value)}
        assert column.distinct == 2 or len(present) == column.distinct
        assert not any(features_of(feature_map, seen or [math.nan]))
        assert column.scale > 0


def test_the_scale_is_that_of_the_first_rows_that_vary_and_then_stays() -> None:
    one = open_column().opened(Moments.of(np.full((4, 1), 3.0)))
    assert one.numeric[0] == NumericColumn("x", 3.0, 1.0, 3.0, distinct=1)
    values = np.array([[3.0], [5.0], [10.0]])
    two = one.opened(Moments.of(values))
    assert two.numeric[0] == NumericColumn("x", 3.0, float(values.std()), 3.0)
    assert two.opened(Moments.of(100 * values)) is two
    assert one.opened(Moments.of(np.array([[7.5], [7.5]]))).numeric[0].scale == 4.5
    rare = np.full((1000, 1), 3.0)
    rare[7] = 4.0
    assert one.opened(Moments.of(rare)).numeric[0].scale == 1.0
    flags = open_column().opened(Moments.of(np.array([[0.0], [0.0], [1.0]])))
    assert (flags.numeric[0].centre, flags.numeric[0].fill, flags.numeric[0].scale) == (0.0, 0.0, 1.0)


MAP = FeatureMap(
    (
        NumericColumn("x", 0.5, 2.0, 0.5, distinct=1),
        NumericColumn("when", 0.0, 1.0, 0.0, cycles=("hour", "weekday"), is_linear=False),
        NumericColumn("day", 0.0, 1.0, 0.0, cycles=("weekday",), distinct=0),
    ),
    (CategoricalColumn("c", ("a", "b"), (0.0, 0.0), (1.0, 1.0), fill=1),),
    TargetMap((0.0,), (1.0,)),
)


def test_json_keeps_what_a_map_has_beyond_the_first_release() -> None:
    assert FeatureMap.from_dict(json.loads(json.dumps(MAP.as_dict()))) == MAP
    assert (MAP.n_features, len(MAP.centre), len(MAP.scale)) == (10, 10, 10)
    others = [replace(MAP, numeric=(*MAP.numeric[:i], each, *MAP.numeric[i + 1 :])) for i, each in CHANGED]
    hashes = {
        hash_of(each) for each in (MAP, *others, replace(MAP, categorical=(replace(MAP.categorical[0], fill=0),)))
    }
    assert len(hashes) == len(CHANGED) + 2


CHANGED = [
    (0, replace(MAP.numeric[0], distinct=2)),
    (1, replace(MAP.numeric[1], cycles=("hour",))),
    (1, replace(MAP.numeric[1], is_linear=True)),
]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cycles", [["hour"]]),
        ("cycles", [[], ["minute"], []]),
        ("cycles", 3),
        ("cycles", [[["hour"]], [], []]),
        ("linear", [1, 0, 1]),
        ("distinct", [1, 2, 3]),
        ("category_fill", [2]),
        ("category_fill", ["a"]),
    ],
)
def test_a_damaged_map_is_refused(key: str, value: object) -> None:
    with pytest.raises(InputError, match="this is no feature map"):
        FeatureMap.from_dict({**MAP.as_dict(), key: value})


def test_a_metric_counts_circles_to_their_time_stamp_whose_elapsed_time_may_drift() -> None:
    assert column_importance(MAP) == {"when": 0.0}
    measured = replace(MAP, metric=Metric(np.sqrt(np.array([2.0, 0, 3, 1, 1, 1, 1, 0.5, 0.5, 0]))))
    summary = summarize_metric(measured)
    shares = {"when": 6.0, "x": 2.0, "c": 0.5, "day": 1.5}
    assert {each["column"]: each["share"] for each in summary["importance"]} == pytest.approx(
        {name: share / 10 for name, share in shares.items()}
    )
    assert column_importance(measured)["when"] == 0.0
    full = summarize_metric(replace(measured, metric=Metric(np.diag(measured.metric.root)))) if measured.metric else {}
    assert full["directions"][0]["features"][0]["feature"] == "when hour (sin)"


def test_a_new_category_comes_after_the_circles_and_changes_no_other_feature() -> None:
    extended = MAP.extended([["b", "z"]])
    numeric = np.array([[1.0, 1e9, np.nan], [np.nan, np.nan, 2e9]])
    codes = np.array([[0], [1]], dtype=np.int32)
    before, after = (each.features(numeric, codes, each.code_maps([["a", "b"]])) for each in (MAP, extended))
    added = MAP.added_features(extended)
    assert added.tolist() == [10]
    np.testing.assert_array_equal(after, np.insert(before, added, 0.0, axis=1))
    assert before[1, 2:6].tolist() == [0.0] * 4


def test_plain_indicators_are_zero_and_one_and_a_missing_value_is_the_most_frequent() -> None:
    column = CategoricalColumn.plain("c", ["b", "a", "late"], {"a": 5.0, "b": 1.0})
    feature_map = FeatureMap((), (column.extended(["new"]),), TargetMap((0.0,), (1.0,)))
    codes = np.array([[0], [1], [-1], [2]], dtype=np.int32)
    features = feature_map.features(np.empty((4, 0)), codes, feature_map.code_maps([["a", "b", "new"]]))
    assert features.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
