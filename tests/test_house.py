"""The layout of the project: wheel, imports, top level, and sizes of folders, modules, functions and calls."""

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles

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


ROOMS = ("pipeline", "stores", "jobs")
MAX_FOLDER_FILES, MAX_MODULE_LINES = 13, 400
MEDIAN_FUNCTION_LINES, NINE_IN_TEN_FUNCTION_LINES = 8, 20
MAX_POSITIONAL_ARGUMENTS = 7


def modules() -> Iterator[Path]:
    return (path for room in ROOMS for path in sorted((TOP / room).rglob("*.py")))


def shown(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


def test_no_folder_has_more_than_13_files() -> None:
    folders = [folder for room in ROOMS for folder in (TOP / room, *(TOP / room).rglob("*")) if folder.is_dir()]
    counts = {
        shown(folder): sum(path.is_file() for path in folder.iterdir())
        for folder in folders
        if folder.name != "__pycache__"
    }
    assert {name: count for name, count in counts.items() if count > MAX_FOLDER_FILES} == {}


def test_no_module_has_more_than_400_lines() -> None:
    lengths = {shown(path): len(path.read_text().splitlines()) for path in modules()}
    assert {name: length for name, length in lengths.items() if length > MAX_MODULE_LINES} == {}


def count_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its decorators and its docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    return lines - ((function.body[0].end_lineno or 0) - function.body[0].lineno + 1)


def test_functions_are_short() -> None:
    """The median has at most 8 lines, nine in ten at most 20."""
    lengths = {
        f"{shown(path)}:{node.lineno} {node.name}": count_lines(node)
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    longest = sorted(lengths, key=lambda name: -lengths[name])[:30]
    message = "the longest functions:\n" + "\n".join(f"{lengths[name]} {name}" for name in longest)
    assert median(lengths.values()) <= MEDIAN_FUNCTION_LINES, message
    assert quantiles(lengths.values(), n=10)[-1] <= NINE_IN_TEN_FUNCTION_LINES, message


def test_no_call_has_more_than_7_positional_arguments_outside_compiled_loops() -> None:
    compiled = TOP / "pipeline" / "online" / "compiled"
    calls = [
        f"{shown(path)}:{node.lineno} has {len(node.args)} positional arguments"
        for path in modules()
        if not path.is_relative_to(compiled)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and len(node.args) > MAX_POSITIONAL_ARGUMENTS
    ]
    assert calls == []
