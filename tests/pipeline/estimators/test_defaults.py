"""What estimators with nothing set learn from rows that are few, or that want a width far from the first ones tried."""

import numpy as np
import pytest

from ridgestream import OnlineLSSVMRegressor


@pytest.mark.parametrize("n", [15, 30, 49])
def test_a_few_rows_of_a_line_are_enough(n: int) -> None:
    rng = np.random.default_rng(103)
    X = rng.normal(size=(n + 500, 3))
    y = 3 * X[:, 0] + 0.1 * rng.normal(size=len(X))
    assert OnlineLSSVMRegressor().fit(X[:n], y[:n]).score(X[n:], y[n:]) > 0.9


@pytest.mark.parametrize("periods", [20, pytest.param(40, marks=pytest.mark.thorough)])
def test_a_wave_of_many_periods_is_found(periods: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1500, 1))
    y = np.sin(2 * np.pi * periods * X[:, 0]) + 0.1 * rng.normal(size=len(X))
    assert OnlineLSSVMRegressor().fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.95


@pytest.mark.parametrize("sign", [1.0, pytest.param(-1.0, marks=pytest.mark.thorough)])
def test_amounts_are_learned_as_well_as_their_logarithms(sign: float) -> None:
    rng = np.random.default_rng(0)
    logarithms = rng.normal(size=(1800, 4))
    y = np.sin(2 * logarithms[:, 0]) + logarithms[:, 1] * logarithms[:, 2] + 0.1 * rng.normal(size=1800)
    amounts = sign * np.exp(2 * logarithms)
    assert OnlineLSSVMRegressor().fit(amounts[:800], y[:800]).score(amounts[800:], y[800:]) > 0.95
