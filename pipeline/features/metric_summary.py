"""What a learned metric says about the columns: how much distances depend on each, and on which combinations."""

from typing import Any

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.features.feature_map import FeatureMap

DIRECTIONS = 3
"""Leading directions that are described."""

ENTRIES = 6
"""Features of a direction that are named at most."""


def summarize_metric(feature_map: FeatureMap) -> dict[str, Any]:
    """Return the metric as a JSON object; empty for that of the standardized columns.

    `importance` has each column's share of the squared gradients, in descending order, a categorical column's that of
    all its indicators; `directions` the leading eigenvectors by their share, with their largest entries.
    """
    metric = feature_map.metric
    if metric is None:
        return {}
    shares = _sum_by_column(metric.importance(), feature_map)
    names = _feature_names(feature_map)
    return {
        "form": "diagonal" if metric.is_diagonal else "full",
        "importance": [
            {"column": column, "share": share} for column, share in sorted(shares.items(), key=lambda item: -item[1])
        ],
        "directions": [
            {"share": direction.share, "features": _largest(direction.axis, names)}
            for direction in (() if metric.is_diagonal else metric.directions(DIRECTIONS))
        ],
    }


def describe_direction(axis: Floats, feature_map: FeatureMap) -> list[dict[str, Any]]:
    """Return the largest entries of a direction (n_features,), with the names of their features."""
    return _largest(axis, _feature_names(feature_map))


def column_importance(feature_map: FeatureMap) -> dict[str, float]:
    """Return each column's share of the squared gradients over an equal share, at most 1; without a metric, of none.

    It is 0 for a time stamp that is circles only, which never drift, as its time elapsed always does.
    """
    metric = feature_map.metric
    shares = _sum_by_column(metric.importance(), feature_map) if metric is not None else {}
    importance = {name: min(share * len(shares), 1.0) for name, share in shares.items()}
    return importance | {column.name: 0.0 for column in feature_map.numeric if not column.is_linear}


def column_shares(feature_map: FeatureMap) -> dict[str, float]:
    """Return each column's share of the squared gradients of the metric; equal shares without a metric."""
    if feature_map.metric is not None:
        return _sum_by_column(feature_map.metric.importance(), feature_map)
    names = [column.name for column in feature_map.numeric] + [column.name for column in feature_map.categorical]
    return dict.fromkeys(names, 1 / max(len(names), 1))


def _sum_by_column(shares: Floats, feature_map: FeatureMap) -> dict[str, float]:
    columns = [column.name for column in feature_map.linear]
    columns += [feature_map.numeric[position].name for position, _ in feature_map.circles for _ in range(2)]
    columns += [column.name for column in feature_map.categorical for _ in column.categories]
    sums = dict.fromkeys(columns, 0.0)
    for name, share in zip(columns, shares.tolist(), strict=True):
        sums[name] += share
    return sums


def _feature_names(feature_map: FeatureMap) -> list[str]:
    """Return the name of each feature: its column, with the circle of a time stamp or the category of an indicator."""
    names = [column.name for column in feature_map.linear]
    circles = [f"{feature_map.numeric[position].name} {cycle}" for position, cycle in feature_map.circles]
    names += [f"{circle} ({function})" for circle in circles for function in ("sin", "cos")]
    return names + [f"{column.name}={each}" for column in feature_map.categorical for each in column.categories]


def _largest(axis: Floats, names: list[str]) -> list[dict[str, Any]]:
    largest = np.argsort(-np.abs(axis), kind="stable")[:ENTRIES]
    return [{"feature": names[i], "weight": float(axis[i])} for i in largest.tolist()]
