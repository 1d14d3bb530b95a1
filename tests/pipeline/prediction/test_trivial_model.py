"""The trivial model: the constants and errors of another library's, from moments that merge."""

from functools import reduce

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import mean_squared_error, r2_score, zero_one_loss

from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.one_vs_rest import signs_of
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.prediction.evaluate import Evaluation, compare, losses_of, with_constant
from ridgestream.pipeline.prediction.trivial_model import TargetMoments, is_no_better, merge_targets, skill_of
from ridgestream.pipeline.sums.moments import Moments

RNG = np.random.default_rng(5)


def weights_of(rows: int, *, weighted: bool) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return RNG.integers(0, 4, rows) / 3 if weighted else np.ones(rows)


@pytest.mark.parametrize("weighted", [False, True])
def test_means_and_their_errors_are_those_of_another_library(weighted: bool) -> None:
    learned, rows = RNG.normal(3000.0, [400.0, 0.01], (300, 2)), RNG.normal(3100.0, [300.0, 0.01], (100, 2))
    w, v = weights_of(300, weighted=weighted), weights_of(100, weighted=weighted)
    parts = [TargetMoments.of(Moments.of(learned[i : i + 90], w[i : i + 90])) for i in range(0, 300, 90)]
    moments, others = merge_targets(parts), TargetMoments.of(Moments.of(rows, v))
    dummy = DummyRegressor().fit(learned, learned, w)
    constant = moments.constant(classes=False)
    assert constant is not None
    np.testing.assert_allclose(constant, dummy.constant_.ravel(), rtol=1e-12)
    expected = mean_squared_error(rows, dummy.predict(rows), sample_weight=v, multioutput="raw_values")
    np.testing.assert_allclose(moments.constant_errors(others, classes=False), expected, rtol=1e-10)
    own = moments.constant_errors(moments, classes=False)
    outputs = learned + RNG.normal(size=learned.shape)
    errors = mean_squared_error(learned, outputs, sample_weight=w, multioutput="raw_values")
    r2 = r2_score(learned, outputs, sample_weight=w, multioutput="raw_values")
    assert [*map(skill_of, errors, own)] == pytest.approx(r2, rel=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_largest_class_and_its_error_are_those_of_another_library(n_classes: int, weighted: bool) -> None:
    learned, rows = RNG.integers(0, n_classes, 300), RNG.integers(0, n_classes, 100)
    w, v = weights_of(300, weighted=weighted), weights_of(100, weighted=weighted)
    parts = [np.bincount(learned[i : i + 90], w[i : i + 90], n_classes).tolist() for i in range(0, 300, 90)]
    moments = merge_targets(map(TargetMoments.of_classes, parts))
    dummy = DummyClassifier().fit(learned, learned, w)
    constant = moments.constant(classes=True)
    np.testing.assert_array_equal(constant, signs_of(dummy.predict(rows[:1]), n_classes)[0])
    expected = zero_one_loss(rows, dummy.predict(rows), sample_weight=v)
    others = TargetMoments.of_classes(np.bincount(rows, v, n_classes).tolist())
    assert moments.constant_errors(others, classes=True) == pytest.approx([expected], rel=1e-12)


def feature_map_of(target: TargetMap) -> FeatureMap:
    return FeatureMap((), (), target)


CASES = {
    "regression": (TargetMap((0.0, 0.0), (1.0, 1.0)), RNG.normal(2.0, 1.0, (200, 2)), np.array([2.0, 2.1])),
    "binary": (TargetMap((0.0,), (1.0,)), RNG.choice([-1.0, 1.0], (200, 1)), np.array([-1.0])),
    "two classes": (TargetMap.of_classes("ab"), RNG.choice([-1.0, 1.0], (200, 1)), np.array([1.0])),
    "classes": (TargetMap.of_classes("abcd"), signs_of(RNG.integers(0, 4, 200), 4), signs_of(np.array([2]), 4)[0]),
}


@pytest.mark.parametrize("case", CASES)
def test_an_evaluation_holds_the_constants_errors_and_the_chance_of_their_difference(case: str) -> None:
    target, targets, constant = CASES[case]
    feature_map, classes = feature_map_of(target), case != "regression"
    outputs, w = targets + RNG.normal(size=targets.shape), weights_of(200, weighted=True)
    pieces = [slice(i, i + 70) for i in range(0, 200, 70)]
    parts = [
        with_constant(
            compare(outputs[i], targets[i], w[i], feature_map, classes=classes),
            outputs[i],
            (targets[i], w[i]),
            feature_map,
            constant,
        )
        for i in pieces
    ]
    total = reduce(Evaluation.merge, parts)
    trivial = compare(np.tile(constant, (200, 1)), targets, w, feature_map, classes=classes)
    np.testing.assert_allclose(total.trivial_errors, trivial.test_errors, rtol=1e-12)
    both = [losses_of(each, targets, feature_map, classes=classes) for each in (outputs, np.tile(constant, (200, 1)))]
    chance = np.sqrt(np.sum((w[:, np.newaxis] * (both[0] - both[1])) ** 2, axis=0)) / w.sum()
    np.testing.assert_allclose(total.chance, chance, rtol=1e-12)
    np.testing.assert_allclose(w @ both[0] / w.sum(), total.test_errors, rtol=1e-12)


def test_equal_targets_leave_a_constant_without_error_whatever_the_rounding() -> None:
    targets = np.full((30, 1), 0.1)
    moments = merge_targets([TargetMoments.of(Moments.of(targets[i : i + 7], np.ones(7))) for i in range(0, 21, 7)])
    assert moments.constant(classes=False) != 0.1  # the mean is rounded
    feature_map = feature_map_of(TargetMap((0.0,), (1.0,)))
    constant = moments.constant(classes=False)
    assert constant is not None
    part = compare(targets + 1.0, targets, None, feature_map, classes=False)
    part = with_constant(part, targets + 1.0, (targets, None), feature_map, constant)
    assert part.trivial_errors == moments.constant_errors(moments, classes=False) == (0.0,)
    assert skill_of(1.0, 0.0) is None
    assert not is_no_better(1.0, 0.0)


def test_rows_of_one_class_leave_a_constant_without_error() -> None:
    moments = TargetMoments.of_classes([0.0, 7.0]).merge(TargetMoments.of_classes([0.0, 0.3]))
    assert moments.constant_errors(moments, classes=True) == (0.0,)


def test_no_rows_give_no_constant_and_no_error() -> None:
    none, some = TargetMoments.of(Moments.empty(1)), TargetMoments.of_classes([1.0, 2.0])
    assert none == TargetMoments.of_classes([0.0, 0.0]) == TargetMoments()
    assert none.constant(classes=True) is None
    assert none.constant_errors(some, classes=True) == some.constant_errors(none, classes=True) == ()
    assert none.merge(some) == some.merge(none) == some
    assert TargetMoments.from_array(some.as_array()) == some


@pytest.mark.parametrize(
    ("error", "trivial_error", "chance", "expected"),
    [(0.5, 0.4, 0.0, True), (0.4, 0.4, 0.0, True), (0.39, 0.4, 0.0, False), (0.39, 0.4, 0.01, True)],
)
def test_a_model_is_better_if_it_errs_less_than_chance_explains(
    error: float, trivial_error: float, chance: float, expected: bool
) -> None:
    assert is_no_better(error, trivial_error, chance) == expected
