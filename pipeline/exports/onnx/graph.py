"""An ONNX graph under construction: nodes that are added one after the other, and constants."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Value = str | float | npt.NDArray[Any] | np.generic
"""The name of a value in the graph, or a constant."""

Kind = tuple[npt.DTypeLike, Sequence[int | str] | None]
"""The type of a value and its shape, in which text is any length; None for any shape."""

ROWS = "rows"
"""The length of a value that has an entry for each row."""

ANY: Kind = (np.float64, None)
"""The kind of most values inside."""

ML = "ai.onnx.ml"
"""The domain of the operators for machine learning."""


@dataclass(frozen=True)
class Graph:
    """Nodes and constants; the body of a loop has nodes of its own, and may use all values around it."""

    constants: list[TensorProto] = field(default_factory=list)
    """The constants of the graph and of all bodies in it."""
    numbers: Iterator[int] = field(default_factory=count)
    """The numbers that make names distinct, here and in all bodies."""
    nodes: list[NodeProto] = field(default_factory=list)
    """The nodes in the order of their computation."""

    def body(self) -> Self:
        """Return the empty graph of a loop's body."""
        return type(self)(self.constants, self.numbers)

    def add(self, kind: str, *inputs: Value, outputs: Sequence[str] = (), title: str = "", **attributes: Any) -> str:  # noqa: ANN401
        """Add a node and return the name of its first output; a runtime reports `title` if the node fails."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        outputs = outputs or [self.new_name(kind)]
        self.nodes.append(helper.make_node(kind, names, outputs, title or outputs[0], **attributes))
        return outputs[0]

    def constant(self, values: Value) -> str:
        """Add a constant and return its name."""
        name = self.new_name("constant")
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def close(self, name: str, inputs: Mapping[str, Kind], outputs: Mapping[str, Kind], **constants: Any) -> GraphProto:  # noqa: ANN401
        """Return the finished graph; of a body, its constants are those of the graph around it."""
        ends = [[_value_info(*item) for item in values.items()] for values in (inputs, outputs)]
        return helper.make_graph(self.nodes, name, *ends, **constants)

    def new_name(self, kind: str) -> str:
        """Return a name that nothing else in the graph has."""
        return f"{kind}:{next(self.numbers)}"


def _value_info(name: str, kind: Kind) -> ValueInfoProto:
    dtype, shape = kind
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
