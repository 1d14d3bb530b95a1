"""The command reproduce: what it lists, measures, keeps and shows."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ridgestream.jobs.cli.app import app
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.reproduction import registry
from ridgestream.jobs.reproduction.run import run_reproduce, show_reproduction
from ridgestream.jobs.reproduction.study import Cell, Outcome, Study

CALLS: list[tuple[str, int]] = []


def measure(repeat: int) -> Outcome:
    CALLS.append(("one", repeat))
    return Outcome(1.0 + repeat, 10)


def measure_once(repeat: int) -> Outcome:
    CALLS.append(("other", repeat))
    if STOP:
        raise KeyboardInterrupt
    return Outcome(0.5, 3)


STOP: list[bool] = []
STUDY = Study(
    title="A study",
    source="A paper",
    error="error",
    repeats=2,
    takes="no time",
    settings=lambda: {"gamma": 1.0},
    cells=(Cell("one", "2 ± 1", measure), Cell("other", "–", measure_once, is_repeated=False)),
)


@pytest.fixture(autouse=True)
def _studies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.STUDIES, "study", STUDY)
    CALLS.clear()
    STOP.clear()


def test_cells_are_measured_once_and_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    STOP.append(True)
    with pytest.raises(KeyboardInterrupt):
        run_reproduce("study", None, tmp_path)
    STOP.clear()
    facts = run_reproduce("study", None, tmp_path)
    assert CALLS == [("one", 0), ("one", 1), ("other", 0), ("other", 0)]
    one, other = facts["cells"]
    assert (one["mean"], one["std"], one["vectors"], one["repeats"]) == (1.5, 0.5, 10.0, 2)
    assert (other["mean"], other["repeats"], other["published"]) == (0.5, 1, "–")
    assert run_reproduce("study", 3, tmp_path)["cells"][0]["mean"] == 2.0
    assert CALLS[4:] == [("one", 2)]
    assert json.loads((tmp_path / "study.json").read_text())["cells"][0]["repeats"] == 3


def test_measurements_with_other_settings_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_reproduce("study", None, tmp_path)
    monkeypatch.setitem(registry.STUDIES, "study", replace(STUDY, settings=lambda: {"gamma": 2.0}))
    run_reproduce("study", None, tmp_path)
    assert len(CALLS) == 6


def test_the_table_has_the_paper_s_values_beside_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_reproduction(run_reproduce("study", None, tmp_path))
    shown = capsys.readouterr().out
    assert "2 ± 1" in shown
    assert "1.5 ± 0.5 (10)" in shown
    assert "0.5 (3)" in shown


def run(*words: Any) -> Any:
    return CliRunner().invoke(app, ["reproduce", *map(str, words)])


def test_the_command_lists_studies_and_prints_json(tmp_path: Path) -> None:
    assert {"sinc", "slides", "study"} == set(json.loads(run("--list", "--json").stdout))
    result = run("study", "--json", "--repeats", 1, "--output", tmp_path)
    assert json.loads(result.stdout)["cells"][0]["repeats"] == 1


def test_what_cannot_be_reproduced_is_said(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="there is no study 'boston': reproduce takes one of sinc, slides"):
        run_reproduce("boston", None, tmp_path)
    assert run().exit_code == 2
    assert run("sinc", "--list").exit_code == 2
