"""The predict command by a store, without a job file."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import Workplace, run_command

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.config.requests import names_store


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace.new(tmp_path_factory.mktemp("predict") / "work", range(1))
    work.run_here()
    return work


def test_a_store_predicts_as_its_job(work: Workplace) -> None:
    expected = work.predict_here("held-out", with_probabilities=True)
    done = run_command("predict", "store", "held-out", "out", "--proba", "--json", cwd=work.folder)
    assert (done.result["model"], done.result["rows"]) == ("model", 200)
    assert pq.read_table(work.folder / "out").equals(expected)
    again = run_command("predict", work.job(), work.folder / "held-out", work.folder / "out", "--proba", "--json")
    assert again.result["skipped"] == 1


@pytest.mark.thorough
def test_with_several_models_one_is_named(tmp_path: Path) -> None:
    other = Workplace.new(tmp_path / "work", range(1))
    for name in ("a", "b"):
        other.run_here({"model.name": name})
    arguments = ("predict", other.store, other.folder / "held-out", tmp_path / "out")
    done = run_command(*arguments)
    assert done.code == exit_codes.MODEL
    assert "has the models a, b: name one by --set model.name=NAME" in done.err
    assert run_command(*arguments, "--set", "model.name=b", "--json").result["model"] == "b"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("store", "held-out", "store/predictions"), "lies in the source"),
        (("store", "held-out"), "give INPUT and OUTPUT"),
        (("store", "held-out", "out", "--store", "other"), "--store goes with a job file, and store is a store"),
        (("rows", "held-out", "out"), "is not a Ridgestream store"),
        (("nothing", "held-out", "out"), "there is no job file nothing"),
    ],
)
def test_what_cannot_be_done_by_a_store_is_refused(work: Workplace, arguments: tuple[str, ...], message: str) -> None:
    done = run_command("predict", *arguments, cwd=work.folder)
    assert done.code in (exit_codes.USAGE, exit_codes.DATA, exit_codes.STORE)
    assert message in done.err


def test_a_job_and_a_recipe_go_before_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("forest", "job", "store"):
        (tmp_path / name).mkdir()
    (tmp_path / "job.toml").touch()
    names = ("s3://bucket/store", "store", "job", "./forest", "forest", "job.toml", "nothing")
    assert [name for name in names if names_store(name)] == ["s3://bucket/store", "store", "job", "./forest"]
