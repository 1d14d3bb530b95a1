"""Drift warnings: a broken feed is named before its model is committed, a healthy one is not, and inspect shows all."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import (
    FOREST,
    REGRESSION,
    Workplace,
    draw_regression,
    draw_rows,
    forest_job,
    run_command,
    set_column,
)
from support.jobs.recording import Notes
from support.points import points

from ridgestream.jobs.commands import train
from ridgestream.jobs.commands.inspect import run_inspect
from ridgestream.jobs.commands.quarantine import run_accept
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.commands.status import run_status
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.runs.drift_warnings import drift_cells
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.monitoring.column_course import News
from ridgestream.pipeline.monitoring.drift import PartitionDrift
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.repository.store_location import StoreLocation

ROWS = 1500
"""Rows of a partition of forest."""

ACCEPTED = News(began=("x0",)).without(["x0"])

BATCH = {
    "model.method": "subset-of-regressors",
    "model.max_basis": None,
    "model.subset_of_regressors.start_basis": 60,
    "model.folds": 1,
}


def forest(number: int, rows: int = ROWS) -> pa.Table:
    """A partition of forest that no other number has a row of."""
    return pq.read_table(FOREST / "train" / "part-01.parquet").slice(number * rows, rows)


def other_units(table: pa.Table) -> pa.Table:
    """Elevation in feet."""
    return set_column(table, "Elevation", pa.array(np.round(table["Elevation"].to_numpy() / 0.3048).astype(np.int16)))


def stuck(table: pa.Table) -> pa.Table:
    return set_column(table, "Slope", pa.array(np.full(len(table), 14, dtype=np.uint8)))


def flipped(table: pa.Table) -> pa.Table:
    return set_column(table, "Cover_Type", pa.array(np.where(table["Cover_Type"].to_numpy() == 2, 1, 2)))


def work_with(folder: Path, partitions: int = 4) -> Workplace:
    work = Workplace(folder)
    for number in range(partitions):
        work.put(number, forest(number))
    return work


def job_of(**changes: Any) -> dict[str, Any]:
    return forest_job(ROWS, 1, 60) | {"model.scaling_rows": 2 * ROWS, "model.kernel.gamma": 1 / 54} | changes


def drift_of(work: Workplace) -> list[dict[str, Any]]:
    drift = run_inspect(StoreLocation(str(work.store)))["models"][0]["drift"]
    assert isinstance(drift, list)
    return drift


def columns_moved(drift: dict[str, Any]) -> list[str]:
    return [name for name, column in drift["columns"].items() if column["moved"]]


@pytest.mark.thorough
def test_a_broken_feed_is_named_by_the_run_and_by_inspect(tmp_path: Path) -> None:
    work = work_with(tmp_path)
    job = work.job(job_of())
    first = run_command("run", job, "--json")
    assert first.result["suspects"] == []
    assert "unlike" not in first.err
    for number, change in enumerate((other_units, stuck, flipped), 4):
        work.put(number, change(forest(number)))
    work.put(7, forest(7))
    second = run_command("run", job, "--json")
    assert second.result["suspects"] == [f"part-0{number}.parquet" for number in (4, 5, 6)]
    lines = [line for line in second.err.splitlines() if "unlike" in line]
    assert [line.count("partition='part-0") for line in lines] == [1, 1, 1]
    for line, part in zip(lines, ("moved='Elevation (PSI ", "moved='Slope (PSI ", "usual_up_to=0."), strict=True):
        assert part in line
    assert second.err.index("unlike") > second.err.index("event='train'")
    drift = {part["partition"]: part for part in drift_of(work)}
    assert columns_moved(drift["part-04.parquet"]) == ["Elevation"]
    assert columns_moved(drift["part-05.parquet"]) == ["Slope"]
    assert columns_moved(drift["part-06.parquet"]) == []
    assert [name for name, part in drift.items() if part["suspect"]] == second.result["suspects"]
    shown = run_command("inspect", job).out
    (row,) = (line for line in shown.splitlines() if "part-05.parquet" in line and "Slope" in line)
    assert " ! " in row
    assert "! unlike the partitions before it, which is news" in shown


def test_drift_is_reported_before_the_model_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, notes = work_with(tmp_path, 2), Notes()
    work.run_here(job_of())
    before = work.snapshot()
    work.put(2, other_units(forest(2)))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "write_model", killed)
    with pytest.raises(KeyboardInterrupt):
        run_job(read_job(work.job(job_of()), {}), InProcess(), notes, 0.0, new_model=False)
    (warning,) = notes.all("drift.partition_unlike_others")
    assert warning["partition"] == "part-02.parquet"
    assert str(warning["moved"]).startswith("Elevation (PSI ")
    assert work.model().data_snapshot != before
    assert len(work.model().learned) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("nights", points([10, 24], [10]))
def test_a_healthy_stream_raises_no_alarm_night_after_night(tmp_path: Path, nights: int) -> None:
    work = Workplace(tmp_path)
    sizes = [300, 40, 300, 10, 120]
    table, start = pq.read_table(FOREST / "train" / "part-02.parquet"), 0
    for night in range(nights):
        rows = sizes[night % len(sizes)]
        work.put(night, table.slice(start, rows))
        start += rows
        assert work.run_here(job_of(**{"model.scaling_rows": 1000}))["suspects"] == []
    drift = drift_of(work)
    assert [part["rows"] for part in drift] == [sizes[night % len(sizes)] for night in range(nights)]
    assert not any(part["suspect"] for part in drift)
    assert max(column["psi"] for part in drift if part["rows"] == 300 for column in part["columns"].values()) < 0.25


def test_sorted_rows_are_reported_as_drift(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    table = forest(0, 6000).sort_by("Elevation")
    for number in range(4):
        work.put(number, table.slice(number * 1500, 1500))
    result = work.run_here(job_of(**{"model.scaling_rows": 1000}))
    assert result["suspects"][0] == "part-01.parquet"
    drift = drift_of(work)
    assert [part["columns"]["Elevation"]["moved"] for part in drift] == [False, True, True, True]
    assert ["Elevation" in part["news"].get("began", ()) for part in drift] == [False, True, False, False]


@pytest.mark.thorough
def test_nights_give_the_errors_and_the_drift_of_one_run(tmp_path: Path) -> None:
    one, nights = work_with(tmp_path / "one"), work_with(tmp_path / "nights", 2)
    for work in (one, nights):
        work.run_here(job_of())
    for number in (2, 3):
        nights.put(number, forest(number))
        nights.run_here(job_of())
    assert drift_of(one) == drift_of(nights)
    (night,) = one.model().history
    errors = [error for n in nights.model().history for error in n.progressive_errors or ()]
    assert list(night.progressive_errors or ()) == errors
    assert night.progressive_error == pytest.approx(np.mean(np.array(errors, dtype=np.float64)))
    assert one.model().scaled_by == nights.model().scaled_by == (0, 1)


@pytest.mark.thorough
def test_a_run_names_ten_partitions_and_counts_the_others(tmp_path: Path) -> None:
    work, notes = work_with(tmp_path, 2), Notes()
    for number in range(2, 28):
        table = forest(number, 100)
        work.put(number, table if number % 2 else other_units(table))
    result = run_job(read_job(work.job(job_of()), {}), InProcess(), notes, 0.0, new_model=False)
    assert len(result["suspects"]) == 13
    warnings = notes.all("drift.partition_unlike_others") + notes.all("drift.more_partitions")
    assert [facts.get("partition") for facts in warnings[:10]] == [f"part-{n:02d}.parquet" for n in range(2, 22, 2)]
    assert warnings[10:] == [{"partitions": 3}]


def test_a_batch_method_predicts_each_partition_before_it_is_added(tmp_path: Path) -> None:
    work, job = work_with(tmp_path, 3), job_of(**BATCH)
    work.run_here(job)
    for number in (3, 4, 5, 6):
        work.put(number, forest(number))
    work.put(5, flipped(forest(5)))
    work.put(6, forest(6).slice(0, 0))
    assert work.run_here(job)["suspects"] == ["part-05.parquet"]
    first, second = work.model().history
    assert first.progressive_errors is None
    assert second.progressive_errors is not None
    good, also_good, bad, empty = second.progressive_errors
    assert empty is None
    assert good is not None
    assert also_good is not None
    assert bad is not None
    assert bad > 0.6 > 0.35 > max(good, also_good)
    assert second.progressive_error == pytest.approx((good + also_good + bad) / 3)


@pytest.mark.samples
@pytest.mark.parametrize("method", ["online", "batch"])
def test_the_error_of_a_partition_is_in_squared_target_units(tmp_path: Path, method: str) -> None:
    work = Workplace(tmp_path)
    changes = {**REGRESSION, "evaluate.path": None, **(BATCH if method == "batch" else {})}
    for night in range(3):
        work.put(night, draw_regression(night))
        work.run_here(changes)
    scaled = draw_regression(3)
    work.put(3, set_column(scaled, "price", pa.array(scaled["price"].to_numpy() * 1.5)))
    assert work.run_here(changes)["suspects"] == ["part-03.parquet"]
    last = drift_of(work)[-1]
    assert columns_moved(last) == ["price"]
    assert last["progressive_error"] > 500.0**2
    assert last["progressive_error"] > last["error_limit"]
    history = work.model().history
    assert history[-1].progressive_errors == (history[-1].progressive_error,)


@pytest.mark.thorough
def test_several_models_have_their_own_training_rows(tmp_path: Path) -> None:
    work = work_with(tmp_path, 1)
    work.run_here(job_of())
    work.put(1, other_units(forest(1)))
    work.run_here(job_of())
    work.run_here(job_of(**{"model.name": "later", "model.scaling_rows": "all"}))
    result = run_inspect(StoreLocation(str(work.store)))
    later, model = result["models"]
    assert (later["name"], model["name"]) == ("later", "model")
    assert columns_moved(model["drift"][1]) == ["Elevation"]
    assert columns_moved(later["drift"][0]) == columns_moved(later["drift"][1]) == ["Elevation"]


def test_a_drift_is_told_once_until_it_is_accepted_and_an_exempt_column_never(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(2))
    assert work.run_here()["suspects"] == []
    for number in (2, 3):
        work.put(number, inches(draw_rows(number)))
    (tmp_path / "exempt").mkdir()
    shutil.copytree(work.store, tmp_path / "exempt" / "store")
    assert work.run_here()["suspects"] == ["part-02.parquet"]
    job = read_job(work.job(), {})
    status = run_status(job, None)
    assert (status["status"], status["drifting"]) == ("drift", ["x1"])
    assert [row[0] for row in marked(work)] == ["part-02.parquet"]
    with pytest.raises(ModelError, match=r"x0 does not drift in the model 'model'; drifting: x1$"):
        run_accept(job, ["x0"], 0.0)
    with pytest.raises(
        JobFileError, match=r"accept names zzz, which the model does not use; its columns: x0, x1, x2, "
    ):
        run_accept(job, ["zzz"], 0.0)
    assert run_accept(job, ["x1"], 0.0)["drifting"] == []
    assert marked(work) == []
    assert run_status(job, None)["status"] != "drift"
    work.put(4, inches(draw_rows(4)))
    assert work.run_here()["suspects"] == []
    assert run_status(job, None)["status"] != "drift"
    exempt = {"store": "exempt/store", "drift.exempt": ["x1"]}
    assert work.run_here(exempt)["suspects"] == []
    work.put(5)
    with pytest.raises(JobFileError, match=r"drift.exempt names x9, which the model does not use; its columns: "):
        work.run_here(exempt | {"drift.exempt": ["x9"]})


def marked(work: Workplace) -> list[tuple[str, ...]]:
    rows = [drift_cells(part) for part in drift_of(work)]
    return [row for row in rows if any(" !" in cell for cell in row)]


@pytest.mark.parametrize(("news", "suspect"), [(News(), True), (News().without(["x0"]), True), (ACCEPTED, False)])
def test_an_error_that_an_accepted_drift_explains_is_no_news(news: News, suspect: bool) -> None:
    drift = PartitionDrift(3, "part-03.parquet", 100, (), progressive_error=0.5, error_limit=0.2, news=news)
    assert (drift.erred, drift.began_to_err, drift.is_suspect) == (True, suspect, suspect)
    assert News.from_plain(ACCEPTED.as_plain()) == ACCEPTED


def inches(table: pa.Table) -> pa.Table:
    return set_column(table, "x1", pa.array(table["x1"].to_numpy() * 2.54 + 5.0))
