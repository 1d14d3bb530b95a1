"""Compressed columns: which they are, what becomes of their values, and how a map keeps them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.serialization import hash_of
from ridgestream.pipeline.features.columns import NumericColumn
from ridgestream.pipeline.features.compression import fit_compression
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.target_map import TargetMap

RNG = np.random.default_rng(0)
LOGARITHMS = RNG.standard_normal(5_000)
AMOUNTS = np.exp(2 * LOGARITHMS)
RARE = np.where(RNG.random(5_000) < 0.98, 0.0, RNG.integers(1, 16, 5_000))
"""A pixel near the edge: seldom more than zero, and many deviations from the mean then."""

MOSTLY_NONE = np.where(RNG.random(5_000) < 0.9, 0.0, AMOUNTS)


@pytest.mark.parametrize(
    "values",
    [RNG.standard_normal(5_000).clip(-4, 4), RARE, np.eye(1_000)[0], np.zeros(10), np.empty(0)],
    ids=["normal", "rarely something", "one of two values", "constant", "no rows"],
)
def test_a_column_without_values_far_out_is_left_as_it_is(values: Floats) -> None:
    assert fit_compression(values) is None


@pytest.mark.parametrize("values", [AMOUNTS, -AMOUNTS, MOSTLY_NONE], ids=["amounts", "debts", "mostly none"])
def test_a_compressed_column_varies_by_one_and_has_nothing_far_out(values: Floats) -> None:
    features, missing, median = compressed(values)
    assert features.std() == pytest.approx(1.0)
    assert np.ptp(features) < np.ptp(values) / values.std() / 2
    assert (np.diff(features[np.argsort(values)]) >= 0).all()
    assert missing == pytest.approx(median, abs=1e-12)


@pytest.mark.parametrize("values", [AMOUNTS, MOSTLY_NONE], ids=["amounts", "mostly none"])
def test_from_the_median_the_median_is_zero(values: Floats) -> None:
    features, missing, median = compressed(values, one_sided=False)
    assert features.std() == pytest.approx(1.0)
    assert np.abs(features).max() < np.abs(values - values.mean()).max() / values.std() / 2
    assert (np.diff(features[np.argsort(values)]) >= 0).all()
    assert (missing, median) == pytest.approx((0.0, 0.0))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("width", "shift"), [(1.0, 0.0), (2.0, 0.0), (2.0, 1e4), (3.0, -50.0)])
def test_values_far_out_on_one_side_become_their_logarithms(width: float, shift: float, sign: float) -> None:
    features, *_ = compressed(sign * (shift + np.exp(width * LOGARITHMS)))
    assert np.corrcoef(features, sign * LOGARITHMS)[0, 1] > 0.98


@pytest.mark.parametrize(
    ("values", "one_sided"),
    [(RNG.standard_t(3, 5_000), True), (RNG.standard_cauchy(5_000), True), (AMOUNTS, False)],
    ids=["both sides", "far out on both sides", "as it is stated"],
)
def test_otherwise_distances_are_from_the_median(values: Floats, one_sided: bool) -> None:
    compression = fit_compression(values, one_sided=one_sided)
    assert compression is not None
    assert compression.origin == compression.median == np.median(values)


def test_a_wrong_value_at_the_other_end_leaves_the_median() -> None:
    compression = fit_compression(np.append(AMOUNTS, -1e6))
    assert compression is not None
    assert compression.origin == compression.median


def compressed(values: Floats, *, one_sided: bool = True) -> tuple[Floats, float, float]:
    """Return the features of the column, that of a missing value and that of the median."""
    column = NumericColumn("x", values.mean(), values.std(), values.mean())
    compression = fit_compression((values - column.centre) / column.scale, one_sided=one_sided)
    assert compression is not None
    feature_map = FeatureMap((column.compressed(compression),), (), TargetMap((0.0,), (1.0,)))
    rows = np.concatenate([values, [np.nan, np.median(values)]])
    *features, missing, median = feature_map.features(rows[:, np.newaxis], np.empty((len(rows), 0), np.int32), [])[:, 0]
    return np.array(features), float(missing), float(median)


def test_a_map_keeps_its_spreads_and_is_another_one_by_its_hash() -> None:
    plain = FeatureMap(
        (NumericColumn("x", 0.0, 2.0, 0.0), NumericColumn("t", 1.0, 1.0, 1.0)), (), TargetMap((0.0,), (1.0,))
    )
    compressed = replace(plain, numeric=(replace(plain.numeric[0], spread=0.8), plain.numeric[1]))
    assert FeatureMap.from_dict(json.loads(json.dumps(compressed.as_dict()))) == compressed
    assert "spreads" not in plain.as_dict()
    assert hash_of(compressed) != hash_of(plain)


@pytest.mark.parametrize("spreads", [[1.0], [1.0, -1.0], [1.0, "a"], [1.0, float("inf")], 1.0, [True, 0.0]])
def test_damaged_spreads_are_refused(spreads: object) -> None:
    columns = tuple(NumericColumn(name, 0.0, 1.0, 0.0) for name in "ab")
    plain = FeatureMap(columns, (), TargetMap((0.0,), (1.0,))).as_dict()
    with pytest.raises(InputError, match="this is no feature map: its spreads are"):
        FeatureMap.from_dict({**plain, "spreads": spreads})
