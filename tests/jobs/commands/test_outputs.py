"""Where commands write: never over a link, and no report beside a folder that is no store."""

import json
from pathlib import Path

import pytest
from support.jobs.jobs import Workplace, clean_environment, run_command

from ridgestream.jobs.cli import exit_codes


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    return work


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["whole", "missing"])
def test_a_prediction_overwrites_neither_a_link_nor_what_it_names(work: Workplace, target: str) -> None:
    work.run_here()
    precious, link = work.folder / "precious", work.folder / "predictions" / "part-00.parquet"
    if target == "whole":
        precious.write_text("precious")
    link.parent.mkdir()
    link.symlink_to(precious)
    done = run_command("predict", work.job(), work.folder / "rows", link.parent, "--again")
    assert done.code == exit_codes.STORE, done
    assert f"{link} is a link to {precious}" in done.err
    assert link.readlink() == precious
    assert not precious.exists() or precious.read_text() == "precious"
    link.unlink()
    assert run_command("predict", work.job(), work.folder / "rows", link.parent).code == 0


@pytest.mark.thorough
def test_a_folder_of_predictions_may_be_a_link(work: Workplace) -> None:
    work.run_here()
    (work.folder / "disk").mkdir()
    (work.folder / "predictions").symlink_to(work.folder / "disk")
    assert run_command("predict", work.job(), work.folder / "rows", work.folder / "predictions").code == 0
    assert (work.folder / "disk" / "part-00.parquet").is_file()


@pytest.mark.thorough
def test_a_report_overwrites_no_link(work: Workplace) -> None:
    page = work.folder / "reports" / "model-0001.html"
    page.parent.mkdir()
    page.symlink_to(work.folder / "elsewhere")
    done = run_command("run", work.job({"report": "reports"}))
    assert done.code == exit_codes.UNREPORTED
    assert f"{page} is a link" in done.err
    assert page.is_symlink()


@pytest.mark.samples
@pytest.mark.parametrize("kind", ["folder of other files", "file", "/proc", "/dev/null"])
def test_no_report_is_written_beside_what_is_no_store(work: Workplace, kind: str) -> None:
    store = work.folder / "other" if not kind.startswith("/") else Path(kind)
    if kind == "file":
        store.touch()
    elif kind == "folder of other files":
        store.mkdir()
        (store / "notes.txt").touch()
    done = run_command("run", work.job({"report": None}), "--store", store)
    assert done.code == exit_codes.STORE
    assert "event='report" not in done.err
    assert not Path(f"{store}-reports").exists()


def test_a_run_that_fails_before_its_store_exists_is_reported_beside_it(work: Workplace) -> None:
    (work.folder / "rows" / "part-00.parquet").write_bytes(b"no Parquet")
    done = run_command("run", work.job({"report": None}))
    assert done.code == exit_codes.DATA
    assert list(Path(f"{work.store}-reports").glob("*.failed.json"))


@pytest.mark.thorough
def test_a_variable_that_is_named_like_a_secret_blanks_no_file_name_in_a_report(work: Workplace) -> None:
    environment = clean_environment(API_TOKEN="part-00.parquet", SECRET_FOLDER="held-out")  # noqa: S106
    changes = {"report": "reports"}
    run_command("run", work.job(changes), environment=environment | {"AWS_SECRET_ACCESS_KEY": "x" * 20})
    text = (work.folder / "reports" / "model-0001.json").read_text()
    assert "part-00.parquet" in text
    assert "***" not in text
    assert json.loads(text)["night"] == 1
