"""The settings of the online LS-SVM: chosen before the first row, valid for the whole stream."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

from annotated_types import Ge, Gt

from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.settings import Internal
from ridgestream.pipeline.kernels import Kernel, check_kernel, make_kernel
from ridgestream.pipeline.online.schedule import selection_penalty
from ridgestream.pipeline.online.selection_rule import SELECTIONS, Selection, SelectionRule

CELL_THRESHOLDS = {"novelty_threshold": 1e-3, "usefulness_threshold": 1e-5}
"""The thresholds of a model of local experts unless it states others: in its small part of space, a cell's kernel is
wide, and few rows lower the cost by little each.
"""

_RARE = ("stream_rows", "unpenalized")
"""Settings that a record has only if they are set."""


@dataclass(frozen=True)
class OnlineSettings:
    """Settings of the online LS-SVM; raises InputError for a value outside its bounds."""

    kernel: Kernel
    """The kernel k(x, z)."""
    regularization: Annotated[float, Gt(0)] = 1e-5
    """λ per row: after n rows (or a sum of weights n) the coefficients minimize Σ w(y − f)² + λn βᵀKβ."""
    max_basis: Annotated[int, Ge(1)] | None = 500
    """Largest number of basis vectors; with None the dictionary grows as far as memory allows."""
    novelty_threshold: Annotated[float, Ge(0)] = 1e-2
    """TOL1, in units of k(x, x): a row is a candidate only if its novelty, k* − kᵀK⁻¹k, exceeds this.
    "auto" is 0.01, and 0.001 in cells."""
    usefulness_threshold: Annotated[float, Ge(0)] = 1e-4
    """TOL2, in squared target units: a candidate is taken only if novelty times reduction of the cost exceeds this.
    "auto" is 1e-4, and 1e-5 in cells."""
    selection: Selection = "supervised"
    """Which rows enter the dictionary: novel and useful ones, novel ones, or none because the dictionary is given."""
    stream_rows: Annotated[int, Ge(1)] | None = None
    """The rows t of the whole stream: γ is λt from the first row on, and stays so, λt over the number of cells in each;
    without it, γ is λ for each row learned so far."""
    unpenalized: Annotated[bool, Internal()] = False
    """Whether the published coefficients have no penalty, which needs selection = "novelty"."""

    def __post_init__(self) -> None:
        check_kernel(self.kernel)
        check_bounds(self)
        if self.unpenalized and self.selection != "novelty":
            raise InputError(f"unpenalized coefficients need selection 'novelty', it is {self.selection!r}")

    @property
    def rule(self) -> SelectionRule:
        """The selection rule."""
        return SELECTIONS[self.selection]

    def selection_penalty(self, weight: float) -> float:
        """Return γ with which rows are selected: λ·2^⌊log₂ n⌋ for the weight n seen, or λt for a stream of t rows."""
        if self.stream_rows is not None:
            return self.regularization * self.stream_rows
        return selection_penalty(self.regularization, weight)

    def published_regularization(self, weight: float) -> float:
        """Return γ/n of the published coefficients, n the weight seen: λ, or λt/n for a stream of t rows, or 0."""
        if self.unpenalized:
            return 0.0
        factor = self.stream_rows / weight if self.stream_rows and weight else 1.0
        return self.regularization * factor

    def as_dict(self) -> dict[str, Any]:
        """Return numbers and strings, the kernel as its name and parameters; rare ones only if they are set."""
        values = {name: value for name, value in asdict(self).items() if value or name not in _RARE}
        return {**values, "kernel": {"name": self.kernel.name, **self.kernel.parameters()}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the settings that `as_dict` was called on; what is absent has its default."""
        kernel = dict(values["kernel"])
        name = kernel.pop("name")
        return cls(**{**values, "kernel": make_kernel(name, kernel, n_features=1)})
