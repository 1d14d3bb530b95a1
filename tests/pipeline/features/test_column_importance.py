"""The importance of columns by a metric: their share of the squared gradients, relative to an equal share."""

import numpy as np
import pytest

from ridgestream.pipeline.features.columns import CategoricalColumn, NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.metric_summary import column_importance
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.metric.metric import Metric


def feature_map(metric: Metric | None) -> FeatureMap:
    numeric = tuple(NumericColumn(name, 0.0, 1.0, 0.0) for name in ("much", "little"))
    categorical = (CategoricalColumn("colour", ("red", "blue"), (0.0, 0.0), (1.0, 1.0)),)
    return FeatureMap(numeric, categorical, TargetMap.of_classes(()), metric=metric)


@pytest.mark.parametrize("as_matrix", [False, True])
def test_a_column_counts_by_its_share_and_a_category_by_that_of_its_indicators(as_matrix: bool) -> None:
    weights = np.sqrt([0.89, 0.01, 0.06, 0.04])
    importance = column_importance(feature_map(Metric(np.diag(weights) if as_matrix else weights)))
    assert importance == pytest.approx({"much": 1.0, "little": 0.03, "colour": 0.3})


def test_without_a_metric_no_column_differs() -> None:
    assert column_importance(feature_map(None)) == {}
