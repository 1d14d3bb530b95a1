"""Studies give what was recorded, within what their repeats spread, and their processes have the values they say."""

import numpy as np
import pytest

from ridgestream.jobs.reproduction.data import DataFolder
from ridgestream.jobs.reproduction.jung_polani.processes import car_values, circle_values, drive
from ridgestream.jobs.reproduction.jung_polani.slides import CAR, CIRCLE, measure_dense
from ridgestream.jobs.reproduction.jung_polani.slides import measure_online as measure_online_lstd
from ridgestream.jobs.reproduction.registry import STUDIES
from ridgestream.jobs.reproduction.study import Bench


def test_values_of_the_circle_are_the_mean_of_walks() -> None:
    rng, n, steps = np.random.default_rng(0), 20_000, 60
    angles = 0.7 + np.cumsum(rng.normal(0.5, 0.3, (n, steps)), axis=1)
    returns = np.cos(0.7) + np.cos(angles) @ (0.8 ** np.arange(1, steps + 1))
    assert circle_values(np.array([0.7]), 0.8)[0] == pytest.approx(returns.mean(), abs=5 * returns.std() / n**0.5)


def test_values_of_cars_are_those_of_their_next_states_and_the_cost_of_a_step() -> None:
    states = np.column_stack([np.linspace(-1.2, 0.49, 50), np.linspace(-0.07, 0.07, 50)])
    after, out = drive(states)
    np.testing.assert_allclose(
        car_values(states, 0.9), -1 + 0.9 * np.where(out, 0.0, car_values(after, 0.9)), atol=1e-12
    )


def test_names_of_cells_are_unique_and_sources_are_given() -> None:
    for study in STUDIES.values():
        assert len({cell.name for cell in study.cells}) == len(study.cells)
        assert study.source.startswith(("Jung & Polani (2006)", "Cawley & Talbot (2002)", "Andelić et al. (2007)"))


@pytest.mark.thorough
def test_sinc_is_as_recorded_and_no_worse_than_the_paper() -> None:
    """Three permutations: MSE 3.1e-4 with 8 vectors, 4.1e-4 with 10 or 11, where the paper has 5.6e-4 to 9.1e-4."""
    bench, (ols, krls, _, online) = Bench(DataFolder(None), {}), STUDIES["sinc"].measurements
    (found,) = ols.measure(bench, 0)
    assert found.error == pytest.approx(3.1e-4, rel=0.1)
    assert found.vectors == 8
    for method in (krls, online):
        outcomes = [method.measure(bench, repeat)[0] for repeat in range(10, 13)]
        assert all(2.5e-4 < outcome.error < 6e-4 for outcome in outcomes)
        assert all(8 <= outcome.vectors <= 13 for outcome in outcomes)


@pytest.mark.thorough
def test_policy_evaluation_is_as_recorded() -> None:
    """Errors over the spread of the values: 0.034 for the dense solution on the circle, 0.17 for mountain cars."""
    assert measure_dense(CIRCLE, 0).error < 0.08
    assert measure_dense(CAR, 0).error < 0.25
    online = measure_online_lstd(CIRCLE, 16, 0)
    assert online.error < 0.08
    assert online.vectors <= 16
