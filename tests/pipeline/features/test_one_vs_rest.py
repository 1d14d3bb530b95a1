"""Classes as outputs and back, and what is summed over their rows."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.features.columns import NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.one_vs_rest import count_outputs, scores_of, signs_of, spread_of, winners_of
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.prediction.evaluate import Evaluation


def draw(seed: int, rows: int, n_classes: int) -> Integers:
    return np.random.default_rng(seed).integers(0, n_classes, rows)


@given(st.integers(0, 2**32 - 1), st.integers(0, 30), st.integers(1, 60))
def test_the_signs_of_classes_win(seed: int, rows: int, n_classes: int) -> None:
    positions = draw(seed, rows, n_classes)
    signs = signs_of(positions, n_classes)
    assert signs.shape == (rows, count_outputs(n_classes))
    assert set(np.unique(signs)) <= {-1.0, 1.0}
    scores = scores_of(signs, n_classes)
    assert scores.shape == (rows, n_classes)
    np.testing.assert_array_equal(winners_of(scores), positions)


@pytest.mark.parametrize(
    ("n_classes", "expected"), [(1, [[1], [-1]]), (2, [[-1], [-1]]), (3, [[1, -1, -1], [-1, -1, -1]])]
)
def test_a_row_of_no_class_is_against_every_output(n_classes: int, expected: npt.ArrayLike) -> None:
    np.testing.assert_array_equal(signs_of(np.array([0, -1]), n_classes), expected)


def test_two_classes_are_one_output_and_its_mirror_image() -> None:
    outputs = np.array([[0.25], [-3.0], [0.0]])
    np.testing.assert_array_equal(scores_of(outputs, 2), [[-0.25, 0.25], [3.0, -3.0], [0.0, 0.0]])
    np.testing.assert_array_equal(winners_of(scores_of(outputs, 2)), [1, 0, 0])
    np.testing.assert_array_equal(spread_of(np.array([[0.5]]), 2), [[0.5, 0.5]])


def weights_of(seed: int, rows: int) -> Floats:
    return np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 2.0], rows)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(2, 6), st.booleans())
def test_confusion_is_that_of_another_library(seed: int, rows: int, n_classes: int, weighted: bool) -> None:
    truth, predicted = draw(seed, rows, n_classes), draw(seed + 1, rows, n_classes)
    weights = np.append(1.0, weights_of(seed, rows - 1)) if weighted else None
    found = Evaluation.of_classes(predicted, truth, weights, n_classes)
    expected = confusion_matrix(truth, predicted, labels=range(n_classes), sample_weight=weights)
    np.testing.assert_array_equal(found.confusion, expected)
    assert found.mistakes == expected.sum() - np.trace(expected)
    assert found.weight == expected.sum()
    assert found.one_class == (np.count_nonzero(expected.sum(axis=1)) == 1)
    assert (found.test_mse, found.test_mse_of) == (None, ())


@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(0, 40), st.integers(1, 6))
def test_sums_of_parts_are_those_of_the_whole(seed: int, rows: int, cut: int, n_classes: int) -> None:
    truth, predicted, weights = draw(seed, rows, n_classes), draw(seed + 1, rows, n_classes), weights_of(seed, rows)
    parts = [slice(0, cut), slice(cut, rows)]
    whole = Evaluation.of_classes(predicted, truth, weights, n_classes)
    halves = [Evaluation.of_classes(predicted[p], truth[p], weights[p], n_classes) for p in parts]
    assert Evaluation().merge(halves[0]).merge(halves[1]) == whole
    assert whole.merge(Evaluation()) == whole


def test_several_targets_have_an_error_each_and_their_mean() -> None:
    rng = np.random.default_rng(0)
    predicted, truth, weights = rng.normal(size=(30, 3)), rng.normal(size=(30, 3)), weights_of(1, 30)
    found = Evaluation.of(predicted, truth, weights, classes=False)
    expected = np.average((predicted - truth) ** 2, axis=0, weights=weights)
    np.testing.assert_allclose(found.test_mse_of, expected, rtol=1e-13)
    assert found.test_mse == pytest.approx(expected.mean(), rel=1e-13)
    assert found.test_error is None
    assert not found.one_class


def feature_map(classes: tuple[str, ...]) -> FeatureMap:
    return FeatureMap((NumericColumn("x", 1.0, 1.0, 1.0),), (), TargetMap.of_classes(classes))


def test_a_feature_map_translates_the_codes_of_any_partition() -> None:
    target = TargetMap.of_classes(("a", "b", "c"))
    kept = np.array([[0.0], [2.0], [1.0], [0.0]])
    np.testing.assert_array_equal(
        target.encode(kept, ["c", "a", "nobody's"]), [[-1, -1, 1], [-1, -1, -1], [1, -1, -1], [-1, -1, 1]]
    )
    encoded = target.encode(kept, ["c", "a", "b"])
    np.testing.assert_array_equal(target.standardize(encoded), target.encode(kept, "cab"))
    target.check_classes(["c", "a"])
    with pytest.raises(InputError, match=r"the target has the class 'd', .*--new-model"):
        target.check_classes(["a", "d", "e"])


def test_json_keeps_classes_and_knows_no_key_of_them_without() -> None:
    for classes in (("a", "b", "c"), ()):
        fm = feature_map(classes)
        assert FeatureMap.from_dict(fm.as_dict()) == fm
        assert ("classes" in fm.as_dict()) == bool(classes)
