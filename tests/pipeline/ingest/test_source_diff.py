"""What the source holds beside the ledger, by names, sizes, time stamps and, where these differ, by content."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.policies import ERROR, IGNORE, REBUILD
from ridgestream.pipeline.ingest.source_diff import (
    Look,
    count_usable_rows,
    find_changed,
    find_renamed,
    look_again,
    rename,
    retouch,
    sort_arrivals,
)
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, Quarantined
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.partitions import PartitionFile
from ridgestream.stores.schema.schema import Feature, Schema

SCHEMA = Schema("y", None, (Feature("a", "numeric"),))


def file(name: str, size: int = 10, modified: int = 1) -> PartitionFile:
    return PartitionFile(name, Path("/rows") / name, size, modified)


def entry(number: int, name: str, content: str = "", size: int = 10) -> LedgerEntry:
    return LedgerEntry(number, name, size, 1, content or f"hash of {name}", 5)


LEDGER = Ledger(SCHEMA, (entry(0, "a"), entry(4, "b"), entry(2, "c")), ((),), next_segment=5)


def test_files_are_told_apart_by_names_sizes_and_time_stamps() -> None:
    bad = Quarantined("bad", "no footer", 10, 1, "then")
    again = replace(bad, name="written again", size_bytes=9)
    by_hand = replace(bad, name="by hand", size_bytes=9, by_hand=True)
    ledger = replace(LEDGER, quarantined=(bad, again, by_hand, replace(bad, name="away")))
    names = ("new", "bad", "written again", "by hand", "c")
    found = sort_arrivals(ledger, [file("a"), file("b", modified=2), *map(file, names[:-1])])
    assert [f.name for f in found.fresh] == ["new", "written again"]
    assert [f.name for f in found.touched] == ["b"]
    assert [e.name for e in found.gone] == ["c"]
    assert [q.name for q in found.rejected] == ["bad", "by hand"]


def test_a_touched_file_with_the_same_values_is_unchanged_and_is_not_read_again() -> None:
    looks = [Look(file("b", 11, 7), "hash of b"), Look(file("c", 12, 8), "other")]
    assert find_changed(looks[:1], LEDGER, ERROR) == ()
    now = retouch(LEDGER, looks).by_name()
    assert (now["b"].size_bytes, now["b"].modified_ns) == (11, 7)
    assert now["c"] == LEDGER.by_name()["c"]


def test_other_values_are_what_the_policy_makes_of_them() -> None:
    looks = [Look(file("a", 11), "hash of a"), Look(file("b", 11), "cdcdcdcdcdcdcdcd")]
    for policy in (IGNORE, REBUILD):
        assert [f.name for f in find_changed(looks, LEDGER, policy)] == ["b"]
    message = r"/rows/b was ingested with other values \(content hash hash of b, now cdcdcdcdcdcd\); .*on_changed"
    with pytest.raises(PartitionError, match=message):
        find_changed(looks, LEDGER, ERROR)


def test_a_file_that_can_no_longer_be_read_cannot_be_taken_in_anew() -> None:
    looks = [Look(file("b", 3), None, "/rows/b is not a readable Parquet file")]
    for policy in (ERROR, REBUILD):
        with pytest.raises(PartitionError, match=r"^/rows/b is not a readable .*; it was taken in with 5 rows"):
            find_changed(looks, LEDGER, policy)
    assert [f.name for f in find_changed(looks, LEDGER, IGNORE)] == ["b"]


def content_by_name(at: PartitionFile, schema: Schema) -> str:
    assert schema == SCHEMA
    if at.name == "broken":
        raise PartitionError("broken")
    return {"moved": "hash of c", "other": "hash of another"}[at.name]


def test_a_look_that_fails_says_why() -> None:
    assert look_again(file("broken"), SCHEMA, content_by_name) == Look(file("broken"), None, "broken")


def test_only_files_that_may_be_renamed_ones_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgestream.pipeline.ingest.source_diff.count_rows", lambda f: 7 if f.name == "longer" else 5)
    files = [file("a"), file("b"), file("moved"), file("other"), file("longer"), file("larger", 11), file("broken")]
    found = find_renamed(sort_arrivals(LEDGER, files), SCHEMA, InProcess(), content_by_name)
    assert found == {"c": file("moved")}
    assert [(e.segment, e.name) for e in rename(LEDGER, found).entries] == [(0, "a"), (4, "b"), (2, "moved")]
    assert find_renamed(sort_arrivals(LEDGER, [*files, file("c")]), SCHEMA, InProcess(), content_by_name) == {}


def test_a_file_without_a_footer_has_no_usable_rows(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    whole = [tmp_path / f"part-{n}" for n in (3, 5)]
    for path, rows in zip(whole, (3, 5), strict=True):
        pq.write_table(pa.table({"a": range(rows)}), path)
    files = [PartitionFile(path.name, path, path.stat().st_size, 1) for path in (whole[0], tmp_path / "x", whole[1])]
    assert count_usable_rows(files) == [3, 0, 5]
    assert count_usable_rows(files[1:2]) == [0]
