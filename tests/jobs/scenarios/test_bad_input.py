"""Bad input through the real command: the message names file and column, the last commit stands, a repair goes on."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import (
    Outcome,
    Workplace,
    assert_same_model,
    draw_rows,
    open_store,
    run_command,
    run_limited,
    set_column,
)

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.commands.ingest import run_ingest
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.stores.catalog.models import list_models
from ridgestream.stores.errors.exceptions import PartitionError

Spoil = Callable[[Path], None]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("learned") / "work")
    work.put_all(range(2))
    work.run_here()
    work.put(2)
    return work


@pytest.fixture
def work(tmp_path: Path, learned: Workplace) -> Workplace:
    """A store that has learned two partitions; a third has come."""
    return Workplace(Path(shutil.copytree(learned.folder, tmp_path / "work")))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("undisturbed"))
    work.put_all(range(3))
    work.run_here()
    return work


def assert_refused(done: Outcome, code: int, *expected: str) -> None:
    """One message without a traceback on standard error, nothing on standard output."""
    assert (done.code, done.out) == (code, ""), done
    assert "Traceback" not in done.err
    (line,) = [line for line in done.err.splitlines() if line.startswith("ridgestream: ")]
    for text in expected:
        assert text in line


def assert_goes_on(work: Workplace, undisturbed: Workplace) -> None:
    work.put(2)
    told = run_command("run", work.job(), "--json").result
    assert (told["new_partitions"], told["partitions_consumed"]) == (1, 3)
    assert_same_model(work.model(), undisturbed.model())


def drop_column(name: str) -> Spoil:
    return lambda path: pq.write_table(pq.read_table(path).drop_columns([name]), path)


def put_value(name: str, row: int, value: float | None) -> Spoil:
    def spoil(path: Path) -> None:
        table = pq.read_table(path)
        values = table[name].to_pylist()
        values[row] = value
        pq.write_table(set_column(table, name, pa.array(values)), path)

    return spoil


def put_column(name: str, values: pa.Array) -> Spoil:
    return lambda path: pq.write_table(set_column(pq.read_table(path), name, values), path)


def write_bytes(content: bytes) -> Spoil:
    def spoil(path: Path) -> None:
        path.write_bytes(content)

    return spoil


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4:40] = bytes(36)
    path.write_bytes(content)


def change_a_value(path: Path) -> None:
    pq.write_table(pq.read_table(path), path, write_page_checksum=True, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)


def name_twice(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(pa.Table.from_arrays([*table.columns, table["x1"]], names=[*table.column_names, "x1"]), path)


TEXT = pa.array(["a"] * 200)
SPOILS: dict[str, tuple[Spoil, tuple[str, ...]]] = {
    "no target": (drop_column("label"), ("no column 'label'", "x0, x1, x2, x3")),
    "no feature": (drop_column("x2"), ("no column 'x2'",)),
    "NaN": (put_value("x1", 17, float("nan")), ("'x1'", "nan", "row 17")),
    "null": (put_value("x1", 17, None), ("'x1'", "null", "row 17")),
    "null target": (put_value("label", 3, None), ("'label'", "null", "row 3")),
    "infinite": (put_value("x3", 199, float("-inf")), ("'x3'", "-inf", "row 199")),
    "1e200": (put_value("x3", 0, 1e200), ("'x3'", "1e+200", "row 0")),
    "all null": (put_column("x0", pa.nulls(200)), ("'x0'", "null")),
    "text for numbers": (put_column("x0", TEXT), ("'x0'", "string", "numeric")),
    "text for the target": (put_column("label", TEXT), ("'label'", "string", "positive = 2")),
    "lists": (put_column("x0", pa.array([[1.0]] * 200)), ("'x0'", "list", "numeric")),
    "a number of 2**60 + 1": (
        put_column("x0", pa.array([2**60 + 1] * 200)),
        ("'x0'", "cannot represent integers beyond 2⁵³"),
    ),
    "a name twice": (name_twice, ("2 columns 'x1'",)),
    "0 bytes": (write_bytes(b""), ("is empty (0 bytes)",)),
    "no Parquet": (write_bytes(b"x0,x1\n1,2\n" * 50), ("is not a readable Parquet file",)),
    "without its end": (cut, ("is not a readable Parquet file",)),
    "damaged inside": (damage, ("cannot be decoded",)),
    "a bit changed in a page with a checksum": (change_a_value, ("cannot be decoded", "CRC")),
}


BY_COMMAND = ("no target", "NaN", "text for numbers", "0 bytes", "without its end", "damaged inside")
"""The command is run for one of each kind; the others are refused by the same job in this process."""


@pytest.mark.parametrize("name", SPOILS)
def test_a_partition_that_cannot_be_used(work: Workplace, undisturbed: Workplace, name: str) -> None:
    spoil, expected = SPOILS[name]
    path = work.folder / "rows" / "part-02.parquet"
    spoil(path)
    snapshot = work.snapshot()
    if name in BY_COMMAND:
        assert_refused(run_command("run", work.job(), "--json"), exit_codes.DATA, str(path), *expected)
    else:
        with pytest.raises(PartitionError, match=re.escape(str(path))) as caught:
            work.run_here()
        assert exit_codes.exit_code_of(caught.value) == exit_codes.DATA
        assert all(text in str(caught.value) for text in expected)
    assert work.snapshot() == snapshot
    assert work.model().learned == (0, 1)
    work.put(2)
    told = work.run_here()
    assert (told["new_partitions"], told["partitions_consumed"]) == (1, 3)
    assert_same_model(work.model(), undisturbed.model())


def test_a_bad_partition_among_good_ones_takes_none_of_its_commit_in(tmp_path: Path, undisturbed: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(2))
    path = work.put(2, draw_rows(2).drop_columns(["x3"]))
    assert_refused(run_command("run", work.job()), exit_codes.DATA, str(path), "'x3'")
    assert list_models(open_store(work.store).root()) == ()
    work.put(2)
    work.run_here()
    assert_same_model(work.model(), undisturbed.model())


def test_a_first_partition_that_cannot_be_used_leaves_a_store_that_takes_the_repaired_one(
    tmp_path: Path, undisturbed: Workplace
) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(3))
    path = work.put(0)
    path.write_bytes(b"")
    assert_refused(run_command("run", work.job()), exit_codes.DATA, str(path), "is empty (0 bytes)")
    work.put(0)
    work.run_here()
    assert_same_model(work.model(), undisturbed.model())


def test_held_out_rows_that_cannot_be_used(work: Workplace, undisturbed: Workplace) -> None:
    path = work.folder / "held-out" / "part-00.parquet"
    put_value("x1", 17, float("nan"))(path)
    snapshot = work.snapshot()
    assert_refused(run_command("evaluate", work.job()), exit_codes.DATA, str(path), "'x1'", "nan", "row 17")
    done = run_command("run", work.job())
    assert_refused(done, exit_codes.DATA, str(path), "'x1'", "nan", "row 17", "the model has learned and is kept")
    assert work.model().learned == (0, 1, 2)
    assert work.model().history[-1].test_error is None
    assert snapshot in [entry.id for entry in open_store(work.store).repository.ancestry(branch="main")]
    work.put(0, draw_rows(1000), where="held-out")
    assert work.run_here()["partitions_consumed"] == 3
    assert_same_model(work.model(), undisturbed.model())


def test_rows_to_predict_that_cannot_be_used_leave_no_file(work: Workplace) -> None:
    work.put(0, draw_rows(7), where="new")
    path = work.put(1, draw_rows(8), where="new")
    put_value("x1", 17, float("nan"))(path)
    done = run_command("predict", work.job(), work.folder / "new", work.folder / "out")
    assert_refused(done, exit_codes.DATA, str(path), "'x1'", "nan", "row 17")
    assert [entry.name for entry in (work.folder / "out").iterdir()] == ["part-00.parquet"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("nowhere", "nowhere does not exist"),
        ("empty", "has no file whose name ends in .parquet"),
        ("other", "has no file whose name ends in .parquet"),
        ("other/table.csv", "is not a readable Parquet file"),
    ],
)
def test_a_source_without_partitions(work: Workplace, source: str, expected: str) -> None:
    (work.folder / "empty").mkdir()
    (work.folder / "other").mkdir()
    (work.folder / "other" / "table.csv").write_text("x0\n1\n")
    snapshot = work.snapshot()
    done = run_command("run", work.job({"source.path": source}))
    assert_refused(done, exit_codes.DATA, str(work.folder / source), expected)
    assert work.snapshot() == snapshot


def test_a_source_that_is_not_there_makes_no_store(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    assert_refused(run_command("run", work.job()), exit_codes.DATA, str(tmp_path / "rows"), "does not exist")
    assert not work.store.exists()


@pytest.mark.parametrize("command", ["run", "inspect"])
@pytest.mark.parametrize("kind", ["file", "folder", "below a file"])
def test_a_store_path_that_is_something_else(tmp_path: Path, command: str, kind: str) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    store = "store/deep" if kind == "below a file" else "store"
    if kind == "folder":
        work.store.mkdir()
        (work.store / "thesis.tex").write_text("mine")
    else:
        work.store.write_text("mine")
    expected = {"file": "is a file", "folder": "holds other files", "below a file": ""}[kind]
    before = sorted(tmp_path.rglob("*"))
    done = run_command(command, work.job({"store": store}, name="job.toml"))
    assert_refused(done, exit_codes.STORE, str(tmp_path / store), expected)
    after = [path for path in sorted(tmp_path.rglob("*")) if path.name != "job.toml"]
    assert after == before
    assert (work.store / "thesis.tex" if kind == "folder" else work.store).read_text() == "mine"


def without_override(*arguments: str | Path) -> Outcome:
    """Run the command so that the permissions of files hold, also where the tests run as root."""
    return run_limited(DROP_OVERRIDE, *arguments)


DROP_OVERRIDE = "os.geteuid() or libc.prctl(24, 1, 0, 0, 0)"
"""PR_CAPBSET_DROP of CAP_DAC_OVERRIDE, which takes effect at the exec."""


def test_a_store_that_cannot_be_written_can_be_read_and_goes_on_when_it_can(
    work: Workplace, undisturbed: Workplace
) -> None:
    snapshot = work.snapshot()
    folders = [work.store, *(path for path in work.store.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        touched = run_limited(DROP_OVERRIDE, work.store / "x", program="touch")
        assert "Permission denied" in touched.err
        done = without_override("run", work.job())
        assert_refused(done, exit_codes.STORE, str(work.store), "cannot be written: Permission denied")
        assert without_override("inspect", work.store, "--json").result["snapshot"] == snapshot
        assert without_override("evaluate", work.job(), "--json").result["snapshot"] == snapshot
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert work.snapshot() == snapshot
    assert_goes_on(work, undisturbed)


def test_a_place_for_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    place = tmp_path / "sealed"
    place.mkdir()
    place.chmod(0o555)
    try:
        done = without_override("run", work.job({"store": "sealed/store"}))
    finally:
        place.chmod(0o755)
    assert_refused(done, exit_codes.STORE, str(place / "store"), "cannot be written: Permission denied")
    assert list(place.iterdir()) == []


def test_a_place_for_predictions_that_cannot_be_written(work: Workplace) -> None:
    place = work.folder / "sealed"
    place.mkdir()
    place.chmod(0o555)
    try:
        done = without_override("predict", work.job(), work.folder / "held-out", place)
    finally:
        place.chmod(0o755)
    assert_refused(done, exit_codes.STORE, str(place / "part-00.parquet"), "cannot be written")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("limit_bytes", [0, 500, 3000])
def test_a_disk_that_is_full_in_mid_run(work: Workplace, undisturbed: Workplace, limit_bytes: int) -> None:
    """A file may be no longer than `limit_bytes`: the write that passes it fails, as on a full disk."""
    snapshot = work.snapshot()
    limit = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))"
    done = run_limited(limit, "run", work.job())
    assert_refused(done, exit_codes.STORE, str(work.store))
    assert snapshot in [entry.id for entry in open_store(work.store).repository.ancestry(branch="main")]
    assert work.model().learned == (0, 1)
    work.put(2)
    work.run_here()
    assert_same_model(work.model(), undisturbed.model())


def test_a_chunk_that_is_missing_or_damaged_is_an_error_of_the_store(work: Workplace) -> None:
    run_ingest(read_job(work.job(), {}), InProcess(), Silent(), 0.0)
    chunks = sorted((work.store / "chunks").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert len(chunks) > 3
    kept = {path: path.read_bytes() for path in chunks}
    for path in chunks:
        path.unlink()
    assert_refused(run_command("train", work.job()), exit_codes.STORE, str(work.store))
    for path, content in kept.items():
        path.write_bytes(content[:-20] + bytes(20))
    assert_refused(run_command("train", work.job()), exit_codes.STORE, str(work.store))
    for path, content in kept.items():
        path.write_bytes(content)
    assert work.run_here()["partitions_consumed"] == 3


def test_more_memory_than_may_be_used_is_refused_with_the_bytes_before_anything_is_read(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    done = run_command("run", work.job({"model.max_basis": 50_000, "memory_limit": "1GB"}))
    assert_refused(done, exit_codes.MEMORY, "max_basis = 50000 needs 280 GB", "1 GB may be used", "lower max_basis")
    assert "event='ingest'" not in done.err
    assert work.run_here({"memory_limit": "1GB"})["rows_seen"] == 200


def test_a_partition_without_rows_is_no_error(work: Workplace) -> None:
    work.put(2, draw_rows(2).slice(0, 0))
    told = run_command("run", work.job(), "--json").result
    assert (told["new_partitions"], told["new_rows"], told["partitions_consumed"]) == (1, 0, 3)


def test_columns_in_another_order_and_more_of_them_are_no_error(work: Workplace, undisturbed: Workplace) -> None:
    table = set_column(draw_rows(2), "extra", pa.array(np.arange(200)))
    work.put(2, table.select(["extra", "label", "x3", "x1", "x0", "x2"]))
    done = run_command("run", work.job(), "--json")
    assert done.result["partitions_consumed"] == 3
    assert "not in the schema are not read" in done.err
    assert "extra" in done.err
    assert_same_model(work.model(), undisturbed.model())


def test_integers_where_floats_were_are_no_error(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number, kind in enumerate((pa.float64(), pa.int16(), pa.float32(), pa.bool_())):
        values = pa.array(np.arange(200) % 2).cast(kind)
        work.put(number, set_column(draw_rows(number), "x0", values))
    assert work.run_here({"evaluate.path": None})["partitions_consumed"] == 4


def test_a_store_of_a_newer_release_is_refused_with_both_versions(work: Workplace) -> None:
    with open_store(work.store).write("Pretend") as writing:
        writing.root.attrs["ridgestream"] = {"format_version": 4}
    for command in ("run", "inspect"):
        assert_refused(run_command(command, work.job()), exit_codes.STORE, "format version 4", "reads up to 3")


def test_a_model_that_has_lost_an_array_is_refused_by_name(work: Workplace) -> None:
    with open_store(work.store).write("Pretend") as writing:
        del writing.root["models/model/gram"]
    assert_refused(run_command("run", work.job()), exit_codes.MODEL, "'model' lacks the array gram")


def test_numbers_that_are_no_labels(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    for positive in ("two", True):
        done = run_command("run", work.job({"source.positive": positive}))
        assert_refused(done, exit_codes.DATA, "part-00.parquet", "'label'", f"positive = {positive!r}")
