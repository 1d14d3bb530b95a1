"""Which files are partitions, their order, and the errors for unreadable ones."""

import os
import re
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores.partitions import mixed_columns, only_partition, write_mixed, write_partition

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.partitions import (
    BATCH_ROWS,
    check_unchanged,
    count_rows,
    list_partitions,
    natural_key,
    read_arrow_schema,
    read_batches,
)


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return folder


def names_in(source: Path) -> list[str]:
    return [file.name for file in list_partitions(source)]


def test_numbers_in_names_are_ordered_as_numbers(tmp_path: Path) -> None:
    touch(tmp_path, "part-10.parquet", "part-2.parquet", "part-1.parquet", "part-100.parquet")
    assert names_in(tmp_path) == ["part-1.parquet", "part-2.parquet", "part-10.parquet", "part-100.parquet"]


def test_names_that_differ_in_leading_zeros_have_one_order(tmp_path: Path) -> None:
    touch(tmp_path, "p1.parquet", "p01.parquet", "p001.parquet", "p2.parquet")
    assert names_in(tmp_path) == ["p001.parquet", "p01.parquet", "p1.parquet", "p2.parquet"]


def test_nested_folders_are_part_of_the_name(tmp_path: Path) -> None:
    touch(tmp_path, "day=10/a.parquet", "day=9/b.parquet", "day=9/a.parquet", "z.parquet")
    assert names_in(tmp_path) == ["day=9/a.parquet", "day=9/b.parquet", "day=10/a.parquet", "z.parquet"]


@pytest.mark.parametrize(
    "name",
    [
        ".part-1.parquet",
        "_metadata.parquet",
        "_temporary/part-1.parquet",
        ".staging/deep/part-1.parquet",
        "part-1.parquet.tmp",
        "part-1.csv",
        "parquet",
    ],
)
def test_hidden_and_other_files_are_not_partitions(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "part-0.parquet", name)
    assert names_in(tmp_path) == ["part-0.parquet"]


def test_a_source_inside_a_hidden_folder_is_listed(tmp_path: Path) -> None:
    touch(tmp_path, ".cache/source/part-0.parquet")
    assert names_in(tmp_path / ".cache" / "source") == ["part-0.parquet"]


def test_a_folder_named_like_a_partition_is_searched(tmp_path: Path) -> None:
    touch(tmp_path, "table.parquet/part-0.parquet")
    assert names_in(tmp_path) == ["table.parquet/part-0.parquet"]


def test_a_single_file_of_any_name_is_a_source(tmp_path: Path) -> None:
    touch(tmp_path, "night.pq", "other.parquet")
    assert names_in(tmp_path / "night.pq") == ["night.pq"]


@pytest.mark.parametrize("name", ["a\x1b[31m.parquet", "b\nridgestream: all is well.parquet", "c\u2028.parquet"])
def test_names_with_control_characters_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PartitionError, match=rf"the name {re.escape(repr(name))} has control characters; rename the"):
        list_partitions(touch(tmp_path, "part-1.parquet", name))


def test_a_missing_source_raises(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match=r"the source .*/nowhere does not exist"):
        list_partitions(tmp_path / "nowhere")


def test_an_inaccessible_source_raises(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match=r"the source .*/xxx+ cannot be read: File name too long"):
        list_partitions(tmp_path / ("x" * 300))


def test_an_unreadable_folder_is_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, *(f"{folder}/a.parquet" for folder in ("open", "locked", "lost+found")))
    look = os.scandir

    def scandir(path: str) -> object:
        if Path(path).name in ("locked", "lost+found"):
            raise PermissionError(13, "Permission denied", path)
        return look(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PartitionError, match=r"locked cannot be read: Permission denied; make it readable"):
        list_partitions(tmp_path)
    monkeypatch.undo()
    assert names_in(tmp_path) == ["locked/a.parquet", "open/a.parquet"]


def test_a_folder_without_partitions_raises(tmp_path: Path) -> None:
    touch(tmp_path, "data.csv", "_x.parquet")
    with pytest.raises(PartitionError, match=r"has no file whose name ends in \.parquet"):
        list_partitions(tmp_path)


def test_a_broken_link_is_not_skipped(tmp_path: Path) -> None:
    touch(tmp_path, "part-0.parquet")
    (tmp_path / "part-1.parquet").symlink_to(tmp_path / "unmounted" / "part-1.parquet")
    with pytest.raises(PartitionError, match=r"part-1\.parquet cannot be read: No such file"):
        list_partitions(tmp_path)


def test_a_link_to_a_partition_is_a_partition(tmp_path: Path) -> None:
    touch(tmp_path, "elsewhere/part.parquet", "source/part-0.parquet")
    (tmp_path / "source" / "part-1.parquet").symlink_to(tmp_path / "elsewhere" / "part.parquet")
    assert names_in(tmp_path / "source") == ["part-0.parquet", "part-1.parquet"]


@given(names=st.lists(st.text(alphabet="ab_-./0123456789²٣", min_size=1, max_size=8), unique=True), random=st.randoms())
def test_natural_order_is_total_and_independent_of_the_listing(names: list[str], random: Random) -> None:
    ordered = sorted(names, key=natural_key)
    shuffled = list(names)
    random.shuffle(shuffled)
    assert sorted(shuffled, key=natural_key) == ordered
    assert len({natural_key(name) for name in names}) == len(names)


@given(numbers=st.lists(st.integers(0, 10**30), min_size=1, unique=True))
def test_natural_order_of_numbered_names_is_numeric(numbers: list[int]) -> None:
    numbered = [f"part-{n}.parquet" for n in numbers]
    assert sorted(numbered, key=natural_key) == [f"part-{n}.parquet" for n in sorted(numbers)]


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").touch()
    with pytest.raises(PartitionError, match=r"part-0\.parquet is empty \(0 bytes\).*write it again or remove it"):
        read_arrow_schema(only_partition(tmp_path / "part-0.parquet"))


@pytest.mark.parametrize("length", [4, 0.3, 0.9, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, length: float) -> None:
    path = write_partition(tmp_path / "part-0.parquet", mixed_columns(100))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * length) if isinstance(length, float) else length])
    with pytest.raises(PartitionError, match=r"part-0\.parquet is not a readable Parquet file"):
        count_rows(only_partition(path))


def test_parameters_of_an_extension_type_that_cannot_be_read_are_the_file_s_fault(tmp_path: Path) -> None:
    pd.DataFrame({"x": pd.period_range("2020-01", periods=4, freq="M")}).to_parquet(tmp_path / "pandas.parquet")
    metadata = {"ARROW:extension:name": "pandas.period", "ARROW:extension:metadata": "{"}
    field = pa.field("x", pa.int64(), metadata=metadata)
    pq.write_table(pa.table([pa.array([1, 2])], pa.schema([field])), tmp_path / "part-0.parquet")
    with pytest.raises(PartitionError, match=r"part-0\.parquet is not a readable Parquet file: .*write it again"):
        read_arrow_schema(only_partition(tmp_path / "part-0.parquet"))


def test_a_text_file_with_a_parquet_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(PartitionError, match=r"part-0\.parquet is not a readable Parquet file"):
        read_arrow_schema(only_partition(path))


def test_a_file_deleted_after_listing_is_reported(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "part-0.parquet", mixed_columns(10))
    file = only_partition(path)
    path.unlink()
    with pytest.raises(PartitionError, match=r"part-0\.parquet is not a readable Parquet file.*No such file"):
        list(read_batches(file, None))
    with pytest.raises(PartitionError, match=r"part-0\.parquet is gone"):
        check_unchanged(file)


def test_a_damaged_page_is_reported(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "part-0.parquet", mixed_columns(5000), compression="zstd")
    file = only_partition(path)
    raw = bytearray(path.read_bytes())
    raw[4:40] = bytes(36)
    path.write_bytes(raw)
    with pytest.raises(PartitionError, match=r"part-0\.parquet cannot be decoded"):
        list(read_batches(file, None))


def test_a_flipped_bit_is_detected_if_pages_have_checksums(tmp_path: Path) -> None:
    values = {"a": np.random.default_rng(0).standard_normal(1000)}
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    path = write_partition(tmp_path / "part-0.parquet", values, **options)
    raw = bytearray(path.read_bytes())
    raw[4000] ^= 1
    path.write_bytes(raw)
    with pytest.raises(PartitionError, match=r"part-0\.parquet cannot be decoded.*CRC"):
        list(read_batches(only_partition(path), None))


def test_a_flipped_bit_is_told_in_one_line_with_its_remedy(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "part-0.parquet", mixed_columns(20))
    file, whole, result = only_partition(path), path.read_bytes(), []
    for bit in np.random.default_rng(0).choice(8 * len(whole), 200, replace=False):
        raw = bytearray(whole)
        raw[bit // 8] ^= 1 << bit % 8
        path.write_bytes(raw)
        try:
            list(read_batches(file, None))
        except PartitionError as error:
            result.append(str(error))
    assert len(result) > 50
    assert [text for text in result if not re.fullmatch(r".*part-0\.parquet .*; write it again.*", text)] == []


def test_a_file_that_grew_since_listing_is_refused(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "part-0.parquet", mixed_columns(10))
    file = only_partition(path)
    check_unchanged(file)
    write_partition(path, mixed_columns(20))
    with pytest.raises(PartitionError, match=r"part-0\.parquet was changed while it was read; move finished files"):
        check_unchanged(file)


def test_a_file_modified_since_listing_is_refused(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "part-0.parquet", mixed_columns(10))
    file = only_partition(path)
    os.utime(path, ns=(file.modified_ns, file.modified_ns + 1000))
    with pytest.raises(PartitionError, match=r"part-0\.parquet was changed while it was read"):
        check_unchanged(file)


def test_batches_hold_every_row_once_in_order(tmp_path: Path) -> None:
    rows = 2 * BATCH_ROWS + 17
    path = write_partition(tmp_path / "part-0.parquet", {"a": np.arange(rows)}, row_group_size=BATCH_ROWS + 1000)
    file = only_partition(path)
    batches = list(read_batches(file, ["a"]))
    assert max(batch.num_rows for batch in batches) <= BATCH_ROWS
    assert pa.Table.from_batches(batches).column("a").to_pylist() == list(range(rows))
    assert count_rows(file) == rows


def test_columns_are_read_by_full_name_if_one_is_a_prefix_of_another(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "part-0.parquet", {"a.c": [1, 2], "a": [3, 4], "ab": [5, 6]})
    (batch,) = read_batches(only_partition(path), ["a", "a.c"])
    assert (batch.column("a").to_pylist(), batch.column("a.c").to_pylist()) == ([3, 4], [1, 2])


def test_size_and_modification_time_are_those_of_the_file(tmp_path: Path) -> None:
    write_mixed(tmp_path, [3, 4])
    for file in list_partitions(tmp_path):
        status = (tmp_path / file.name).stat()
        assert (file.size_bytes, file.modified_ns) == (status.st_size, status.st_mtime_ns)
