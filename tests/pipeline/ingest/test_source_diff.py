"""Comparison of the source with the ledger: by names, sizes, time stamps and, where these differ, by content."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.policies import ERROR, IGNORE, REBUILD, Policies
from ridgestream.pipeline.ingest.ingest_plan import (
    find_changed,
    find_renamed,
    plan_ingest,
    with_new_names,
    with_new_times,
)
from ridgestream.pipeline.ingest.source_diff import (
    FileContent,
    SourceContents,
    count_usable_rows,
    diff_source,
    read_content,
    read_contents,
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


def test_files_are_distinguished_by_names_sizes_and_time_stamps() -> None:
    bad = Quarantined("bad", "no footer", 10, 1, "then")
    rewritten = replace(bad, name="rewritten", size_bytes=9)
    by_hand = replace(bad, name="by hand", size_bytes=9, by_hand=True)
    ledger = replace(LEDGER, quarantined=(bad, rewritten, by_hand, replace(bad, name="away")))
    names = ("new", "bad", "rewritten", "by hand", "c")
    diff = diff_source(ledger, [file("a"), file("b", modified=2), *map(file, names[:-1])])
    assert [f.name for f in diff.fresh] == ["new", "rewritten"]
    assert [f.name for f in diff.touched] == ["b"]
    assert [e.name for e in diff.gone] == ["c"]
    assert [q.name for q in diff.quarantined] == ["bad", "by hand"]


def test_a_touched_file_with_the_same_values_is_unchanged_and_is_not_read_again() -> None:
    contents = [FileContent(file("b", 11, 7), "hash of b"), FileContent(file("c", 12, 8), "other")]
    assert find_changed(contents[:1], LEDGER, ERROR) == ()
    updated = with_new_times(LEDGER, contents).by_name()
    assert (updated["b"].size_bytes, updated["b"].modified_ns) == (11, 7)
    assert updated["c"] == LEDGER.by_name()["c"]


def test_other_values_are_refused_ignored_or_rebuilt_by_policy() -> None:
    contents = [FileContent(file("a", 11), "hash of a"), FileContent(file("b", 11), "cdcdcdcdcdcdcdcd")]
    for policy in (IGNORE, REBUILD):
        assert find_changed(contents, LEDGER, policy) == ("b",)
    message = r"/rows/b was ingested with other values \(content hash hash of b, now cdcdcdcdcdcd\); .*on_changed"
    with pytest.raises(PartitionError, match=message):
        find_changed(contents, LEDGER, ERROR)


def test_a_file_that_is_no_longer_readable_cannot_be_rebuilt() -> None:
    contents = [FileContent(file("b", 3), None, "/rows/b is not a readable Parquet file")]
    for policy in (ERROR, REBUILD):
        with pytest.raises(PartitionError, match=r"^/rows/b is not a readable .*; it was ingested with 5 rows"):
            find_changed(contents, LEDGER, policy)
    assert find_changed(contents, LEDGER, IGNORE) == ("b",)


def content_by_name(partition: PartitionFile, schema: Schema) -> str:
    assert schema == SCHEMA
    if partition.name == "broken":
        raise PartitionError("broken")
    return {"moved": "hash of c", "other": "hash of another"}[partition.name]


def test_the_content_of_an_unreadable_file_has_the_reason() -> None:
    assert read_content(file("broken"), SCHEMA, content_by_name) == FileContent(file("broken"), None, "broken")


def test_only_possibly_renamed_files_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgestream.pipeline.ingest.source_diff.count_rows", lambda f: 7 if f.name == "longer" else 5)
    files = [file("a"), file("b"), file("moved"), file("other"), file("longer"), file("larger", 11), file("broken")]
    diff = diff_source(LEDGER, files)
    contents = read_contents(diff, SCHEMA, InProcess(), content_by_name)
    renamed = find_renamed(diff, contents.rename_candidates)
    assert renamed == {"c": file("moved")}
    entries = with_new_names(LEDGER, renamed).entries
    assert [(entry.segment, entry.name) for entry in entries] == [(0, "a"), (4, "b"), (2, "moved")]
    present = diff_source(LEDGER, [*files, file("c")])
    assert read_contents(present, SCHEMA, InProcess(), content_by_name).rename_candidates == ()


@pytest.mark.parametrize("policy", [IGNORE, REBUILD])
def test_a_plan_has_fresh_and_rebuilt_partitions_in_the_order_of_the_files(policy: str) -> None:
    """From values alone: no path of this test exists."""
    files = [file("0"), file("a", 11), file("b", modified=2), file("moved"), file("z")]
    touched = FileContent(file("a", 11), "other"), FileContent(file("b", modified=2), "hash of b")
    contents = SourceContents(touched, (FileContent(file("moved"), "hash of c"),))
    plan = plan_ingest(LEDGER, files, diff_source(LEDGER, files), contents, Policies(on_changed=policy))
    rebuilt = ("a",) if policy == REBUILD else ()
    assert tuple(each.name for each in plan.files) == ("0", *rebuilt, "z")
    assert (plan.rebuilt, plan.changed) == (rebuilt, () if rebuilt else ("a",))
    assert (plan.renamed, plan.gone, plan.quarantined) == ((("c", "moved"),), (), ())
    assert [(entry.name, entry.modified_ns) for entry in plan.ledger.entries] == [("a", 1), ("b", 2), ("moved", 1)]


def test_a_file_without_a_footer_has_no_usable_rows(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    whole = [tmp_path / f"part-{n}" for n in (3, 5)]
    for path, rows in zip(whole, (3, 5), strict=True):
        pq.write_table(pa.table({"a": range(rows)}), path)
    files = [PartitionFile(path.name, path, path.stat().st_size, 1) for path in (whole[0], tmp_path / "x", whole[1])]
    assert count_usable_rows(files) == [3, 0, 5]
    assert count_usable_rows(files[1:2]) == [0]
