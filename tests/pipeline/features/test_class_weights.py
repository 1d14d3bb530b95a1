"""The weights of classes: by the rows, by a table, and applied to rows of one output and of several."""

import numpy as np
import pytest

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.features.class_weights import BALANCED, weigh_classes
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.one_vs_rest import signs_of
from ridgestream.pipeline.features.target_map import TargetMap


def test_balanced_classes_weigh_the_same_and_rows_weigh_one_on_average() -> None:
    weights = weigh_classes(BALANCED, {"a": 60.0, "b": 30.0, "c": 10.0})
    np.testing.assert_allclose(np.array(weights) * [60, 30, 10], 100 / 3)
    assert weigh_classes(BALANCED, {"a": 60.0, "b": 20.0, "unseen": 0.0}) == (40 / 60, 2.0, 2.0)
    assert weigh_classes(BALANCED, {"a": 0.0}) == ()


def test_a_table_names_classes_that_exist() -> None:
    assert weigh_classes({"b": 3}, {"a": 1.0, "b": 1.0}) == (1.0, 3.0)
    with pytest.raises(InputError, match=r"class_weight names the class 'x', .*; its classes: a, b$"):
        weigh_classes({"x": 2.0}, {"a": 1.0, "b": 1.0})


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_rows_are_weighed_by_their_class_and_unweighed_again(n_classes: int) -> None:
    positions = np.array([0, 1, 1, 0, max(n_classes - 1, 1)])
    target = TargetMap.of_classes(tuple(range(n_classes)))
    targets, own = signs_of(positions, n_classes or 2), np.array([1.0, 0.0, 2.0, 0.5, 1.0])
    assert target.weigh(targets, None) is None
    assert target.weigh(targets, own) is own
    weights = (0.25, 2.0, 8.0)[: n_classes or 2]
    weighing = TargetMap(target.centre, target.scale, target.classes, weights)
    weighed = weighing.weigh(targets, own)
    assert weighed is not None
    np.testing.assert_array_equal(weighed, own * np.array(weights)[positions])
    np.testing.assert_array_equal(weighing.unweigh(targets, weighed), own)
    feature_map = FeatureMap((), (), weighing)
    assert FeatureMap.from_dict(feature_map.as_dict()) == feature_map
    with pytest.raises(InputError, match="its weights of classes are"):
        FeatureMap.from_dict(feature_map.as_dict() | {"class_weights": [1.0, -1.0, 1.0][: n_classes or 2]})
    assert "class_weights" not in FeatureMap((), (), target).as_dict()
