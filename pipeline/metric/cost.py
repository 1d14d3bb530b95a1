"""What the judging of a pilot's models costs at most, counted before its first round: rows summed, systems solved."""

from dataclasses import dataclass

from ridgestream.pipeline.metric.contest import REGULARIZATIONS, KernelFamily
from ridgestream.pipeline.metric.learning import forms_of, stage_shapes
from ridgestream.pipeline.metric.settings import AUTO, STANDARDIZED, MetricName, MetricSettings
from ridgestream.pipeline.metric.split import JUDGES

AFTER_FIRST, EACH_ROUND = 5, 3
"""λ that a stage after the first one begins with, and that each round compares, unless the grid ends before."""


@dataclass(frozen=True)
class StageCost:
    """The work of one stage, all of whose rounds are kept."""

    rows: int
    """The rows of each pass."""
    n_basis: int
    """The vectors."""
    sums: int
    """The models whose products are summed over all rows."""
    rounds: int
    """The rounds, which have a pass for gradients."""
    comparisons: int
    """The passes that compare a round's model with the one before."""
    solutions: int
    """The systems of n_basis equations that are solved."""

    @property
    def values(self) -> int:
        """Kernel values per row in all passes; gradients take twice as many of the rows that do not judge.

        Comparisons take twice as many of those that do, fewer than half.
        """
        return self.n_basis * (self.sums + self.rounds + self.comparisons)

    @property
    def products(self) -> int:
        """Products summed per row in all passes."""
        return self.n_basis**2 * self.sums


def stage_costs(n_rows: int, family: KernelFamily, settings: MetricSettings, form: MetricName) -> list[StageCost]:
    """Return the cost of each stage of `learn_metric` with so many rows and this form of the metric.

    A grid that is widened costs more, and so does a narrower γ that is tried in the end.
    """
    costs: list[StageCost] = []
    learns = form != STANDARDIZED
    of_rounds = family.of_rounds() if learns else family
    for shape in stage_shapes(n_rows, settings, settings.rounds if learns else 0):
        first, near = len(of_rounds.first_grid()), len(of_rounds.around(1.0))
        begins, lambdas = (near, AFTER_FIRST) if costs else (first, len(REGULARIZATIONS))
        forms = forms_of(form, family.n_features, compares=shape.compares, is_weighed=False)
        tries_columns = form == AUTO and shape.compares and not costs
        columns, ends = first if tries_columns else 0, 0
        follows = shape.rounds * len(forms) * (near if shape.compares else 1)
        if shape.stride == 1 and family != of_rounds:
            ends = len(family.given)
        solved = len(JUDGES) * (begins * lambdas + follows * EACH_ROUND + (columns + ends) * len(REGULARIZATIONS))
        sums, comparisons = begins + follows + columns + ends, shape.rounds * len(forms) + tries_columns
        work = (sums, shape.rounds, comparisons, solved + sums)
        costs.append(StageCost(n_rows // shape.stride, shape.n_basis, *work))
    return costs
