"""The settings of the online LS-SVM: chosen before the first row, valid for the whole stream."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

from annotated_types import Ge, Gt

from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.kernels import Kernel, check_kernel, make_kernel
from ridgestream.pipeline.online.selection_rule import SELECTIONS, Selection, SelectionRule


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
    """TOL1, in units of k(x, x): a row is a candidate only if its novelty, k* − kᵀK⁻¹k, exceeds this."""
    usefulness_threshold: Annotated[float, Ge(0)] = 1e-4
    """TOL2, in squared target units: a candidate is taken only if novelty times reduction of the cost exceeds this."""
    selection: Selection = "supervised"
    """Which rows enter the dictionary: novel and useful ones, novel ones, or none because the dictionary is given."""

    def __post_init__(self) -> None:
        check_kernel(self.kernel)
        check_bounds(self)

    @property
    def rule(self) -> SelectionRule:
        """The selection rule."""
        return SELECTIONS[self.selection]

    def as_dict(self) -> dict[str, Any]:
        """Return numbers and strings, the kernel as its name and parameters."""
        return {**asdict(self), "kernel": {"name": self.kernel.name, **self.kernel.parameters()}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the settings that `as_dict` was called on; `selection` may be absent, as in old records."""
        kernel = dict(values["kernel"])
        name = kernel.pop("name")
        return cls(**{**values, "kernel": make_kernel(name, kernel, n_features=1)})
