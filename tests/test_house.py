"""The layout of the project: packages in the wheel, imports of distributed, and the top level."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import ridgestream

TOP = Path(__file__).parents[1]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())


def package_of(folder: Path) -> str:
    parts = folder.relative_to(TOP).parts
    return ".".join(["ridgestream", *(() if parts == ("pipeline", "public") else parts)])


def test_every_folder_with_code_is_in_the_wheel() -> None:
    folders = {file.parent for room in ("pipeline", "stores", "jobs") for file in (TOP / room).rglob("*.py")}
    assert sorted(package_of(folder) for folder in folders) == sorted(PROJECT["tool"]["setuptools"]["packages"])


@pytest.mark.parametrize("package", PROJECT["tool"]["setuptools"]["packages"])
def test_every_package_is_installed_typed_and_is_not_the_checkout(package: str) -> None:
    module = __import__(package, fromlist=["__file__"])
    folder = Path(str(module.__file__)).parent
    assert not folder.is_relative_to(TOP / "pipeline")
    assert not folder.is_relative_to(TOP / "stores")
    assert not folder.is_relative_to(TOP / "jobs")


def test_the_top_level_holds_nothing_else() -> None:
    allowed = {"pyproject.toml", "README.md", "pipeline", "stores", "jobs", "tests", "docker"}
    allowed |= {"LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", ".gitignore", ".dockerignore"}
    allowed |= {".pre-commit-config.yaml", ".ci", ".git", "docs"}
    tracked = {path.name for path in TOP.iterdir() if not is_generated(path.name)}
    assert tracked <= allowed


def is_generated(name: str) -> bool:
    """Return whether .gitignore lists it: caches, environments, the output of a first run."""
    caches = {".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".import_linter_cache", "__pycache__"}
    is_output = name.endswith((".icechunk", ".egg-info")) or name.startswith((".venv", "forest-predictions"))
    return name in caches | {"build", "dist"} or is_output


def test_distributed_is_imported_in_the_files_of_the_cluster_only() -> None:
    pattern = re.compile(r"^\s*(?:from|import) distributed\b", re.MULTILINE)
    files = [
        p.relative_to(TOP).as_posix() for room in ("pipeline", "stores", "jobs") for p in (TOP / room).rglob("*.py")
    ]
    importing = {Path(f).parent.as_posix() for f in files if pattern.search((TOP / f).read_text())}
    assert importing == {"jobs/cluster"}


def test_the_changelog_s_last_release_is_this_version() -> None:
    first = re.search(r"^## (?!Unreleased)(\S+)", (TOP / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert first[1] == version("ridgestream") == ridgestream.__version__
