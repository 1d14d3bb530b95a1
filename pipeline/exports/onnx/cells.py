"""A model's expansion, or those of its cells, as nodes of an ONNX graph: a loop over the cells that have rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.exports.export_errors import NotExportable
from ridgestream.pipeline.exports.onnx.expansions import Pick, add_expansion, has_far_vectors, stack_cells
from ridgestream.pipeline.exports.onnx.graph import ANY, Graph, Kind
from ridgestream.pipeline.models.experts_model import ExpertsModel
from ridgestream.pipeline.models.predictor import ExpansionModel, Model


@dataclass(frozen=True)
class Cells:
    """The expansions of a model's cells."""

    experts: Sequence[ExpansionModel]
    """The expansion of each cell; they share the kernel."""
    stacks: dict[str, Floats]
    """Their arrays."""
    bars: bool
    """Whether variances are asked for."""

    @classmethod
    def of(cls, model: Model, *, bars: bool) -> Self:
        """Return the cells of a model; a model with one dictionary has one. Raises NotExportable without any."""
        experts = model.experts if isinstance(model, ExpertsModel) else (cast("ExpansionModel", model),)
        if not experts:
            raise NotExportable("the model has learned no rows yet, so there is nothing to export")
        return cls(experts, stack_cells(experts, bars=bars), bars)

    @property
    def widths(self) -> list[int]:
        """The number of columns of f, and of the variance."""
        return [self.stacks["bias"].shape[1], *([1] if self.bars else [])]

    def add(self, graph: Graph, pick: Pick, features: str) -> list[str]:
        """Add f and its variance of the cell that is picked; return their names."""
        kernel = self.experts[0].basis.kernel
        far = has_far_vectors(kernel, self.stacks)
        return add_expansion(graph, kernel, pick, features, far=far, bars=self.bars)


def add_moments(graph: Graph, model: Model, features: str, *, bars: bool) -> list[str]:
    """Add f (rows, n_outputs) in the learner's units, and with `bars` Var f / σ̂² (rows, 1); return their names."""
    cells = Cells.of(model, bars=bars)
    if isinstance(model, ExpertsModel):
        return _add_loop(graph, cells, features, _add_nearest(graph, model, features))
    return cells.add(graph, lambda name: graph.constant(cells.stacks[name][0]), features)


def _add_nearest(graph: Graph, model: ExpertsModel, features: str) -> str:
    """Add the number (rows,) among the experts of the one whose centre is nearest."""
    centres = model.cells.centres[model.answering]
    products = graph.add("MatMul", features, np.ascontiguousarray(centres.T))
    scores = graph.add("Sub", products, 0.5 * np.einsum("ij,ij->i", centres, centres))
    return graph.add("ArgMax", scores, axis=1, keepdims=0)


def _add_loop(graph: Graph, cells: Cells, features: str, nearest: str) -> list[str]:
    """Add a loop over the cells that have rows, in which each writes the moments of its own rows."""
    constants = {name: graph.constant(stack) for name, stack in cells.stacks.items()}
    present, body = graph.add("Unique", nearest), graph.body()
    turn, going_on = body.new_name("turn"), body.new_name("going_on")
    before = [body.new_name("before") for _ in cells.widths]
    cell = body.add("Gather", present, turn)
    own = body.add("NonZero", body.add("Equal", nearest, cell))
    rows = body.add("Gather", features, body.add("Squeeze", own, np.array([0])))
    moments = cells.add(body, lambda name: body.add("Gather", constants[name], cell), rows)
    places = body.add("Transpose", own, perm=[1, 0])
    after = [body.add("ScatterND", state, places, part) for state, part in zip(before, moments, strict=True)]
    inputs: dict[str, Kind] = {turn: (np.int64, []), going_on: (np.bool_, []), **dict.fromkeys(before, ANY)}
    results: dict[str, Kind] = {body.add("Identity", going_on): (np.bool_, []), **dict.fromkeys(after, ANY)}
    inner = body.close("cell", inputs, results)
    n_features, names = cells.experts[0].feature_map.n_features, [graph.new_name("moments") for _ in after]
    zeros = [graph.add("MatMul", features, np.zeros((n_features, width))) for width in cells.widths]
    graph.add("Loop", graph.add("Size", present), "", *zeros, outputs=names, body=inner)
    return names
