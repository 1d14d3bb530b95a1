"""A kernel's formula as nodes of an ONNX graph: its NumPy functions, applied to a value of the graph, add nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ridgestream.pipeline.exports.onnx.graph import Graph
from ridgestream.pipeline.kernels import Kernel

OPERATORS: Mapping[np.ufunc, str] = MappingProxyType({
    np.add: "Add", np.subtract: "Sub", np.multiply: "Mul", np.divide: "Div", np.negative: "Neg", np.abs: "Abs",
    np.power: "Pow", np.exp: "Exp", np.log: "Log", np.sqrt: "Sqrt", np.maximum: "Max", np.minimum: "Min",
})  # fmt: skip
"""The operator of each function that a formula may use."""


@dataclass(frozen=True)
class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """A value of the graph that NumPy's functions take for an array."""

    graph: Graph
    """The graph."""
    name: str
    """The value's name."""

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:  # noqa: ANN401
        if method != "__call__" or options or function not in OPERATORS:
            return NotImplemented
        names = [each.name if isinstance(each, Traced) else np.float64(each) for each in inputs]
        return Traced(self.graph, self.graph.add(OPERATORS[function], *names))


def add_formula(graph: Graph, kernel: Kernel, measure: str) -> str:
    """Add the kernel's values of what it measures, ‖x − z‖² or xᵀz."""
    value: Traced = kernel.formula(Traced(graph, measure), *map(float, kernel.parameters().values()))
    return value.name
