"""Raw columns to a model's features, as nodes of an ONNX graph: the same steps as `FeatureMap.features`."""

import numpy as np
from onnx import TensorProto

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.policies import ERROR
from ridgestream.pipeline.exports.exported import DROP, IMPUTE, MISSING_TEXT, Exported
from ridgestream.pipeline.exports.onnx.calendar import add_circle
from ridgestream.pipeline.exports.onnx.graph import ML, Graph
from ridgestream.pipeline.features.columns import CategoricalColumn, NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.metric.metric import Metric


def add_features(graph: Graph, exported: Exported) -> str:
    """Add the features (rows, n_features) of the inputs, which are called as the columns; return their name."""
    feature_map, missing = exported.feature_map, exported.missing
    numbers = [_add_number(graph, column, missing) for column in feature_map.numeric]
    parts = _add_linear(graph, feature_map, numbers, missing)
    for position, cycle in feature_map.circles:
        parts.append(add_circle(graph, cycle, numbers[position], np.nan if missing == DROP else 0.0))
    parts += [_add_indicators(graph, column, exported) for column in feature_map.categorical]
    features = graph.add("Concat", *parts, axis=1)
    return features if feature_map.metric is None else _add_metric(graph, feature_map.metric, features)


def _add_number(graph: Graph, column: NumericColumn, missing: str) -> str:
    """Add the column's value (rows,); if missing values are refused, one of them makes a node fail."""
    if missing != ERROR:
        return column.name
    is_missing = graph.add("Cast", graph.add("IsNaN", column.name), to=TensorProto.INT64)
    zeros = graph.add("Gather", np.zeros(1), is_missing, title=f"column {column.name!r} lacks a value")
    return graph.add("Add", column.name, zeros)


def _add_linear(graph: Graph, feature_map: FeatureMap, numbers: list[str], missing: str) -> list[str]:
    """Add the standardized values (rows, n_linear) of the numeric columns whose value is a feature, if any."""
    pairs = zip(feature_map.numeric, numbers, strict=True)
    columns = [graph.add("Unsqueeze", number, np.array([1])) for column, number in pairs if column.is_linear]
    if not columns:
        return []
    values, n = graph.add("Concat", *columns, axis=1), len(columns)
    if missing == IMPUTE:
        fills = np.array([column.fill for column in feature_map.linear])
        values = graph.add("Where", graph.add("IsNaN", values), fills, values)
    centred = graph.add("Sub", values, feature_map.centre[:n])
    scaled = graph.add("Div", centred, feature_map.scale[:n])
    spreads = np.array([column.spread for column in feature_map.linear])
    return [_add_compression(graph, scaled, spreads) if spreads.any() else scaled]


def _add_compression(graph: Graph, values: str, spreads: Floats) -> str:
    """Add asinh z / spread where there is a spread, and z elsewhere: there is no Asinh of double precision."""
    size = graph.add("Abs", values)
    root = graph.add("Sqrt", graph.add("Add", graph.add("Mul", size, size), np.ones(1)))
    logarithm = graph.add("Mul", graph.add("Sign", values), graph.add("Log", graph.add("Add", size, root)))
    compressed = graph.add("Div", logarithm, np.where(spreads > 0, spreads, 1.0))
    return graph.add("Where", spreads > 0, compressed, values)


def _add_indicators(graph: Graph, column: CategoricalColumn, exported: Exported) -> str:
    """Add the standardized indicators (rows, n_categories): a row of a table for each category."""
    n = len(column.categories)
    none, absent, refused = n, n + 1, n + 2  # the last one is no row of the table, so that the node fails
    filled = column.fill_indicator() if column.fill_indicator() >= 0 else none
    codes = {MISSING_TEXT: {ERROR: refused, IMPUTE: filled, DROP: absent}[exported.missing]}
    codes |= {category: code for code, category in enumerate(column.categories)}
    unknown = refused if exported.unseen == ERROR else none
    places = graph.add(
        "LabelEncoder",
        column.name,
        domain=ML,
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=unknown,
    )
    title = f"column {column.name!r} lacks a value, or has a category that the model does not know"
    return graph.add("Gather", _indicator_table(column), places, title=title)


def _indicator_table(column: CategoricalColumn) -> Floats:
    """Return the features of each category, of none of them, and of a row that has no prediction."""
    n = len(column.categories)
    table = np.vstack([np.eye(n), np.zeros((1, n)), np.full((1, n), np.nan)])
    return np.asarray((table - np.array(column.centre)) / np.array(column.scale))


def _add_metric(graph: Graph, metric: Metric, features: str) -> str:
    return graph.add("Mul" if metric.is_diagonal else "MatMul", features, metric.root)
