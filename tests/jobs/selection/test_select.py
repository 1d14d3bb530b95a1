"""The select command: the whole grid on folds of the first rows, in the user's units, with the options that set it."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.jobs.jobs import REGRESSION, Settings, Workplace, draw_regression
from support.jobs.recording import Notes

from ridgestream.jobs.commands.quarantine import run_quarantine
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import parse_flags
from ridgestream.jobs.selection.grid_page import show_selection
from ridgestream.jobs.selection.select import run_select

OPTIONS: Settings = {
    "model.kernel.gamma": None,
    "model.metric": None,
    "model.metric_options.basis": 30,
    "model.metric_options.rounds": 2,
    "report": "reports",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("select"))
    work.put_all(range(3))
    return work


def test_the_best_is_found_in_the_user_s_units_and_can_be_set(place: Workplace) -> None:
    facts = run_select(read_job(place.job(OPTIONS), {}), Notes())
    errors = [point["error"] for point in facts["points"]]
    assert facts["criterion"] == "share misclassified"
    assert facts["best"]["error"] == min(errors)
    assert facts["best"]["error"] < 0.25 < max(errors)
    assert {point["metric"] for point in facts["points"]} == {"standardized", "diagonal", "full"}
    assert facts["simplest"]["max_basis"] <= facts["best"]["max_basis"]
    assert facts["simplest"]["error"] <= facts["best"]["error"] + facts["best"]["standard_error"]
    flags = parse_flags([each for each in facts["best"]["set"].split() if each != "--set"])
    job = read_job(place.job({**OPTIONS, "model.metric_options.basis": None}), flags)
    assert job.model.max_basis == facts["best"]["max_basis"]
    assert job.model.metric == facts["best"]["metric"]


def test_the_error_of_a_regression_is_in_squared_target_units(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    table = draw_regression(0)
    work.put(0, table)
    facts = run_select(read_job(work.job({**OPTIONS, **REGRESSION, "report": "none"}), {}), Notes())
    variance = float(np.var(table["price"].to_numpy()))
    assert 50 < facts["best"]["error"] < 0.05 * variance
    assert facts["page"] is None


def test_partitions_in_quarantine_are_left_out(tmp_path: Path) -> None:
    work = Workplace.new(tmp_path / "work", range(3))
    job = read_job(work.job({**OPTIONS, "model.kernel.gamma": 0.5, "report": "none"}), {})
    before = run_select(job, Notes())["rows"]
    work.run_here()
    assert run_select(job, Notes())["rows"] == before
    run_quarantine(job, "part-01.parquet", "wrong", 0.0, release=False)
    assert run_select(job, Notes())["rows"] == before * 2 // 3


def test_a_given_gamma_is_the_only_one(place: Workplace) -> None:
    facts = run_select(read_job(place.job({**OPTIONS, "model.kernel.gamma": 0.5, "report": "none"}), {}), Notes())
    assert {point["gamma"] for point in facts["points"]} == {0.5}


def test_the_store_is_not_touched_and_the_page_has_table_and_picture(
    place: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = run_select(read_job(place.job(OPTIONS), {}), Notes())
    assert not place.store.exists()
    page = Path(facts["page"]).read_text()
    assert "<svg" in page
    assert facts["best"]["set"].split()[1] in page
    show_selection(json.loads(json.dumps(facts)))
    printed = capsys.readouterr().out
    assert facts["simplest"]["set"] in printed
    assert "full" in printed
