"""The section `[model.kernel]` of a job file."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator

from ridgestream.jobs.config.section import Count, Grid, NotNegative, Positive, Section
from ridgestream.pipeline.kernels import KERNELS

if TYPE_CHECKING:
    KernelName = str
else:
    KernelName = Literal[tuple(KERNELS)]


class KernelSection(Section):
    """The kernel."""

    name: KernelName = "rbf"
    """The kernel's name."""
    gamma: Positive | Grid | None = None
    """Width of rbf, scale of polynomial; 1/n_features if absent. Batch methods may compare several."""
    degree: Count | None = None
    """The degree of polynomial."""
    coef0: NotNegative | None = None
    """The constant term of polynomial."""

    @model_validator(mode="after")
    def _check_taken(self) -> Self:
        kernel: Any = KERNELS[self.name]
        taken = {field.name for field in fields(kernel)}
        given = {name for name in type(self).model_fields if name != "name" and getattr(self, name) is not None}
        if given - taken:
            raise ValueError(f"the {self.name} kernel takes no {', '.join(sorted(given - taken))}")
        return self

    def parameters(self) -> tuple[dict[str, float], ...]:
        """Return the parameters, as far as given, of every kernel to compare."""
        given = {name: value for name, value in self.model_dump(exclude={"name"}).items() if value is not None}
        gammas = given.get("gamma")
        return tuple(given | {"gamma": gamma} for gamma in gammas) if isinstance(gammas, tuple) else (given,)
