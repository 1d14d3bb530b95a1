"""The JSON Schema of job files: the committed one is that of the sections, and takes what they take."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from ridgestream.jobs.cli.app import app
from ridgestream.jobs.drafts.schema import SCHEMA_URL, job_schema, schema_text
from ridgestream.jobs.recipes.bundled import read_recipe, recipe_names

TOP = Path(__file__).parents[3]
COMMITTED = TOP / SCHEMA_URL.partition("/main/")[2]


def test_the_committed_schema_is_what_the_command_prints() -> None:
    assert COMMITTED.read_text() == schema_text(), "run `PYTHONPATH=tests python -m support.docs.tables`"
    printed = CliRunner().invoke(app, ["schema"])
    assert (printed.exit_code, printed.output) == (0, schema_text())


@pytest.mark.parametrize("name", recipe_names())
def test_the_schema_takes_recipes(name: str) -> None:
    jsonschema.validate(read_recipe(name), job_schema())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"modle": {}}, "'modle' was unexpected"),
    ({"model": {"max_bases": 1}}, "'max_bases' was unexpected"),
    ({"model": {"method": "svm"}}, "'svm' is not one of"),
    ({"source": {"path": "rows"}}, "'target' is a required property"),
    ({"stall_seconds": 0}, "0 is less than or equal to the minimum of 0"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_the_schema_refuses_what_job_files_refuse(changes: dict[str, Any], message: str) -> None:
    job = {"store": "s", "source": {"path": "rows", "target": "y"}} | changes
    with pytest.raises(jsonschema.ValidationError, match=message):
        jsonschema.validate(job, job_schema())
