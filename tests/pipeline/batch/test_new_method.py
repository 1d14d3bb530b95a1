"""The new batch method that CONTRIBUTING.md shows as a diff: applied to a copy of the tree, it keeps the laws."""

import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest
from support.jobs.jobs import clean_environment

TOP = Path(__file__).parents[3]
DIFF = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def diff_of_contributing() -> str:
    (diff,) = DIFF.findall((TOP / "CONTRIBUTING.md").read_text())
    return str(diff)


def test_the_diff_is_one_new_file_one_registry_line_and_one_line_of_the_laws() -> None:
    diff = diff_of_contributing()
    files = re.findall(r"^\+\+\+ b/(.*)$", diff, re.MULTILINE)
    assert files == ["pipeline/batch/first_rows.py", "pipeline/batch/registry.py", "tests/jobs/scenarios/test_batch.py"]
    added = [part.count("\n+") - 1 for part in diff.split("diff --git")[2:]]
    assert added == [2, 1]  # the registry's line and its import, and the line of the laws


@pytest.mark.slow
def test_the_laws_of_batch_methods_hold_for_it(tmp_path: Path) -> None:
    copy, site = tmp_path / "copy", tmp_path / "site"
    for name in ("pipeline", "stores", "jobs", "tests"):
        copytree(TOP / name, copy / name)
    (copy / "pyproject.toml").write_text((TOP / "pyproject.toml").read_text())
    subprocess.run(
        ["git", "apply", "--unsafe-paths", "-"], cwd=copy, input=diff_of_contributing(), text=True, check=True
    )
    copytree(copy / "pipeline" / "public", site / "ridgestream")
    for name in ("pipeline", "stores", "jobs"):
        (site / "ridgestream" / name).symlink_to(copy / name)
    laws = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "tests/jobs/scenarios/test_batch.py",
        "-k",
        "first-rows or settings_here",
    ]
    environment = clean_environment() | {"PYTHONPATH": str(site)}
    done = subprocess.run(laws, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 5
