"""The cost model of the benchmark of local experts."""

from itertools import product

import pytest
from benchmarks.scale import FITTED, Load, Point, fit, forecast, predict, residuals
from support.data.forest import N_FEATURES

COSTS = {
    "routing_us": {"row": 0.05, "cells_features": 0.001},
    "learning_us": {
        "row": 2.0,
        "update": 0.0005,
        "changed_row": 20.0,
        "change": 0.0003,
        "visit": 900.0,
        "refresh": 0.001,
    },
    "peak_bytes": {"process": 3e8, "cell_matrix": 60.0},
}


def point(cells: int, workers: int, basis: int, since: int, rows: int) -> Point:
    vectors = 0.8 * basis
    state = round(8 * cells * (vectors**2 + vectors * (N_FEATURES + 4)))
    load = Load.of(cells, vectors, workers, (since, rows))
    routing, learning, peak = (predict(COSTS, name, load) for name in FITTED)
    return Point(rows, cells, workers, basis, routing, learning, peak, state, 0, since)


def test_the_model_that_made_the_points_is_found_and_says_what_limits() -> None:
    points = [
        point(cells, workers, basis, since, rows)
        for cells, workers, basis in product((1, 30, 900), (1, 2, 4), (40, 90, 200))
        for since, rows in ((0, 10**5), (10**5, 10**6))
    ]
    model = fit(points)
    for name, terms in COSTS.items():
        assert model[name] == pytest.approx(terms, rel=1e-3)
    assert all(each["deviation"] == pytest.approx(1, rel=1e-3) for each in residuals(model, points).values())
    few, many = (forecast(model, 1e9, 1000, 200, workers, decode=3.0)["ways"] for workers in (1, 100))
    assert few["every worker reads all rows"]["limit"] == "learning"
    assert many["every worker reads all rows"]["limit"] == "routing"
    assert many["every worker reads all rows"]["hours"] > 10 * many["rows are sent once"]["hours"]
    assert few["rows are sent once"]["hours"] == pytest.approx(100 * many["rows are sent once"]["hours"], rel=1e-9)
