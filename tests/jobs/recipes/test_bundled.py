"""Bundled recipes: by name, they read their own rows and write to the working directory."""

import re
import tomllib
from pathlib import Path

import pytest
from support.jobs.jobs import FOREST, run_command

from ridgestream.jobs.config.job_file import Job, read_job
from ridgestream.jobs.config.requests import (
    evaluation_partitions,
    is_job_file,
    report_folder,
    source_partitions,
    store_location,
)
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.recipes.bundled import recipe_names

RECIPES = FOREST.parent


def store_of(recipe: str) -> str:
    """Return the name of a recipe's store: all seven classes are other targets, in a store of their own."""
    return "forest-classes.icechunk" if recipe == "forest-classes" else "forest.icechunk"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_recipe_job(name: str) -> Job:
    return read_job(Path(name), {})


def test_every_job_file_of_the_folder_is_a_recipe() -> None:
    assert recipe_names() == ("forest", "forest-classes", "forest-experts", "forest-metric", "forest-select")
    assert {f"{name}.toml" for name in recipe_names()} == {file.name for file in RECIPES.glob("*.toml")}


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_reads_its_own_rows_and_writes_to_the_working_directory(here: Path, name: str) -> None:
    job = read_recipe_job(name)
    assert len(source_partitions(job)) == 10
    assert len(evaluation_partitions(job)) == 1
    assert store_location(job).folder == here / store_of(name)
    assert report_folder(job) == here / f"{store_of(name)}-reports"
    if job.predict is not None:
        assert job.predict.path is not None
        assert job.predict.output is not None
        assert Path(job.predict.path).is_absolute()
        assert job.location(job.predict.output) == here / "forest-predictions"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_by_its_path_writes_to_the_top_of_the_clone(name: str) -> None:
    job = read_job(RECIPES / f"{name}.toml", {})
    assert store_location(job).folder == RECIPES.parents[1] / store_of(name)
    assert [file.name for file in source_partitions(job)] == [
        file.name for file in source_partitions(read_recipe_job(name))
    ]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", recipe_names())
def test_by_name_and_by_path_a_recipe_is_the_same_job_but_for_its_paths(name: str) -> None:
    by_name, by_path = read_recipe_job(name), read_job(RECIPES / f"{name}.toml", {})
    assert by_name.model == by_path.model
    assert by_name.source.model_dump(exclude={"path"}) == by_path.source.model_dump(exclude={"path"})


def test_flags_and_environment_go_before_a_recipe(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGESTREAM_MODEL__MAX_BASIS", "7")
    monkeypatch.setenv("RIDGESTREAM_STORE", "other")
    job = read_job(Path("forest"), {"source": {"path": "rows"}, "model": {"regularization": 0.5}})
    assert (job.model.max_basis, job.model.regularization, job.model.name) == (7, 0.5, "forest")
    assert store_location(job).folder == here / "other"
    assert job.location(job.source.path) == here / "rows"
    assert job.source.target == "Cover_Type"


def test_a_file_of_that_name_goes_before_a_recipe(here: Path) -> None:
    (here / "forest").write_text('store = "mine"\nsource = { path = "rows", target = "y" }\n')
    job = read_job(Path("forest"), {})
    assert (job.store, job.source.target) == ("mine", "y")


def test_a_store_of_that_name_goes_before_a_recipe(here: Path) -> None:
    assert is_job_file("forest")
    assert not is_job_file("forests")
    (here / "forest").mkdir()
    assert not is_job_file("forest")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["forrest", "forest.tom", "recipes/forest", ""])
def test_an_unknown_name_is_refused_with_the_names_that_there_are(name: str) -> None:
    expected = (
        f"no job file {Path(name)}, and no bundled recipe of that name (there are forest, forest-classes, "
        "forest-experts, forest-metric, forest-select)"
    )
    with pytest.raises(JobFileError, match=re.escape(expected)):
        read_job(Path(name), {})


@pytest.mark.usefixtures("here")
def test_a_broken_flag_is_reported_with_the_name_of_the_recipe() -> None:
    with pytest.raises(JobFileError, match=r"the job forest cannot be used:\n  model.max_basis: "):
        read_job(Path("forest"), {"model": {"max_basis": -1}})


def test_no_recipe_writes_outside_the_clone_or_reads_outside_its_folder() -> None:
    for file in RECIPES.glob("*.toml"):
        settings = tomllib.loads(file.read_text())
        for path in (settings["source"]["path"], settings["evaluate"]["path"]):
            assert (RECIPES / path).resolve().is_relative_to(FOREST), path
        assert (RECIPES / settings["store"]).resolve().parent == RECIPES.parents[1]


@pytest.mark.thorough
def test_the_command_takes_a_recipe_s_name(here: Path) -> None:
    part = FOREST / "train" / "part-00.parquet"
    ingested = run_command("ingest", "forest", "--set", f"source.path={part}", "--json").result
    assert ingested["new_rows"] == 50_000
    assert (here / "forest.icechunk").is_dir()
    assert run_command("inspect", "forest", "--json").result["rows"] == 50_000
    assert "the store has no model 'forest'" in run_command("history", "forest").err
    unknown = run_command("run", "wood")
    assert (unknown.code, unknown.out) == (2, "")
    assert "there is no job file wood" in unknown.err
