"""The feature map against scikit-learn's StandardScaler and OneHotEncoder."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.serialization import hash_of
from ridgestream.pipeline.features.columns import CategoricalColumn, NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.sums.moments import Moments

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows to standardize by."""

    numeric: Array
    labels: list[list[str]]
    """For each categorical column, its values by row."""
    targets: Array
    weights: Array

    def tables(self) -> list[list[str]]:
        """Return each categorical column's values by first appearance."""
        return [list(dict.fromkeys(column)) for column in self.labels]

    def codes(self) -> npt.NDArray[np.int32]:
        columns = [[t.index(v) for v in c] for t, c in zip(self.tables(), self.labels, strict=True)]
        return np.array(columns, dtype=np.int32).reshape(len(self.labels), len(self.numeric)).T

    def fit(self, *, classes: bool = False) -> FeatureMap:
        moments = Moments.of(self.numeric, self.weights)
        statistics = zip(moments.mean.tolist(), moments.deviation().tolist(), strict=True)
        labels = [np.array(column, dtype=object) for column in self.labels]
        weights = [{v: float(self.weights[column == v].sum()) for v in column} for column in labels]
        tables = enumerate(zip(self.tables(), weights, strict=True))
        return FeatureMap(
            tuple(NumericColumn.fit(f"x{i}", *each, is_boolean=False) for i, each in enumerate(statistics)),
            tuple(CategoricalColumn.fit(f"c{i}", *each) for i, each in tables),
            TargetMap.of_classes(()) if classes else TargetMap.fit(Moments.of(self.targets, self.weights)),
        )

    def indicators(self) -> Array:
        if not self.labels:
            return np.empty((len(self.numeric), 0))
        encoder = OneHotEncoder(categories=self.tables(), sparse_output=False)
        return np.asarray(encoder.fit_transform(np.array(self.labels, dtype=object).T))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    rows = draw(st.integers(1, 20))
    columns = draw(st.integers(1, 3))
    grid = st.integers(-8, 8).map(lambda n: n / 4)
    numeric = np.array(draw(st.lists(grid, min_size=rows * columns, max_size=rows * columns))).reshape(rows, columns)
    column = st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=rows, max_size=rows)
    labels = draw(st.lists(column, max_size=2))
    targets = np.array(draw(st.lists(grid, min_size=rows, max_size=rows))).reshape(rows, 1)
    weights = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=rows, max_size=rows)))
    assume(weights.any())
    return Table(numeric, labels, targets, weights)


@given(table=tables())
def test_features_are_those_of_a_scaler_after_an_encoder(table: Table) -> None:
    feature_map = table.fit()
    features = feature_map.features(table.numeric, table.codes(), feature_map.code_maps(table.tables()))
    raw = np.hstack([table.numeric, table.indicators()])
    scaler = StandardScaler().fit(raw, sample_weight=table.weights)
    np.testing.assert_allclose(features, scaler.transform(raw), rtol=1e-12, atol=1e-13)


@given(table=tables())
def test_targets_are_those_of_a_scaler_and_come_back(table: Table) -> None:
    feature_map = table.fit()
    scaled = feature_map.target.standardize(table.targets)
    scaler = StandardScaler().fit(table.targets, sample_weight=table.weights)
    np.testing.assert_allclose(scaled, scaler.transform(table.targets), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(feature_map.target.restore(scaled), table.targets, rtol=1e-12, atol=1e-13)


@given(table=tables())
def test_classes_stay_as_they_are(table: Table) -> None:
    feature_map = table.fit(classes=True)
    np.testing.assert_array_equal(feature_map.target.standardize(table.targets), table.targets)
    np.testing.assert_array_equal(feature_map.target.restore(table.targets), table.targets)


@given(table=tables(), data=st.data())
def test_codes_of_another_table_mean_the_same(table: Table, data: st.DataObject) -> None:
    """A later segment has its own table: fewer values, in another order."""
    feature_map = table.fit()
    expected = feature_map.features(table.numeric, table.codes(), feature_map.code_maps(table.tables()))
    shuffled = [data.draw(st.permutations(values)) for values in table.tables()]
    codes = [[values.index(v) for v in column] for values, column in zip(shuffled, table.labels, strict=True)]
    other = np.array(codes, dtype=np.int32).reshape(len(table.labels), len(table.numeric)).T
    np.testing.assert_array_equal(feature_map.features(table.numeric, other, feature_map.code_maps(shuffled)), expected)


@given(table=tables())
def test_json_keeps_the_map_bit_for_bit(table: Table) -> None:
    feature_map = table.fit()
    assert FeatureMap.from_dict(json.loads(json.dumps(feature_map.as_dict()))) == feature_map


def fixed(numeric: Any, labels: list[list[str]] | None = None, weights: Any = None) -> Table:
    x = np.asarray(numeric, dtype=np.float64)
    w = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=np.float64)
    return Table(x, labels or [], np.zeros((len(x), 1)), w)


@pytest.mark.parametrize("value", [0.1, 1e-300, -7e80])
def test_a_constant_column_stays_unscaled(value: float) -> None:
    feature_map = fixed(np.full((7, 1), value)).fit()
    assert feature_map.scale.tolist() == [1.0]
    later = feature_map.features(np.array([[value], [value + 5.0]]), np.empty((2, 0), dtype=np.int32), [])
    np.testing.assert_allclose(later[:, 0], [0.0, 5.0], atol=1e-15 * abs(value))


def test_a_category_that_all_rows_have_stays_unscaled() -> None:
    feature_map = fixed(np.zeros((3, 1)), [["a", "a", "a"]]).fit()
    assert feature_map.scale.tolist() == [1.0, 1.0]
    assert feature_map.centre.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("weight", [0.1, 1 / 3, 1e-9])
def test_a_category_that_all_weighted_rows_have_stays_unscaled(weight: float) -> None:
    feature_map = fixed(np.zeros((4, 1)), [["a", "a", "a", "b"]], [weight, weight, weight, 0.0]).fit()
    assert feature_map.scale.tolist() == [1.0, 1.0, 1.0]
    assert feature_map.centre.tolist() == [0.0, 1.0, 0.0]


def test_a_category_absent_from_the_scaling_rows_has_an_unscaled_indicator() -> None:
    column = CategoricalColumn.fit("c", ["a", "b", "late"], {"a": 1.0, "b": 1.0})
    feature_map = FeatureMap((NumericColumn("x", 0.0, 1.0, 0.0),), (column,), TargetMap((0.0,), (1.0,)))
    features = feature_map.features(
        np.zeros((2, 1)), np.array([[0], [1]], dtype=np.int32), feature_map.code_maps([["late", "a"]])
    )
    np.testing.assert_array_equal(features, [[0.0, -1.0, -1.0, 1.0], [0.0, 1.0, -1.0, 0.0]])


def test_an_unseen_category_is_refused_with_column_and_value() -> None:
    feature_map = fixed(np.zeros((2, 1)), [["a", "b"], ["x", "y"]]).fit()
    with pytest.raises(InputError, match=r"column 'c1' has the category 'Z', which the model had not seen.*--new-m"):
        feature_map.check_categories([["b", "a"], ["y", "Z"]])


def test_a_table_without_values_maps_no_codes() -> None:
    feature_map = fixed(np.zeros((2, 1)), [["a", "b"]]).fit()
    (codes,) = feature_map.code_maps([[]])
    features = feature_map.features(np.empty((0, 1)), np.empty((0, 1), dtype=np.int32), [codes])
    assert features.shape == (0, 3)


def test_features_of_single_precision_are_computed_in_double() -> None:
    feature_map = fixed([[1.0], [2.0]]).fit()
    numeric = np.array([[1.5]], dtype=np.float32)
    features = feature_map.features(numeric, np.empty((1, 0), dtype=np.int32), [])
    assert features.dtype == np.float64
    np.testing.assert_array_equal(numeric, [[1.5]])


HASHED = {
    "c784de3540e40b05415c9f2b712989c6ffacb925c1954b952051c382136bde62": FeatureMap(
        (NumericColumn("x", 0.1, 2.5, 0.1),), (), TargetMap((1.0, -3.0), (2.0, 0.5))
    ),
    "297e3a6d9dcf237aa93e7384f4518f0d8a573aa8d0701572027a057cfff7ea42": FeatureMap(
        (NumericColumn("x", 0.1, 2.5, 0.1), NumericColumn("b", 0.75, 0.4330127018922193, 1.0)),
        (
            CategoricalColumn("c", ("red", "blue", "late"), (0.25, 0.75, 0.0), (0.5, 0.5, 1.0)),
            CategoricalColumn("d", ("k",), (1.0,), (1.0,)),
        ),
        TargetMap((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (1, 2, 9)),
        extended_by=1,
    ),
    "8bc51b47ef44a82911162ec914a7e9689319f9081147cb0128f569f7efa4263d": FeatureMap(
        (NumericColumn("x", 0.0, 1.0, 0.0),),
        (CategoricalColumn("c", ("a", "b"), (0.5, 0.5), (0.5, 0.5)),),
        TargetMap((0.0,), (1.0,), ("no", "yes")),
    ),
}
"""Maps, each by the hash that version 0.1.0 computed for it, as checkpoints are found again by it."""


@pytest.mark.parametrize(("expected", "feature_map"), HASHED.items(), ids=["numbers", "mixed", "two-classes"])
def test_a_map_hashes_as_in_the_first_release(expected: str, feature_map: FeatureMap) -> None:
    assert hash_of(feature_map) == expected
    assert hash_of(FeatureMap.from_dict(json.loads(json.dumps(feature_map.as_dict())))) == expected


def test_a_map_hashes_as_in_the_first_release_inside_other_values() -> None:
    first, *_ = HASHED.values()
    expected = "f1dd19b45bb906ce8e89898a41101a92712051f0c88fc9fa5e48cebe4e91e2dd"
    assert hash_of(("pass", 3, first, None)) == expected
