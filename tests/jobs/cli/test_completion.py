"""Shell completion: commands, options, and what can be a job: recipes, folders and TOML files."""

from pathlib import Path

import pytest
from support.jobs.jobs import COMMAND, clean_environment, run_program

from ridgestream.jobs.cli.options import complete_job


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("night.toml", "notes.txt", ".hidden/x.toml", "jobs/a.toml", "jobs/b.toml", "jobs/deep/c.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def complete(line: str) -> list[str]:
    """Complete the last word of a command line, as the script for bash asks for it."""
    words = line.split(" ")
    answer = {"_RIDGESTREAM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return run_program([COMMAND], environment=clean_environment(**answer)).out.split()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [
        ("", ["forest", "forest-classes", "forest-experts", "forest-metric", "forest-select", "jobs/", "night.toml"]),
        ("forest-", ["forest-classes", "forest-experts", "forest-metric", "forest-select"]),
        ("n", ["night.toml"]),
        ("jobs", ["jobs/"]),
        ("jobs/", ["jobs/a.toml", "jobs/b.toml", "jobs/deep/"]),
        ("./jobs/b", ["./jobs/b.toml"]),
        (".h", [".hidden/"]),
        ("nowhere/", []),
    ],
)
def test_a_job_is_completed_to_recipes_folders_and_toml_files(incomplete: str, expected: list[str]) -> None:
    assert list(complete_job(incomplete)) == expected


def test_absolute_paths_are_completed(here: Path) -> None:
    assert list(complete_job(f"{here}/night")) == [f"{here}/night.toml"]
    assert "/tmp/" in complete_job("/t")  # noqa: S108


@pytest.mark.usefixtures("here")
def test_the_command_completes_commands_options_and_jobs() -> None:
    assert complete("ridgestream r") == ["run", "report", "rollback", "reproduce"]
    assert complete("ridgestream run --new") == ["--new-model"]
    assert complete("ridgestream inspect jobs/d") == ["jobs/deep/"]
    assert complete("ridgestream run forest-") == ["forest-classes", "forest-experts", "forest-metric", "forest-select"]


def test_the_script_for_a_shell_is_shown() -> None:
    in_a_shell = ["bash", "-c", f"'{COMMAND}' --show-completion; true"]  # whose name it takes from its parents
    shown = run_program(in_a_shell, environment=clean_environment(SHELL="/bin/bash"))
    assert "complete -o default -F _ridgestream_completion ridgestream" in shown.out
