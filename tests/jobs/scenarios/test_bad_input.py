"""Bad input to the real command: the message names file and column, the last commit stays, a repaired job continues."""

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
from support.stores.stores import as_format_3

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.commands.ingest import run_ingest
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.stores.catalog.models import list_models
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.repository.store_format import FORMAT_VERSION

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("learned") / "work")
    work.put_all(range(2))
    work.run_here()
    work.put(2)
    return work


@pytest.fixture
def work(tmp_path: Path, learned: Workplace) -> Workplace:
    """A store that has learned two partitions of three."""
    return Workplace(Path(shutil.copytree(learned.folder, tmp_path / "work")))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("undisturbed"))
    work.put_all(range(3))
    work.run_here()
    return work


def assert_refused(outcome: Outcome, code: int, *expected: str) -> None:
    """Assert one message without a traceback on standard error, and nothing on standard output."""
    assert (outcome.code, outcome.out) == (code, ""), outcome
    assert "Traceback" not in outcome.err
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("ridgestream: ")]
    for text in expected:
        assert text in line


def assert_goes_on(work: Workplace, undisturbed: Workplace) -> None:
    work.put(2)
    result = run_command("run", work.job(), "--json").result
    assert (result["new_partitions"], result["partitions_consumed"]) == (1, 3)
    assert_same_model(work.model(), undisturbed.model())


def drop_column(name: str) -> Damage:
    return lambda path: pq.write_table(pq.read_table(path).drop_columns([name]), path)


def put_value(name: str, row: int, value: float | None) -> Damage:
    def apply(path: Path) -> None:
        table = pq.read_table(path)
        values = table[name].to_pylist()
        values[row] = value
        pq.write_table(set_column(table, name, pa.array(values)), path)

    return apply


def put_column(name: str, values: pa.Array) -> Damage:
    return lambda path: pq.write_table(set_column(pq.read_table(path), name, values), path)


def write_bytes(content: bytes) -> Damage:
    def apply(path: Path) -> None:
        path.write_bytes(content)

    return apply


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
DAMAGES: dict[str, tuple[Damage, tuple[str, ...]]] = {
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
    "a repeated column name": (name_twice, ("2 columns 'x1'",)),
    "0 bytes": (write_bytes(b""), ("is empty (0 bytes)",)),
    "not Parquet": (write_bytes(b"x0,x1\n1,2\n" * 50), ("is not a readable Parquet file",)),
    "truncated": (cut, ("is not a readable Parquet file",)),
    "damaged inside": (damage, ("cannot be decoded",)),
    "a bit changed in a page with a checksum": (change_a_value, ("cannot be decoded", "CRC")),
}


BY_COMMAND = ("no target", "NaN", "text for numbers", "0 bytes", "truncated", "damaged inside")
"""Those for which the command is run, one of each kind; the others run in this process."""


@pytest.mark.samples(3)
@pytest.mark.parametrize("name", DAMAGES)
def test_an_unusable_partition_is_refused_by_name(work: Workplace, undisturbed: Workplace, name: str) -> None:
    apply, expected = DAMAGES[name]
    path = work.folder / "rows" / "part-02.parquet"
    apply(path)
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
    result = work.run_here()
    assert (result["new_partitions"], result["partitions_consumed"]) == (1, 3)
    assert_same_model(work.model(), undisturbed.model())


def test_nothing_is_committed_of_a_wave_with_a_bad_partition(tmp_path: Path, undisturbed: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(2))
    path = work.put(2, draw_rows(2).drop_columns(["x3"]))
    assert_refused(run_command("run", work.job()), exit_codes.DATA, str(path), "'x3'")
    assert list_models(open_store(work.store).root()) == ()
    work.put(2)
    work.run_here()
    assert_same_model(work.model(), undisturbed.model())


def test_after_an_unusable_first_partition_the_store_accepts_the_repaired_one(
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


def test_unusable_held_out_rows_are_refused_before_training(work: Workplace, undisturbed: Workplace) -> None:
    path = work.folder / "held-out" / "part-00.parquet"
    put_value("x1", 17, float("nan"))(path)
    snapshot = work.snapshot()
    assert_refused(run_command("evaluate", work.job()), exit_codes.DATA, str(path), "'x1'", "nan", "row 17")
    before = work.model()
    assert_refused(run_command("run", work.job()), exit_codes.DATA, str(path), "'x1'", "nan", "row 17")
    assert_same_model(work.model(), before)
    assert snapshot in [entry.id for entry in open_store(work.store).repository.ancestry(branch="main")]
    work.put(0, draw_rows(1000), where="held-out")
    assert work.run_here()["partitions_consumed"] == 3
    assert_same_model(work.model(), undisturbed.model())


def test_unusable_rows_to_predict_leave_no_file(work: Workplace) -> None:
    work.put(0, draw_rows(7), where="new")
    path = work.put(1, draw_rows(8), where="new")
    put_value("x1", 17, float("nan"))(path)
    outcome = run_command("predict", work.job(), work.folder / "new", work.folder / "out")
    assert_refused(outcome, exit_codes.DATA, str(path), "'x1'", "nan", "row 17")
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
def test_a_source_without_partitions_is_refused(work: Workplace, source: str, expected: str) -> None:
    (work.folder / "empty").mkdir()
    (work.folder / "other").mkdir()
    (work.folder / "other" / "table.csv").write_text("x0\n1\n")
    snapshot = work.snapshot()
    outcome = run_command("run", work.job({"source.path": source}))
    assert_refused(outcome, exit_codes.DATA, str(work.folder / source), expected)
    assert work.snapshot() == snapshot


def test_no_store_is_created_for_a_missing_source(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    assert_refused(run_command("run", work.job()), exit_codes.DATA, str(tmp_path / "rows"), "does not exist")
    assert not work.store.exists()


@pytest.mark.parametrize("command", ["run", "inspect"])
@pytest.mark.parametrize("kind", ["file", "folder", "below a file"])
def test_a_store_path_with_something_else_is_refused(tmp_path: Path, command: str, kind: str) -> None:
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
    outcome = run_command(command, work.job({"store": store}, name="job.toml"))
    assert_refused(outcome, exit_codes.STORE, str(tmp_path / store), expected)
    after = [path for path in sorted(tmp_path.rglob("*")) if path.name != "job.toml"]
    assert after == before
    assert (work.store / "thesis.tex" if kind == "folder" else work.store).read_text() == "mine"


def without_override(*arguments: str | Path) -> Outcome:
    """Run the command so that file permissions apply even where the tests run as root."""
    return run_limited(DROP_OVERRIDE, *arguments)


DROP_OVERRIDE = "os.geteuid() or libc.prctl(24, 1, 0, 0, 0)"
"""PR_CAPBSET_DROP of CAP_DAC_OVERRIDE, which takes effect at the exec."""


@pytest.mark.thorough
def test_a_read_only_store_can_be_read_and_goes_on_once_writable(work: Workplace, undisturbed: Workplace) -> None:
    snapshot = work.snapshot()
    folders = [work.store, *(path for path in work.store.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        attempt = run_limited(DROP_OVERRIDE, work.store / "x", program="touch")
        assert "Permission denied" in attempt.err
        outcome = without_override("run", work.job())
        assert_refused(outcome, exit_codes.STORE, str(work.store), "cannot be written: Permission denied")
        assert without_override("inspect", work.store, "--json").result["snapshot"] == snapshot
        assert without_override("evaluate", work.job(), "--json").result["snapshot"] == snapshot
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert work.snapshot() == snapshot
    assert_goes_on(work, undisturbed)


def test_a_read_only_folder_for_a_store_is_refused(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    folder = tmp_path / "sealed"
    folder.mkdir()
    folder.chmod(0o555)
    try:
        outcome = without_override("run", work.job({"store": "sealed/store"}))
    finally:
        folder.chmod(0o755)
    assert_refused(outcome, exit_codes.STORE, str(folder / "store"), "cannot be written: Permission denied")
    assert list(folder.iterdir()) == []


def test_a_read_only_folder_for_predictions_is_refused(work: Workplace) -> None:
    folder = work.folder / "sealed"
    folder.mkdir()
    folder.chmod(0o555)
    try:
        outcome = without_override("predict", work.job(), work.folder / "held-out", folder)
    finally:
        folder.chmod(0o755)
    assert_refused(outcome, exit_codes.STORE, str(folder / "part-00.parquet"), "cannot be written")
    assert list(folder.iterdir()) == []


@pytest.mark.samples
@pytest.mark.parametrize("limit_bytes", [0, 500, 3000])
def test_a_full_disk_leaves_the_last_commit(work: Workplace, undisturbed: Workplace, limit_bytes: int) -> None:
    """A file may be no longer than `limit_bytes`: the write that passes it fails, as on a full disk."""
    snapshot = work.snapshot()
    limit = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))"
    outcome = run_limited(limit, "run", work.job())
    assert_refused(outcome, exit_codes.STORE, str(work.store))
    assert snapshot in [entry.id for entry in open_store(work.store).repository.ancestry(branch="main")]
    assert work.model().learned == (0, 1)
    work.put(2)
    work.run_here()
    assert_same_model(work.model(), undisturbed.model())


def test_a_missing_or_damaged_chunk_is_a_store_error(work: Workplace) -> None:
    run_ingest(read_job(work.job(), {}), InProcess(), Silent(), 0.0)
    chunks = sorted((work.store / "chunks").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert len(chunks) > 3
    contents = {path: path.read_bytes() for path in chunks}
    for path in chunks:
        path.unlink()
    assert_refused(run_command("train", work.job()), exit_codes.STORE, str(work.store))
    for path, content in contents.items():
        path.write_bytes(content[:-20] + bytes(20))
    assert_refused(run_command("train", work.job()), exit_codes.STORE, str(work.store))
    for path, content in contents.items():
        path.write_bytes(content)
    assert work.run_here()["partitions_consumed"] == 3


def test_too_much_memory_is_refused_with_the_bytes_before_anything_is_read(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    outcome = run_command("run", work.job({"model.max_basis": 50_000, "memory_limit": "1GB"}))
    assert_refused(outcome, exit_codes.MEMORY, "max_basis = 50000 needs 281 GB", "1 GB may be used", "lower max_basis")
    assert "event='ingest'" not in outcome.err
    assert work.run_here({"memory_limit": "1GB"})["rows_seen"] == 200


def test_a_partition_without_rows_is_no_error(work: Workplace) -> None:
    work.put(2, draw_rows(2).slice(0, 0))
    result = run_command("run", work.job(), "--json").result
    assert (result["new_partitions"], result["new_rows"], result["partitions_consumed"]) == (1, 0, 3)


def test_reordered_and_extra_columns_are_no_error(work: Workplace, undisturbed: Workplace) -> None:
    table = set_column(draw_rows(2), "extra", pa.array(np.arange(200)))
    work.put(2, table.select(["extra", "label", "x3", "x1", "x0", "x2"]))
    outcome = run_command("run", work.job(), "--json")
    assert outcome.result["partitions_consumed"] == 3
    assert "not in the schema are not read" in outcome.err
    assert "extra" in outcome.err
    assert_same_model(work.model(), undisturbed.model())


def test_integers_in_a_float_column_are_no_error(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number, kind in enumerate((pa.float64(), pa.int16(), pa.float32(), pa.bool_())):
        values = pa.array(np.arange(200) % 2).cast(kind)
        work.put(number, set_column(draw_rows(number), "x0", values))
    assert work.run_here({"evaluate.path": None})["partitions_consumed"] == 4


def test_a_store_of_a_newer_release_is_refused_with_both_versions(work: Workplace) -> None:
    with open_store(work.store).write("Pretend") as writing:
        writing.root.attrs["ridgestream"] = {"format_version": FORMAT_VERSION + 1}
    versions = f"format version {FORMAT_VERSION + 1}", f"reads up to {FORMAT_VERSION}"
    for command in ("run", "inspect"):
        assert_refused(run_command(command, work.job()), exit_codes.STORE, *versions)


def test_a_model_without_one_of_its_arrays_is_refused_by_name(work: Workplace) -> None:
    with open_store(work.store).write("Pretend") as writing:
        del as_format_3(writing.root)["models/model/gram"]
    assert_refused(run_command("run", work.job()), exit_codes.MODEL, "'model' lacks the array gram")


def test_a_positive_class_of_another_type_is_refused(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    for positive in ("two", True):
        outcome = run_command("run", work.job({"source.positive": positive}))
        assert_refused(outcome, exit_codes.DATA, "part-00.parquet", "'label'", f"positive = {positive!r}")
