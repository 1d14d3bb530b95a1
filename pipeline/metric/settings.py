"""The settings of a learned metric."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge

from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.settings import Count

MetricName = Literal["standardized", "diagonal", "full", "auto"]
"""How distances are measured: all standardized features alike, weighed, combined by a matrix, or one of these two."""

STANDARDIZED: MetricName = "standardized"
"""Between standardized features, all alike."""

AUTO: MetricName = "auto"
"""By a matrix, or weighed, whichever the rows left out prefer in each round."""

FULL_FEATURES = 256
"""With "auto", the metric may be a full matrix for at most so many features, and is diagonal for more."""


ROWS_PER_VECTOR = 4
"""A pilot has at least so many rows for each vector: more vectors cost time, and teach nothing."""


@dataclass(frozen=True)
class MetricSettings:
    """How a metric is learned."""

    rows: Count = 50_000
    """The first rows of the ledger, as many as these, are the pilot from which the metric is learned."""
    basis: Count = 2_000
    """The number of basis vectors of the pilot's models, drawn from its rows; at most one for four rows."""
    rounds: Annotated[int, Ge(1)] = 8
    """The most rounds; the last quarter of them use all rows and vectors of the pilot, earlier ones fewer."""
    random_seed: Annotated[int, Ge(0)] = 0
    """The seed with which vectors are drawn and rows are left out."""

    def __post_init__(self) -> None:
        check_bounds(self)

    def bounded_basis(self, n_rows: int) -> int:
        """Return the number of vectors of a pilot with this many rows."""
        return max(1, min(self.basis, n_rows // ROWS_PER_VECTOR))


@dataclass(frozen=True)
class MetricRequest:
    """A metric to be learned at a model's first training."""

    name: MetricName
    """diagonal, full, or auto."""
    options: MetricSettings
    """How it is learned."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the record keeps."""
        return {"metric": self.name, "metric_options": asdict(self.options)}

    @classmethod
    def of(cls, parameters: dict[str, Any]) -> Self | None:
        """Return the metric of a record's parameters; None for that of the standardized features."""
        if "metric" not in parameters:
            return None
        return cls(parameters["metric"], MetricSettings(**parameters["metric_options"]))
