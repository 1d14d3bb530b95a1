"""Kernel expansions as nodes of an ONNX graph: f(x) = Σ β_i k(x_i, x) + b, and its variance.

The arrays of all cells of a model are stacked, each padded by basis vectors without coefficients; a model with one
dictionary has one cell. The nodes are the same for one fixed cell and for cells that the graph chooses.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.linalg import solve_triangular

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.cholesky import Cholesky
from ridgestream.pipeline.exports.onnx.formula import add_formula
from ridgestream.pipeline.exports.onnx.graph import ANY, Graph
from ridgestream.pipeline.kernels import SAFE_SQUARED_NORM, Kernel
from ridgestream.pipeline.models.predictor import ExpansionModel
from ridgestream.pipeline.models.uncertainty import Uncertainty

Pick = Callable[[str], str]
"""Adds an array of the cell that answers, by its key in `stack_cells`, and returns the name of its value."""

_COLUMNS = np.array([1])
"""The axis that a sum over the columns of a matrix takes."""


def stack_cells(models: Sequence[ExpansionModel], *, bars: bool) -> dict[str, Floats]:
    """Return the arrays of all cells by name, of shape (n_cells, …), with `bars` those of the variance, too.

    Raises InputError if there are to be some, and the models have no uncertainty.
    """
    n_basis = max(len(model.basis.vectors) for model in models)
    cells = [_arrays_of(model, n_basis, bars=bars) for model in models]
    return {name: np.stack([cell[name] for cell in cells]) for name in cells[0]}


def _arrays_of(model: ExpansionModel, n_basis: int, *, bars: bool) -> dict[str, Floats]:
    basis, (n, n_outputs), d = model.basis, model.coefficients.shape, model.basis.vectors.shape[1]
    m, origin = len(basis.vectors), basis.centre if basis.kernel.is_stationary else np.zeros(d)
    vectors = basis.vectors - origin
    return {
        "origin": origin,
        "vectors": _padded(vectors.T, d, n_basis),
        "norms": _padded(np.einsum("ij,ij->i", vectors, vectors), n_basis),
        "coefficients": _padded(model.coefficients[:m], n_basis, n_outputs),
        "bias": model.coefficients[-1] if n > m else np.zeros(n_outputs),
        **(_bars_of(model.known_uncertainty, m, n_basis) if bars else {}),
    }


def _bars_of(bars: Uncertainty, m: int, n_basis: int) -> dict[str, Floats]:
    """Return L⁻ᵀ of both factors, so that kᵀA⁻¹k = ‖kL⁻ᵀ‖²; the row of the constant function is apart."""
    gram, normal = _inverse(bars.gram), _inverse(bars.normal)
    n = len(normal)
    constant = normal[m] if n > m else np.zeros(n)
    return {
        "spanning": _padded(gram, n_basis, n_basis),
        "leverage": _padded(normal[:m], n_basis, n_basis + 1),
        "constant": _padded(constant, n_basis + 1),
        "penalty": np.array(bars.penalty),
    }


def _inverse(factor: Cholesky) -> Floats:
    """Return L⁻ᵀ."""
    return np.asarray(solve_triangular(factor.factor, np.eye(len(factor.factor)), lower=True).T)


def _padded(array: Floats, *shape: int) -> Floats:
    padded = np.zeros(shape)
    padded[tuple(slice(length) for length in array.shape)] = array
    return padded


def has_far_vectors(kernel: Kernel, stacks: Mapping[str, Floats]) -> bool:
    """Return whether a distance from a basis vector cannot be computed from products, as in `kernels`."""
    gamma = kernel.parameters().get("gamma", 1.0)
    return kernel.is_stationary and bool((gamma * stacks["norms"] > SAFE_SQUARED_NORM).any())


def add_expansion(graph: Graph, kernel: Kernel, pick: Pick, features: str, *, far: bool, bars: bool) -> list[str]:
    """Add f (rows, n_outputs) of rows of features, and with `bars` Var f / σ̂² (rows, 1); return their names."""
    rows = graph.add("Sub", features, pick("origin"))
    values = add_formula(graph, kernel, _add_measure(graph, kernel, pick, rows, far=far))
    outputs = graph.add("Add", graph.add("MatMul", values, pick("coefficients")), pick("bias"))
    return [outputs, _add_variance(graph, kernel, pick, rows, values)] if bars else [outputs]


def _add_measure(graph: Graph, kernel: Kernel, pick: Pick, rows: str, *, far: bool) -> str:
    """Add what the kernel measures between rows and basis vectors, shape (rows, n_basis)."""
    if far:
        return _add_differences(graph, rows, pick("vectors"))
    products = graph.add("MatMul", rows, pick("vectors"))
    if not kernel.is_stationary:
        return products
    norms = graph.add("Add", _add_squares(graph, rows), pick("norms"))
    return graph.add("Max", graph.add("Sub", norms, graph.add("Mul", products, 2.0)), 0.0)


def _add_differences(graph: Graph, rows: str, vectors: str) -> str:
    """Add ‖x − z‖² from differences, feature by feature: slower, and exact for rows that are far from the origin."""
    body = graph.body()
    sums, row_values, vector_values = (body.new_name("scanned") for _ in range(3))
    difference = body.add("Sub", body.add("Unsqueeze", row_values, _COLUMNS), vector_values)
    total = body.add("Add", sums, body.add("Mul", difference, difference))
    inner = body.close("squared_differences", dict.fromkeys((sums, row_values, vector_values), ANY), {total: ANY})
    zeros = graph.add("MatMul", rows, graph.add("Mul", vectors, 0.0))
    return graph.add("Scan", zeros, graph.add("Transpose", rows, perm=[1, 0]), vectors, body=inner, num_scan_inputs=2)


def _add_variance(graph: Graph, kernel: Kernel, pick: Pick, rows: str, values: str) -> str:
    """Add (δ + γ kᵀM⁻¹k) / γ, shape (rows, 1); see `Uncertainty`."""
    spanned = _add_squares(graph, graph.add("MatMul", values, pick("spanning")))
    half = graph.add("Add", graph.add("MatMul", values, pick("leverage")), pick("constant"))
    squares = _add_squares(graph, rows)
    own = add_formula(graph, kernel, graph.add("Mul", squares, 0.0) if kernel.is_stationary else squares)
    novelty = graph.add("Max", graph.add("Sub", own, spanned), 0.0)
    return graph.add("Add", graph.add("Div", novelty, pick("penalty")), _add_squares(graph, half))


def _add_squares(graph: Graph, rows: str) -> str:
    """Add the squared norm of each row, shape (rows, 1)."""
    return graph.add("ReduceSumSquare", rows, _COLUMNS)
