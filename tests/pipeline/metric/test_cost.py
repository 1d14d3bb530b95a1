"""What a pilot costs, counted before it and while it runs."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.jobs.recording import Notes

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.kernels import RBF, Kernel
from ridgestream.pipeline.metric import candidate, learning
from ridgestream.pipeline.metric.comparison import Differences
from ridgestream.pipeline.metric.contest import REGULARIZATIONS, KernelFamily
from ridgestream.pipeline.metric.cost import stage_costs
from ridgestream.pipeline.metric.judged_sums import JudgedSumming
from ridgestream.pipeline.metric.learning import learn_metric
from ridgestream.pipeline.metric.settings import MetricName, MetricSettings
from ridgestream.pipeline.sums.row_set import ArrayRows

N, D = 800, 2
SETTINGS = MetricSettings(rows=N, basis=40, rounds=5)


def rbf(gamma: float | None) -> Kernel:
    return RBF(gamma or 0.5)


class Counted(ArrayRows):
    """Rows that count what is summed over them."""

    sums: Counter[int]
    passes: Counter[str]

    def reduce(self, function: Callable[..., Any], argument: Any, *others: Any, **more: Any) -> Any:
        self.passes[function.__name__] += 1
        if isinstance(argument, JudgedSumming):
            self.sums[len(argument.bases[0].vectors)] += len(argument.bases)
        return super().reduce(function, argument, *others, **more)


@pytest.mark.parametrize("family", [KernelFamily(rbf, D), KernelFamily(rbf, D, chooses=False, given=(0.3, 0.5))])
@pytest.mark.parametrize("form", ["standardized", "full", "auto"])
def test_a_pilot_all_of_whose_rounds_are_kept_costs_what_was_counted(
    family: KernelFamily, form: MetricName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "FEW_ROWS", 300)
    monkeypatch.setattr(Differences, "is_improvement", True)
    monkeypatch.setattr(KernelFamily, "neighbour", lambda *_: None)
    monkeypatch.setattr(learning, "near_regularizations", lambda _, steps: REGULARIZATIONS[: 2 * steps + 1])
    solved, solve = Counter[int](), candidate._fit

    def fit(*arguments: Any) -> Floats:
        coefficients = solve(*arguments)
        solved[len(coefficients)] += 1
        return coefficients

    monkeypatch.setattr(candidate, "_fit", fit)
    u = np.random.default_rng(0).normal(size=(N, D))
    rows = Counted(u, np.sin(u[:, 0]))
    object.__setattr__(rows, "sums", Counter())
    object.__setattr__(rows, "passes", Counter())
    learn_metric(rows, family, SETTINGS, Notes(), form=form)
    costs = stage_costs(N, family, SETTINGS, form)
    assert {cost.n_basis: cost.sums for cost in costs} == rows.sums
    assert {cost.n_basis: cost.solutions for cost in costs} == solved
    assert sum(cost.rounds for cost in costs) == rows.passes["sum_gradients"]
    assert sum(cost.comparisons for cost in costs) == rows.passes["compare_models"]
    assert [cost.rows for cost in costs] == [N // 2, N]
