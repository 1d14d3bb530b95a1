"""A fast part of the studies gives what was recorded, within what repeats spread; sets of rows are drawn here."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure

from ridgestream.jobs.reproduction.andelic.classification import Benchmark, choose, measure
from ridgestream.jobs.reproduction.data import DataFolder
from ridgestream.jobs.reproduction.jung_polani.forest import measure_chosen, measure_ols, measure_online
from ridgestream.jobs.reproduction.registry import STUDIES
from ridgestream.jobs.reproduction.study import Bench, Outcome, Published

NOTHING = Bench(DataFolder(None), {})


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Sets of rows with the names and sizes of the papers': an impulse like the motorcycle's, and five features."""
    folder, rng = tmp_path_factory.mktemp("sets"), np.random.default_rng(0)
    time = np.linspace(0, 60, 133)
    pushed = -120 * np.exp(-(((time - 22) / 6) ** 2)) + 60 * np.exp(-(((time - 33) / 5) ** 2))
    write(folder, "mcycle", {"times": time, "target": pushed + rng.normal(0, 20, 133)})
    columns = {f"x{i}": rng.normal(size=506) for i in range(5)}
    write(folder, "boston", {**columns, "target": np.sin(columns["x0"]) + columns["x1"] ** 2 + rng.normal(0, 0.1, 506)})
    return Bench(DataFolder(folder), {"gamma of boston": 0.1, "gamma, 50 rows": 0.08, "gamma, 100 rows": 0.08})


def write(folder: Path, name: str, columns: dict[str, np.ndarray]) -> None:
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def measured(study: str, bench: Bench, only: str) -> dict[str, Outcome]:
    """Return the first repeat of every cell whose name has this text."""
    found: dict[str, Outcome] = {}
    for measurement in STUDIES[study].measurements:
        if only in measurement.cells[0].name:
            names = [cell.name for cell in measurement.cells]
            found |= dict(zip(names, measurement.measure(bench, 0), strict=True))
    return found


@pytest.mark.thorough
def test_isls_svm_is_level_where_sls_svm_has_lost(bench: Bench) -> None:
    found = measured("isls", bench, "mcycle")
    assert found["mcycle: ISLS-SVM, 9 vectors"].error < 1.1 * found["mcycle: ISLS-SVM, 133 vectors"].error
    assert found["mcycle: ISLS-SVM, 9 vectors"].error < found["mcycle: SLS-SVM, 9 vectors"].error


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_few_candidates_find_nearly_as_good_a_basis_and_more_rows_that_judge_a_better_one(bench: Bench) -> None:
    found = {name: outcome.error for name, outcome in measured("efvs", bench, "").items()}
    assert found["ρ = ∞, ν = ∞"] < found["ρ = 59, ν = ∞"] < 1.1 * found["ρ = ∞, ν = ∞"]
    assert found["ρ = 59, ν = 200"] < found["ρ = 59, ν = 59"] < found["ρ = 59, ν = 10"]
    figure, outcomes = Figure(), {name: [outcome] for name, outcome in measured("efvs", bench, "").items()}
    assert STUDIES["efvs"].draw is not None
    STUDIES["efvs"].draw(figure, outcomes)
    assert len(figure.axes) == 4


@pytest.mark.thorough
def test_orols_is_as_recorded_on_the_sinc(bench: Bench) -> None:
    """.034 with 6 vectors where λ and size have the least GCV, .035 with 15 as printed."""
    found = measured("orols-sinc", bench, "n = 50")
    assert found["n = 50, noise 0.1, least GCV"].error == pytest.approx(0.0342, rel=0.05)
    assert found["n = 50, noise 0.1, λ by (30) until stationary"].error == pytest.approx(0.0352, rel=0.05)
    assert measured("orols-sinc", bench, "n = 400")["n = 400, noise 0.1 (Figure 2)"].error < 0.03


@pytest.mark.thorough
def test_orols_takes_the_width_of_fewest_errors_and_tells_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    corner = (X[:, 0] > 0).astype(int) + 2 * (X[:, 1] > 0)
    write(tmp_path, "corners", {"a": X[:, 0], "b": X[:, 1], "target": corner})
    corners = Benchmark("corners", 300, (1e-4, 1.0), Published(1.0))
    assert choose(corners, DataFolder(tmp_path)) == 1.0
    (outcome,) = measure(corners, Bench(DataFolder(tmp_path), {"gamma of corners": 1.0}), 0)
    assert outcome.error < 12
    assert 0 < outcome.vectors < 50


@pytest.mark.slow
def test_forest_with_10_000_rows_is_as_recorded() -> None:
    """With the paper's settings, and no worse than its mean by more than two standard deviations."""
    ols = measure_ols(10_000, NOTHING, 1)
    assert [outcome.error for outcome in ols] == pytest.approx([22.6, 20.8, 20.1], abs=0.5)
    (online,) = measure_online(10_000, 300, NOTHING, 1)
    assert online.error < 22.33 + 2 * 0.51
    assert online.better["refit"] < online.error
    (chosen,) = measure_chosen(10_000, 300, "standardized", NOTHING, 1)
    assert chosen.error < 22.33
