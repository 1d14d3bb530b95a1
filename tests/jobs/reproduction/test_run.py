"""The command reproduce: what it lists, measures, keeps and shows."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from ridgestream.jobs.cli.app import app
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.reproduction import page as page_module
from ridgestream.jobs.reproduction import registry
from ridgestream.jobs.reproduction.data import DataFolder
from ridgestream.jobs.reproduction.run import run_reproduce
from ridgestream.jobs.reproduction.study import Bench, Cell, Measurement, Outcome, Published, Study

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "reproduction.md"
CALLS: list[tuple[str, int]] = []


def measure(bench: Bench, repeat: int) -> tuple[Outcome]:
    CALLS.append(("one", repeat))
    return (Outcome(bench.chosen["centre"] + repeat, 10, {"refit": 0.25} if repeat == 0 else {}),)


def choose(data: DataFolder) -> float:  # noqa: ARG001
    CALLS.append(("choice", 0))
    return 1.0


def draw(figure: Figure, outcomes: dict[str, list[Outcome]]) -> None:
    figure.subplots().plot(*outcomes["third"][0].curve.values())


def measure_once(bench: Bench, repeat: int) -> tuple[Outcome, Outcome]:  # noqa: ARG001
    CALLS.append(("other", repeat))
    if STOP:
        raise KeyboardInterrupt
    return Outcome(0.5, 3), Outcome(0.75, 4, {}, {"vectors": [4.0], "error": [0.75]})


STOP: list[bool] = []
STUDY = Study(
    title="A study",
    source="A paper",
    error="error",
    repeats=2,
    takes="no time",
    given={"gamma": 1.0},
    choices={"centre": choose},
    measurements=(
        Measurement((Cell("one", Published(0.5, 0.4, 7)),), measure),
        Measurement((Cell("other"), Cell("third")), measure_once, 1),
    ),
    draw=draw,
    findings="**What it shows.**",
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
    assert CALLS == [("choice", 0), ("one", 0), ("other", 0), ("other", 0), ("one", 1)]
    one, other, third = facts["cells"]
    assert (one["mean"], one["std"], one["vectors"], one["repeats"]) == (1.5, 0.5, 10.0, 2)
    assert (one["published"], one["deviations"], one["better"]) == ("0.5 ± 0.4 (7)", 2.5, {"refit": 0.25})
    assert (other["mean"], other["repeats"], other["published"]) == (0.5, 1, "–")
    assert (third["mean"], third["vectors"]) == (0.75, 4.0)
    assert run_reproduce("study", 3, tmp_path)["cells"][0]["mean"] == 2.0
    assert CALLS[5:] == [("one", 2)]
    assert json.loads((tmp_path / "study.json").read_text())["cells"][0]["repeats"] == 3


def test_a_row_of_more_repeats_than_the_file_has_measurements_stays(tmp_path: Path) -> None:
    folder, path = tmp_path / "found", tmp_path / "found" / "study.json"
    run_reproduce("study", None, folder)
    record = json.loads(path.read_text())
    record["cells"][0] |= {"mean": 1.25, "repeats": 3}
    path.write_text(json.dumps({**record, "outcomes": {"one": record["outcomes"]["one"][:1]}}))
    facts = run_reproduce("study", None, folder)
    assert [(cell["mean"], cell["repeats"]) for cell in facts["cells"]] == [(1.25, 3), (0.5, 1), (0.75, 1)]
    assert len(json.loads(path.read_text())["outcomes"]["one"]) == 2
    assert "found/study.json); 1 of the 3 rows were measured earlier" in (tmp_path / "found.md").read_text()
    assert run_reproduce("study", 3, folder)["cells"][0]["mean"] == 2.0
    assert "found/study.json).\n" in (tmp_path / "found.md").read_text()


def test_a_picture_stays_where_the_file_has_fewer_measurements_than_it_shows(tmp_path: Path) -> None:
    folder, path = tmp_path / "found", tmp_path / "found" / "study.json"
    run_reproduce("study", None, folder)
    record = json.loads(path.read_text())
    record["cells"][2]["repeats"] = 2
    path.write_text(json.dumps(record))
    (folder / "study.png").write_bytes(b"drawn earlier")
    run_reproduce("study", 1, folder)
    assert (folder / "study.png").read_bytes() == b"drawn earlier"
    assert "![A study](found/study.png)" in (tmp_path / "found.md").read_text()


def test_measurements_with_other_settings_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_reproduce("study", None, tmp_path)
    monkeypatch.setitem(registry.STUDIES, "study", replace(STUDY, given={"gamma": 2.0}))
    run_reproduce("study", None, tmp_path)
    assert len(CALLS) == 8


def test_the_table_has_the_paper_s_values_beside_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page_module.show_reproduction(run_reproduce("study", None, tmp_path))
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("0.5 ± 0.4 (7)", "1.5 ± 0.5 (10)", "0.5 (3)", "refit", "0.25"))


def test_the_page_has_table_picture_findings_and_settings(tmp_path: Path) -> None:
    run_reproduce("study", None, tmp_path / "found")
    page = (tmp_path / "found.md").read_text()
    assert "| one | 0.5 ± 0.4 (7) | **1.5 ± 0.5 (10)** | 0.25 | 2 |" in page
    assert (
        "![A study](found/study.png)\n\n**What it shows.**\n\nGiven: gamma 1. Chosen on training rows: centre 1."
        in page
    )
    assert (tmp_path / "found" / "study.png").read_bytes()[1:4] == b"PNG"


def test_the_page_of_the_documentation_is_what_its_measurements_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(registry.STUDIES, "study")
    monkeypatch.setattr(page_module, "_draw", lambda *_: None)
    shutil.copytree(PAGE.with_suffix(""), tmp_path / PAGE.stem)
    page_module.write_page(tmp_path / PAGE.stem)
    assert (tmp_path / PAGE.name).read_text() == PAGE.read_text()


def test_a_set_of_rows_is_read_from_the_folder(tmp_path: Path) -> None:
    columns = {"sex": ["M", "F", "M"], "length": [1, 2, 3], "target": [0.5, 1.5, 2.5]}
    pq.write_table(pa.table(columns), tmp_path / "shells.parquet")
    table = DataFolder(tmp_path).table("shells")
    assert table.X.tolist() == [[0, 1, 1], [1, 0, 2], [0, 1, 3]]
    assert table.continuous.tolist() == [False, False, True]
    assert table.target.tolist() == columns["target"]
    with pytest.raises(
        JobFileError, match=r"needs the file boston\.parquet, and .* has none: give its folder by --data"
    ):
        DataFolder(tmp_path).table("boston")
    pq.write_table(pa.table({"length": [1.0]}), tmp_path / "bare.parquet")
    with pytest.raises(JobFileError, match="has no column `target`"):
        DataFolder(tmp_path).table("bare")


KILLED = """
import os, signal, sys
from pathlib import Path
from dataclasses import replace
from ridgestream.jobs.reproduction import page as page_module
from ridgestream.jobs.reproduction import registry
from ridgestream.jobs.reproduction.run import run_reproduce
from ridgestream.jobs.reproduction.study import Cell, Measurement, Outcome

def measure(bench, repeat):
    print(repeat, flush=True)
    if repeat == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return (Outcome(1.0, repeat),)

measurements = (Measurement((Cell("one"),), measure),)
registry.STUDIES["sinc"] = replace(registry.STUDIES["slides"], measurements=measurements, repeats=4, draw=None)
run_reproduce("sinc", None, Path(sys.argv[1]))
"""


def test_a_killed_reproduction_goes_on(tmp_path: Path) -> None:
    def start(kill: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", KILLED, str(tmp_path), str(kill)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    killed = start(2)
    assert (killed.returncode, killed.stdout.split()) == (-signal.SIGKILL, ["0", "1", "2"])
    went_on = start(-1)
    assert (went_on.returncode, went_on.stdout.split()) == (0, ["2", "3"])
    assert json.loads((tmp_path / "sinc.json").read_text())["cells"][0]["vectors"] == 1.5


def run(*words: Any) -> Any:
    return CliRunner().invoke(app, ["reproduce", *map(str, words)])


def test_the_command_lists_studies_and_prints_json(tmp_path: Path) -> None:
    assert {"sinc", "boston", "slides", "study"} <= set(json.loads(run("--list", "--json").stdout))
    result = run("study", "--json", "--repeats", 1, "--output", tmp_path)
    assert json.loads(result.stdout)["cells"][0]["repeats"] == 1


def test_what_cannot_be_reproduced_is_said(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="there is no study 'digits': reproduce takes one of sinc, boston"):
        run_reproduce("digits", None, tmp_path)
    assert run().exit_code == 2
    assert run("sinc", "--list").exit_code == 2


@pytest.mark.parametrize("folder", ["file/measured", "/proc/measured"])
def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobFileError, match=r"the folder .*measured cannot be written: .*; give --output another one"):
        run_reproduce("study", 1, tmp_path / folder)
    assert not CALLS


@pytest.mark.parametrize("name", ["measured.md", "measured/study.json"])
@pytest.mark.parametrize("text", ["My notes", "{}", "[1]", '{"outcomes": []}'])
def test_what_the_command_has_not_written_is_not_replaced(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "measured").mkdir()
    (tmp_path / name).write_text(text)
    with pytest.raises(JobFileError, match="move it, or give --output another folder"):
        run_reproduce("study", 1, tmp_path / "measured")
    assert (tmp_path / name).read_text() == text
    assert not CALLS


def test_a_text_in_no_cell_s_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match=r"no cell of study has 'seventh' in its name: they are '.*', '.*third'"):
        run_reproduce("study", 1, tmp_path, only="seventh")


@pytest.mark.thorough
def test_workers_measure_the_same(tmp_path: Path) -> None:
    options = ("orols-sinc", "--only", "n = 25", "--repeats", 2, "--json")
    alone = json.loads(run(*options, "--output", tmp_path / "alone").stdout)
    command = [sys.executable, "-m", "ridgestream", "reproduce", *map(str, options), "--cluster", "local:1"]
    spread = subprocess.run([*command, "--output", str(tmp_path / "spread")], capture_output=True, check=True)
    assert json.loads(spread.stdout)["cells"] == alone["cells"]
