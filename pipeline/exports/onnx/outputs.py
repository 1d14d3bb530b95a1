"""The outputs of an ONNX file: predictions, scores, probabilities and standard deviations."""

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.calibration.probabilities import Probabilities
from ridgestream.pipeline.exports.exported import Exported
from ridgestream.pipeline.exports.onnx.graph import ROWS, Graph, Kind
from ridgestream.pipeline.features.one_vs_rest import Label

_NO_LABEL: Mapping[type, Label] = {bool: False, int: int(np.iinfo(np.int64).min), float: float("nan"), str: ""}
"""The label of a row without a prediction, whose scores are NaN, by the type of the classes."""


def add_outputs(graph: Graph, exported: Exported, moments: Sequence[str]) -> dict[str, Kind]:
    """Add all outputs that the model has, and return their types by name."""
    outputs, *variance = moments
    kinds = _add_classes(graph, exported, outputs) if exported.classes else _add_numbers(graph, exported, outputs)
    if variance:
        kinds |= _add_deviations(graph, exported, variance[0])
    if exported.model.probabilities is not None:
        kinds["probabilities"] = _kind(len(exported.classes))
        _add_probabilities(graph, exported.model.probabilities, outputs)
    return kinds


def _kind(n_columns: int) -> Kind:
    return np.float64, [ROWS, n_columns]


def _add_numbers(graph: Graph, exported: Exported, outputs: str) -> dict[str, Kind]:
    target = exported.feature_map.target
    scaled = graph.add("Mul", outputs, np.array(target.scale))
    return _add_columns(graph, "prediction", graph.add("Add", scaled, np.array(target.centre)), target.n_outputs)


def _add_columns(graph: Graph, name: str, values: str, n_columns: int) -> dict[str, Kind]:
    """Add an output (rows, n_columns), or of a single column (rows,)."""
    if n_columns == 1:
        graph.add("Squeeze", values, np.array([1]), outputs=[name])
        return {name: (np.float64, [ROWS])}
    graph.add("Identity", values, outputs=[name])
    return {name: _kind(n_columns)}


def _add_classes(graph: Graph, exported: Exported, outputs: str) -> dict[str, Kind]:
    """Add the score of each class and the label of the largest one, the first of several."""
    classes = exported.classes
    parts = [graph.add("Neg", outputs), outputs] if len(classes) == 2 else [outputs]
    scores = graph.add("Concat", *parts, axis=1, outputs=["scores"])
    labels = np.array([*classes, _NO_LABEL[type(classes[0])]])
    is_absent = graph.add("IsNaN", graph.add("ReduceMax", scores, np.array([1]), keepdims=0))
    winners = graph.add("ArgMax", scores, axis=1, keepdims=0)
    places = graph.add("Where", is_absent, len(classes), winners)
    graph.add("Gather", labels.astype(object) if labels.dtype.kind == "U" else labels, places, outputs=["prediction"])
    return {"prediction": (labels.dtype, [ROWS]), "scores": _kind(len(classes))}


def _add_deviations(graph: Graph, exported: Exported, variance: str) -> dict[str, Kind]:
    """Add the standard deviations of f and of a new observation, for each target or class."""
    target, noise = exported.feature_map.target, exported.model.noise_variance
    of_f = graph.add("Mul", variance, noise[np.newaxis])
    kinds: dict[str, Kind] = {}
    for name, values in (("std", of_f), ("std_observed", graph.add("Add", of_f, noise))):
        scaled = graph.add("Mul", graph.add("Sqrt", values), np.array(target.scale))
        if len(exported.classes) == 2:
            scaled = graph.add("Concat", scaled, scaled, axis=1)
        kinds |= _add_columns(graph, name, scaled, len(exported.classes) or target.n_outputs)
    return kinds


def _add_probabilities(graph: Graph, probabilities: Probabilities, outputs: str) -> None:
    """Add the probability of each class: linear between the bins of its score, as `np.interp`."""
    starts, values, slopes = _segments_of(probabilities)
    n_outputs, n_segments = starts.shape
    reached = graph.add("GreaterOrEqual", graph.add("Unsqueeze", outputs, np.array([2])), probabilities.scores)
    counts = graph.add("ReduceSum", graph.add("Cast", reached, to=TensorProto.INT64), np.array([2]), keepdims=0)
    places = graph.add("Add", counts, n_segments * np.arange(n_outputs))
    start, value, slope = (graph.add("Gather", table.ravel(), places) for table in (starts, values, slopes))
    curves = graph.add("Add", graph.add("Mul", slope, graph.add("Sub", outputs, start)), value)
    if n_outputs == 1:
        graph.add("Concat", graph.add("Sub", 1.0, curves), curves, axis=1, outputs=["probabilities"])
    else:
        graph.add("Div", curves, graph.add("ReduceSum", curves, np.array([1])), outputs=["probabilities"])


def _segments_of(probabilities: Probabilities) -> tuple[Floats, Floats, Floats]:
    """Return where each linear segment starts, its value there and its slope, each (n_outputs, n_bins + 1).

    The first segment is left of all bins, the last one right of them; both are flat.
    """
    scores, values = probabilities.scores, probabilities.values
    widths, rises = np.diff(scores, axis=1), np.diff(values, axis=1)
    slopes = np.divide(rises, widths, out=np.zeros_like(rises), where=widths > 0)
    first = np.hstack([scores[:, :1], scores]), np.hstack([values[:, :1], values])
    return *first, np.pad(slopes, ((0, 0), (1, 1)))
