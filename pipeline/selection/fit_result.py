"""The result of a batch method: a dictionary with coefficients, their sums, and the path of its selection."""

from dataclasses import dataclass, field

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import FoldedStatistics


@dataclass(frozen=True)
class Path:
    """The models that a method looked at on its way, one entry each."""

    criterion: str
    """What was measured: `fold_error` (mean squared error on rows of the fold left out), `gcv`,
    `reconstruction_error`, `largest_residual` or the like."""
    n_basis: Integers
    """The size of each model's dictionary, shape (n_models,)."""
    regularization: Floats
    """Its λ per row, shape (n_models,)."""
    value: Floats
    """The criterion, the smaller the better, shape (n_models,)."""
    width: Integers
    """Which of the kernels that were tried it has, from zero, shape (n_models,)."""
    chosen: int
    """The entry that was made into the model."""


@dataclass(frozen=True)
class Fitted:
    """A model over a dictionary that a batch method chose."""

    basis: Basis
    """The dictionary, in the order in which it was chosen, and the kernel; with the constant function for a bias."""
    places: Integers
    """Where each vector is among the rows, −1 for one that is no row, shape (n_basis,)."""
    coefficients: Floats
    """β, the bias last if there is one, shape (n_functions, n_targets)."""
    regularization: float
    """λ per row."""
    sums: FoldedStatistics
    """The sums of the basis over all rows."""
    path: Path | None = None
    """How it was chosen, None where there was nothing to choose."""
    notes: dict[str, float] = field(default_factory=dict)
    """Further numbers to report, by name: passes, jitter, condition."""
    own: dict[str, Floats | Integers] = field(default_factory=dict)
    """Arrays of the method's own, by name, that its coefficients need beside the sums when rows are added."""
