"""A job file drafted from data: it runs as it is, and says what it has seen."""

import tomllib
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import draw_regression, draw_rows, run_command

import ridgestream
from ridgestream import JobFileError, PartitionError
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.drafts.draft import run_init
from ridgestream.jobs.drafts.schema import SCHEMA_URL

ROWS = 120


def mixed_rows(seed: int) -> pa.Table:
    """Columns of every kind: features, a name of rows, a list, missing values, and an odd name."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=ROWS)
    missing = np.arange(ROWS) == 3
    return pa.table(
        {
            "id": [f"row {seed}-{i}" for i in range(ROWS)],
            "when": pa.array([date(2026, 1 + i % 12, 1) for i in range(ROWS)]),
            'a "size" \\ of': pa.array(size, mask=missing),
            "region": [("north", "south")[i % 2] for i in range(ROWS)],
            "open": rng.random(ROWS) < 0.5,
            "tags": [["a"]] * ROWS,
            "label": np.where(size > 0, "big", "small"),
            "count": rng.integers(0, 5, ROWS),
        }
    )


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `rows` of two partitions, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        path = tmp_path / "rows" / f"day=2026-11-0{number + 1}" / "part.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(mixed_rows(number), path)
    return tmp_path / "rows"


def test_a_draft_says_what_the_data_holds_and_runs(data: Path) -> None:
    said = run_init("rows", "label", Path("job.toml"), guesses_target=False)
    assert said == {"job": "job.toml", "partitions": 2, "rows": 2 * ROWS, "target": "label"}
    text = (data.parent / "job.toml").read_text()
    assert text.startswith(f"#:schema {SCHEMA_URL}\n# Drafted from a look at 120 of 240 rows in 2 partitions.\n")
    source = tomllib.loads(text)["source"]
    assert source == {
        "path": "rows",
        "target": "label",
        "classes": "all",
        "ignore": ["id", "tags", "day"],
        "missing": "impute",
    }
    assert '#   "id": string, categorical, 120 values, ignored: 120 different texts in 120 rows\n' in text
    assert '#   "label": string, the target, 2 values\n' in text
    result = ridgestream.run("job.toml", changes={"model.max_basis": 10, "model.metric": "standardized"})
    assert (result.outcome, result.rows_seen) == ("done", 2 * ROWS)


def test_without_a_target_there_is_a_line_to_fill_in(data: Path) -> None:
    assert run_init(str(data), None, Path("job.toml"), guesses_target=False)["target"].startswith("to be filled in")
    assert (
        '# target =  # fill in the column to predict: "id", "when", "a \\"size\\" \\\\ of"'
        in Path("job.toml").read_text()
    )
    with pytest.raises(JobFileError, match=r"source\.target: is missing"):
        read_job(Path("job.toml"), {})


@pytest.mark.parametrize(
    ("drop", "guessed"), [([], '"label"  # guessed by its name'), (["label"], '"count"  # guessed as')]
)
def test_a_target_is_guessed_only_if_asked(data: Path, drop: list[str], guessed: str) -> None:
    for path in data.rglob("*.parquet"):
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(drop), path)
    run_init("rows", None, Path("job.toml"), guesses_target=True)
    assert f"target = {guessed}" in Path("job.toml").read_text()


def test_few_whole_numbers_may_be_classes_and_a_target_that_lacks_values_drops_rows(tmp_path: Path) -> None:
    labels = draw_rows(0)["label"].to_pylist()
    table = draw_rows(0).drop_columns("label").append_column("label", pa.array([None, *labels[1:]]))
    pq.write_table(table, tmp_path / "rows.parquet")
    run_init(str(tmp_path / "rows.parquet"), "label", tmp_path / "job.toml", guesses_target=False)
    text = (tmp_path / "job.toml").read_text()
    assert '# classes = "all"  # if its 3 different numbers are classes\n' in text
    assert 'missing = "drop"  # rows that lack a value: the target lacks 1\n' in text
    assert 'store = "rows.icechunk"' in text


def test_what_cannot_be_drafted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match="has no file whose name ends in"):
        run_init(str(tmp_path), None, tmp_path / "job.toml", guesses_target=False)
    pq.write_table(draw_regression(0), tmp_path / "rows.parquet")
    with pytest.raises(PartitionError, match=r'the data has no column .cost.; its columns are "size", "age", "price"'):
        run_init(str(tmp_path), "cost", tmp_path / "job.toml", guesses_target=False)
    with pytest.raises(PartitionError, match=r"no column 'Price', did you mean 'price'\? its columns are"):
        run_init(str(tmp_path), "Price", tmp_path / "job.toml", guesses_target=False)
    (tmp_path / "rows.csv").write_text("size,price\n1,2\n")
    with pytest.raises(
        PartitionError, match=r"rows\.csv is not a readable Parquet file: .* only Parquet is read: convert"
    ):
        run_init(str(tmp_path / "rows.csv"), None, tmp_path / "job.toml", guesses_target=False)
    (tmp_path / "job.toml").touch()
    with pytest.raises(
        JobFileError, match=r"there is a file .*job\.toml already: give the job another name by --output"
    ):
        run_init(str(tmp_path), "price", tmp_path / "job.toml", guesses_target=False)
    with pytest.raises(JobFileError, match="cannot be written: No such file"):
        run_init(str(tmp_path), "price", tmp_path / "no" / "job.toml", guesses_target=False)


def test_the_command_writes_the_draft(tmp_path: Path) -> None:
    pq.write_table(draw_regression(0), tmp_path / "rows.parquet")
    done = run_command("init", "rows.parquet", "--target", "price", "-o", "price.toml", "--json", cwd=tmp_path)
    assert done.result == {"job": "price.toml", "partitions": 1, "rows": 200, "target": "price"}
    assert read_job(tmp_path / "price.toml", {}).source.targets == ("price",)
