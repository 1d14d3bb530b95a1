"""The cost model of the benchmark of local experts."""

import pytest
from benchmarks.scale import FITTED, Point, fit, forecast

COSTS = {
    "routing_us": {"cells_features": 0.001},
    "learning_us": {"row": 2.0, "basis_features": 0.002, "basis_squared": 0.0005, "visit": 900.0, "refresh": 0.001},
    "peak_bytes": {"process": 3e8, "cell_matrix": 60.0},
}


def cost(name: str, cells: int, workers: int, basis: int) -> float:
    terms, names = FITTED[name]
    return sum(COSTS[name][term] * value for term, value in zip(names, terms(cells, basis, workers), strict=True))


def point(cells: int, workers: int, basis: int) -> Point:
    routing, learning, peak = (cost(name, cells, workers, basis) for name in FITTED)
    return Point(10**6, cells, workers, basis, routing, learning, peak)


def test_the_model_that_made_the_points_is_found_and_says_what_limits() -> None:
    sizes, numbers = (40, 90, 200), (1, 2, 4)
    points = [point(cells, workers, basis) for cells in (1, 30, 900) for basis in sizes for workers in numbers]
    model = fit(points)
    for name, terms in COSTS.items():
        assert model[name] == pytest.approx(terms, rel=1e-3)
    few, many = (forecast(model, 1e9, 1000, 200, workers, decode=3.0)["ways"] for workers in (1, 100))
    assert few["every worker reads all rows"]["limit"] == "learning"
    assert many["every worker reads all rows"]["limit"] == "routing"
    assert many["every worker reads all rows"]["hours"] > 10 * many["rows are sent once"]["hours"]
    assert few["rows are sent once"]["hours"] == pytest.approx(100 * many["rows are sent once"]["hours"], rel=1e-9)
