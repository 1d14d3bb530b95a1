"""Held-out rows that the evaluation would refuse are refused before the first row is learned, by plan and by run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import ROWS, Settings, Workplace, draw_rows, open_store, run_command, set_column

from ridgestream.jobs.cli import exit_codes
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import list_models

COLOURS = [("red", "green", "blue")[i % 3] for i in range(ROWS)]
METHODS: dict[str, Settings] = {"online": {}, "ols": {"model.method": "ols", "model.folds": 1}}

Spoil = Callable[[pa.Table], pa.Table]


def draw(seed: int) -> pa.Table:
    return draw_rows(seed).append_column("colour", [COLOURS])


def last(name: str, value: Any, *, of_type: pa.DataType | None = None) -> Spoil:
    """Put a value into the last row of a column."""

    def spoil(table: pa.Table) -> pa.Table:
        return set_column(table, name, pa.array([*table[name].to_pylist()[:-1], value], of_type))

    return spoil


CLASSES: Settings = {"source.positive": None, "source.classes": "all"}
SPOILT: dict[str, tuple[Settings, Spoil, str]] = {
    "category": ({}, last("colour", "grey"), "'colour' has the category 'grey'"),
    "category of numbers": ({"source.categorical": ["label2"]}, last("label2", 9), "'label2' has the category '9'"),
    "class": (CLASSES, last("label", 9), "the class 9"),
    "null": ({}, last("x1", None), "'x1'"),
    "nan": ({}, last("x1", float("nan")), "'x1'"),
    "infinity": ({}, last("x1", float("-inf")), "'x1'"),
    "beyond 10^100": ({}, last("x1", 1e101), "'x1'"),
    "null target": ({}, last("label", None), "'label'"),
    "null category": ({}, last("colour", None), "'colour'"),
    "negative weight": ({"source.weight": "w"}, last("w", -1.0), "'w'"),
    "lost column": ({}, lambda table: table.drop_columns(["x2"]), "'x2'"),
    "text for numbers": ({}, lambda table: set_column(table, "x2", ["a"] * ROWS), "'x2'"),
    "beyond 2^53": ({}, last("label2", 2**53 + 1), "'label2'"),
    "no rows": ({}, lambda table: table.slice(0, 0), "have no rows to evaluate a model on"),
    "no weight": ({"source.weight": "w"}, lambda table: set_column(table, "w", [0.0] * ROWS), "have no rows"),
}
"""What an evaluation refuses: the job, how the held-out rows are spoilt, and what the message says."""


@pytest.mark.at_most(5)
@pytest.mark.samples
@pytest.mark.parametrize(
    ("name", "method"), [*((name, "online") for name in SPOILT), ("category", "ols"), ("class", "ols")]
)
def test_an_evaluation_is_refused_before_the_first_row_is_learned(tmp_path: Path, name: str, method: str) -> None:
    changes, spoil, message = SPOILT[name]
    work, job = Workplace(tmp_path), {**METHODS[method], **changes, "source.ignore": ["w"]}
    if "source.weight" in job:
        del job["source.ignore"]
    work.put(0, prepared(0))
    work.put(0, spoil(prepared(1000)), where="held-out")
    path = work.job(job)
    for command in ("plan", "run"):
        refused = run_command(command, path)
        assert refused.code == exit_codes.DATA, refused.err
        assert "held-out/part-00.parquet" in refused.err
        assert message in refused.err
    root = open_store(work.store).root()
    assert list_models(root) == ()
    assert read_ledger(root).rows == ROWS
    work.put(0, prepared(1000), where="held-out")
    assert run_command("run", path, "--json").result["test_error"] is not None
    before = work.model()
    work.put(1, prepared(1))
    for number in range(2):
        work.put(number, spoil(prepared(1000 + number)), where="held-out")
    assert message in run_command("plan", path).err
    assert message in run_command("run", path).err
    assert work.model().learned == before.learned == (0,)


def prepared(seed: int) -> pa.Table:
    table = draw(seed).append_column("label2", [[i % 3 for i in range(ROWS)]])
    return table.append_column("w", [[1.0] * ROWS])


@pytest.mark.samples
@pytest.mark.parametrize("policy", ["ignore", "extend"])
def test_an_unseen_category_is_accepted_if_the_job_allows_it(tmp_path: Path, policy: str) -> None:
    work = Workplace(tmp_path)
    work.put(0, draw(0))
    work.put(0, last("colour", "grey")(draw(1000)), where="held-out")
    job = work.job({"source.unseen_categories": policy})
    assert run_command("plan", job).code == 0
    assert run_command("run", job, "--json").result["test_error"] is not None


@pytest.mark.thorough
def test_a_category_that_arrives_tonight_may_be_in_the_held_out_rows(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put(0, draw(0))
    work.put(1, last("colour", "grey")(draw(1)))
    work.put(0, last("colour", "grey")(draw(1000)), where="held-out")
    assert run_command("plan", work.job()).code == 0
    assert run_command("run", work.job(), "--json").result["test_error"] is not None


@pytest.mark.thorough
def test_the_check_of_held_out_rows_is_a_step_of_its_own(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1), held_out=2)
    assert run_command("run", work.job()).events[:4] == ["ingest", "check_held_out", "train", "evaluate"]
    held_out = sum(pq.read_metadata(path).num_rows for path in (work.folder / "held-out").iterdir())
    assert (
        f"event='check_held_out' message='check held-out rows' rows={held_out}"
        in run_command("run", work.job(), "--new-model").err
    )
