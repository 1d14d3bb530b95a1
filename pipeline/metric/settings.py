"""The settings of a learned metric."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.settings import Count

MetricName = Literal["standardized", "diagonal", "full", "auto"]
"""How distances are measured: all standardized features alike, weighed, combined by a matrix, or one of these two."""

STANDARDIZED: MetricName = "standardized"
"""Between standardized features, all alike."""

AUTO: MetricName = "auto"
"""By a matrix, or weighed where there are many features."""


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
