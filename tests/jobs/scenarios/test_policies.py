"""Partitions that change, vanish, are renamed or cannot be used: none is lost, repeated, or dropped silently."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import ROWS, Settings, Workplace, assert_same_model, draw_rows, open_store, set_column
from support.jobs.recording import Notes

from ridgestream.jobs.commands.quarantine import run_quarantine
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.stores.catalog.ledger import Ledger, read_ledger
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.segments.segments import Segments

REBUILD = {"source.on_changed": "rebuild"}
IGNORE = {"source.on_changed": "ignore"}
QUARANTINE = {"source.on_bad": "quarantine"}


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(4))
    return work


def run(work: Workplace, changes: Settings | None = None) -> Notes:
    notes = Notes()
    run_job(read_job(work.job(changes), {}), InProcess(), notes, 0.0, new_model=False)
    return notes


def ledger_of(work: Workplace) -> Ledger:
    return read_ledger(open_store(work.store).root())


def names_of(work: Workplace) -> list[str]:
    return [entry.name for entry in ledger_of(work).entries]


def segments_of(work: Workplace) -> list[int]:
    segments = Segments(open_store(work.store).root())
    return [number for number in range(100) if number in segments]


def run_over(tmp_path: Path, *tables: tuple[int, int]) -> Workplace:
    """A new workplace after one run over partitions (number, seed)."""
    work = Workplace(tmp_path / "fresh")
    for number, seed in tables:
        work.put(number, draw_rows(seed))
    work.put(0, draw_rows(1000), where="held-out")
    work.run_here()
    return work


def test_a_changed_partition_is_an_error_by_default_and_nothing_is_lost(work: Workplace) -> None:
    run(work)
    before = work.snapshot()
    work.put(1, draw_rows(77))
    work.put(9)
    with pytest.raises(
        PartitionError, match=r'part-01\.parquet was ingested with other values .*on_changed = "ignore"'
    ):
        run(work)
    assert work.snapshot() == before


def test_a_changed_partition_may_be_ignored(tmp_path: Path, work: Workplace) -> None:
    run(work, IGNORE)
    work.put(1, draw_rows(77))
    (work.folder / "rows" / "part-02.parquet").write_bytes(b"PAR1")
    for night in range(2):
        work.put(4 + night)
        notes = run(work, IGNORE)
        assert [f["partition"] for f in notes.all("ingest.partition_changed")] == [
            "part-01.parquet",
            "part-02.parquet",
        ]
    assert_same_model(work.model(), run_over(tmp_path, *((n, n) for n in range(6))).model())


@pytest.mark.thorough
@pytest.mark.parametrize("night", [0, 1])
def test_a_rebuild_gives_the_model_of_one_run_over_the_present_files(
    tmp_path: Path, work: Workplace, night: int
) -> None:
    run(work)
    work.put(5)
    run(work)
    work.put(1, draw_rows(77))
    for number in range(2, 2 + night):
        work.put(number, draw_rows(70 + number, rows=50))
    work.put(4)
    notes = run(work, REBUILD)
    rebuilt = [f["partition"] for f in notes.all("ingest.partition_rebuilt")]
    assert rebuilt == [f"part-{n:02d}.parquet" for n in range(1, 2 + night)]
    assert names_of(work) == [f"part-{n:02d}.parquet" for n in range(6)]
    straight = Workplace(tmp_path / "straight")
    for path in sorted((work.folder / "rows").iterdir()):
        straight.put(int(path.stem[-2:]), pq.read_table(path))
    straight.put(0, draw_rows(1000), where="held-out")
    straight.run_here()
    rebuilt_model, expected = work.model(), straight.model()
    assert len(rebuilt_model.learned) == 6
    for key, array in expected.arrays.items():
        assert array.tobytes() == rebuilt_model.arrays[key].tobytes(), key
    assert (rebuilt_model.counters, rebuilt_model.encoding) == (expected.counters, expected.encoding)
    assert [night.number for night in rebuilt_model.history] == [1, 2, 3]
    assert run(work, REBUILD).codes[-1] == "train.nothing_new"
    work.put(6)
    work.run_here()
    straight.put(6)
    straight.run_here()
    assert work.model().arrays["coefficients"].tobytes() == straight.model().arrays["coefficients"].tobytes()


def test_the_segment_of_a_changed_partition_leaves_the_store(work: Workplace) -> None:
    run(work)
    before = work.snapshot()
    work.put(1, draw_rows(77))
    run(work, REBUILD)
    assert [e.segment for e in ledger_of(work).entries] == [0, 4, 2, 3]
    store = open_store(work.store)
    assert segments_of(work) == [0, 2, 3, 4]
    assert 1 in Segments(store.root(before))


@pytest.mark.thorough
def test_a_renamed_partition_is_not_learned_again(tmp_path: Path, work: Workplace) -> None:
    run(work)
    rows = work.folder / "rows"
    (rows / "part-01.parquet").rename(rows / "day-01.parquet")
    notes = run(work)
    assert (
        "ingest.partition_renamed",
        {"partition": "day-01.parquet", "was": "part-01.parquet"},
    ) in notes.events
    assert names_of(work)[1] == "day-01.parquet"
    snapshot = work.snapshot()
    run(work)
    assert work.snapshot() == snapshot
    work.put(4)
    run(work)
    assert_same_model(work.model(), run_over(tmp_path, *((n, n) for n in range(5))).model())


def test_a_copy_is_ingested_and_reported(work: Workplace) -> None:
    run(work)
    work.put(7, draw_rows(1))
    repeated = run(work).all("ingest.partition_repeated")
    assert repeated == [{"partition": "part-07.parquet", "older": "part-01.parquet"}]


@pytest.mark.parametrize(("changed", "copied"), [(1, 2), (2, 1)])
def test_a_partition_rebuilt_as_a_copy_of_another_is_reported(work: Workplace, changed: int, copied: int) -> None:
    run(work)
    work.put(changed, draw_rows(copied))
    repeated = run(work, REBUILD).all("ingest.partition_repeated")
    assert repeated == [{"partition": f"part-0{changed}.parquet", "older": f"part-0{copied}.parquet"}]


def test_a_touched_file_is_read_only_once(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    run(work)
    os.utime(work.folder / "rows" / "part-02.parquet", ns=(1, 1))
    snapshot = work.snapshot()
    run(work)
    assert work.snapshot() == snapshot
    work.put(4)
    run(work)
    monkeypatch.setattr("ridgestream.pipeline.ingest.ingest.content_of", None)
    run(work)


@pytest.mark.thorough
def test_bad_partitions_are_quarantined_with_the_reason_and_tried_again_when_rewritten(
    tmp_path: Path, work: Workplace
) -> None:
    (work.folder / "rows" / "part-00.parquet").write_bytes(b"no footer")
    work.put(2, set_column(draw_rows(2), "x1", [float("inf")] * ROWS))
    with pytest.raises(PartitionError, match=r"part-00\.parquet is not a readable Parquet file"):
        run(work)
    notes = run(work, QUARANTINE)
    reasons = {str(f["partition"]): f["reason"] for f in notes.all("ingest.partition_quarantined")}
    assert sorted(reasons) == ["part-00.parquet", "part-02.parquet"]
    assert "column 'x1' has the value inf in row 0" in str(reasons["part-02.parquet"])
    assert names_of(work) == ["part-01.parquet", "part-03.parquet"]
    later = run(work)
    assert later.events[0] == (
        "ingest.partitions_in_quarantine",
        {"partitions": 2, "first": "part-00.parquet"},
    )
    bad = (work.folder / "rows" / "part-00.parquet").rename(tmp_path / "aside")
    assert "ingest.partition_quarantined" not in run(work).codes
    bad.rename(work.folder / "rows" / "part-00.parquet")
    work.put(2, draw_rows(2))
    run(work)
    assert names_of(work) == ["part-01.parquet", "part-03.parquet", "part-02.parquet"]
    assert [each.name for each in ledger_of(work).quarantined] == ["part-00.parquet"]
    straight = run_over(tmp_path, (1, 1), (3, 3), (4, 2))
    assert work.model().arrays["coefficients"].tobytes() == straight.model().arrays["coefficients"].tobytes()


def test_where_every_partition_is_bad_the_job_fails_until_one_is_mended(work: Workplace) -> None:
    for number in range(4):
        work.put(number, set_column(draw_rows(number), "x1", [float("inf")] * ROWS))
    for _ in range(2):
        with pytest.raises(PartitionError, match=r"each of the 4 partitions is in quarantine, part-00\.parquet for"):
            run(work, QUARANTINE)
    assert len(ledger_of(work).quarantined) == 4
    work.put(1, draw_rows(1))
    run(work, QUARANTINE)
    assert names_of(work) == ["part-01.parquet"]


@pytest.mark.parametrize("number", [0, 9])
def test_a_first_or_last_partition_may_be_bad(work: Workplace, number: int) -> None:
    run(work)
    (work.folder / "rows" / f"part-{number:02d}-bad.parquet").write_bytes(b"no footer")
    run(work, QUARANTINE)
    assert [each.name for each in ledger_of(work).quarantined] == [f"part-{number:02d}-bad.parquet"]


def test_a_partition_with_a_new_category_may_be_quarantined(work: Workplace) -> None:
    for number in range(4):
        work.put(number, set_column(draw_rows(number), "colour", ["red", "blue"] * (ROWS // 2)))
    run(work, {"evaluate.path": None})
    work.put(4, set_column(draw_rows(4), "colour", ["mauve"] * ROWS))
    work.put(5, set_column(draw_rows(5), "colour", ["red"] * ROWS))
    run(work, {"evaluate.path": None, **QUARANTINE})
    assert names_of(work)[-1] == "part-05.parquet"
    (each,) = ledger_of(work).quarantined
    assert "the category 'mauve'" in each.reason
    assert "mauve" not in ledger_of(work).categories[0]
    assert segments_of(work) == [0, 1, 2, 3, 5]


def test_a_rebuilt_partition_may_have_a_new_category_since_the_model_starts_over(work: Workplace) -> None:
    for number in range(2):
        work.put(number, set_column(draw_rows(number), "colour", ["red", "blue"] * (ROWS // 2)))
    for number in (2, 3):
        (work.folder / "rows" / f"part-{number:02d}.parquet").unlink()
    run(work, {"evaluate.path": None})
    work.put(1, set_column(draw_rows(1), "colour", ["mauve"] * ROWS))
    run(work, {"evaluate.path": None, **REBUILD})
    assert work.model().encoding["categories"] == [["red", "blue", "mauve"]]
    assert work.model().counters["rows_seen"] == 2 * ROWS


def test_a_store_cannot_be_created_without_a_good_partition(work: Workplace) -> None:
    for path in (work.folder / "rows").iterdir():
        path.write_bytes(b"")
    with pytest.raises(PartitionError, match=r"part-00\.parquet is empty \(0 bytes\)"):
        run(work, QUARANTINE)


def reject(work: Workplace, name: str, *, release: bool = False) -> dict[str, object]:
    return run_quarantine(read_job(work.job(), {}), name, "sensor was off", 0.0, release=release)


def test_a_partition_may_be_rejected_before_it_is_ingested(work: Workplace) -> None:
    run(work)
    work.put(4)
    result = reject(work, "part-04.parquet")
    assert (result["quarantined"], result["learned_by"]) == (True, [])
    work.put(4, draw_rows(44))
    assert run(work).events[0][1] == {"partitions": 1, "first": "part-04.parquet"}
    assert len(names_of(work)) == 4
    reject(work, "part-04.parquet", release=True)
    run(work)
    assert names_of(work)[-1] == "part-04.parquet"


def test_an_ingested_partition_may_be_rejected_and_released(tmp_path: Path, work: Workplace) -> None:
    run(work)
    result = reject(work, "part-01.parquet")
    assert result["learned_by"] == ["model"]
    assert names_of(work) == ["part-00.parquet", "part-02.parquet", "part-03.parquet"]
    assert ledger_of(work).quarantined[0].reason == "sensor was off"
    work.put(4)
    run(work)
    assert len(work.model().learned) == 5
    work.run_here({"model.name": "other"})
    straight = run_over(tmp_path, (0, 0), (2, 2), (3, 3), (4, 4))
    assert work.model("other").arrays["coefficients"].tobytes() == straight.model().arrays["coefficients"].tobytes()
    reject(work, "part-01.parquet", release=True)
    assert names_of(work)[-1] == "part-01.parquet"
    snapshot = work.model().learned
    run(work)
    assert work.model().learned == snapshot


def test_an_unknown_partition_cannot_be_rejected_or_released(work: Workplace) -> None:
    run(work)
    with pytest.raises(PartitionError, match=r"there is no partition 'part-99\.parquet' in the store or the source"):
        reject(work, "part-99.parquet")
    with pytest.raises(PartitionError, match=r"'part-01\.parquet' is not in quarantine; in quarantine: none"):
        reject(work, "part-01.parquet", release=True)
