"""The tables of the reference are those that the code writes, and name every exit code."""

import re
from pathlib import Path

import pytest
from support.docs.tables import REFERENCE, TABLES, with_table

from ridgestream.jobs.cli import exit_codes


@pytest.mark.parametrize("page", TABLES, ids=lambda page: page.stem)
def test_a_table_is_the_one_that_the_code_writes(page: Path) -> None:
    assert page.read_text() == with_table(page), "run `PYTHONPATH=tests python -m support.docs.tables`"


def test_the_exit_codes_of_the_reference_are_those_of_the_command() -> None:
    named = re.findall(r"^\| (\d+) \|", (REFERENCE / "exit-codes.md").read_text(), re.MULTILINE)
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    assert sorted(map(int, named)) == sorted(codes | {0})
