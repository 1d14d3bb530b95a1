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


@dataclass(frozen=True)
class MetricSettings:
    """How a metric is learned."""

    rows: Count = 50_000
    """The first partitions with this many rows are the pilot from which the metric is learned."""
    basis: Count = 2_000
    """The number of basis vectors of the pilot's models, drawn from its rows."""
    rounds: Annotated[int, Ge(1)] = 8
    """The most rounds; the last quarter of them use all rows and vectors of the pilot, earlier ones fewer."""
    random_seed: Annotated[int, Ge(0)] = 0
    """The seed with which vectors are drawn and rows are left out."""

    def __post_init__(self) -> None:
        check_bounds(self)
