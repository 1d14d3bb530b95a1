"""Folders and prefixes as sources: links, tables of other formats, keys in folders, what is passed over."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.points import points
from support.stores.object_store import KEYS, ObjectStore, object_store
from support.stores.partitions import column_of, write_partition

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.files.object_storage import StorageSettings
from ridgestream.stores.files.paths import FileLocation, ObjectPath
from ridgestream.stores.parquet import partitions
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import list_partitions, read_arrow_schema, read_batches
from ridgestream.stores.schema.schema import Schema, SchemaRequest, infer_schema

REQUEST = SchemaRequest("y")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("server")) as server:
        yield server


def put(folder: Path, *names: str) -> Path:
    """Write the same small partition, or an empty file, under each name."""
    for name in names:
        if name.endswith(".parquet"):
            write_partition(folder / name, column_of("x", [1.0, 2.0]))
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    return folder


@pytest.fixture(params=["folder", "bucket"])
def place(
    request: pytest.FixtureRequest, server: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> "Place":
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return Place(tmp_path / "top", server if request.param == "bucket" else None, tmp_path.name)


class Place:
    """A tree of files in a folder, or the same as objects below a prefix."""

    def __init__(self, folder: Path, server: ObjectStore | None, prefix: str) -> None:
        self.folder, self.server, self.prefix = folder, server, prefix

    def put(self, *names: str) -> None:
        put(self.folder, *names)

    def source(self, below: str) -> FileLocation:
        if self.server is None:
            return self.folder / below
        for path in (path for path in self.folder.rglob("*") if path.is_file()):
            self.server.put(f"{self.prefix}/{path.relative_to(self.folder).as_posix()}", path.read_bytes())
        key = f"{self.prefix}/{below}".rstrip("/")
        return ObjectPath(self.server.location(key), StorageSettings(self.server.endpoint))


def names_in(source: FileLocation) -> list[str]:
    return [file.name for file in list_partitions(source)]


# Tables of other formats.

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
LOGS = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Spark streaming": "_spark_metadata/0",
    "Iceberg": f"metadata/00001-{UUID}.metadata.json",
    "Iceberg by Hadoop": "metadata/v3.metadata.json",
    "Iceberg, compressed": f"metadata/00001-{UUID}.gz.metadata.json",
    "Paimon": "snapshot/snapshot-1",
}


@pytest.mark.parametrize("below", points(["table", "", "table/data", "table/data/day=1"], ["table", "table/data"]))
@pytest.mark.parametrize("kind", LOGS)
def test_a_table_of_another_format_is_refused_with_a_way_out(place: Place, kind: str, below: str) -> None:
    place.put("table/data/day=1/part-0.parquet", "table/data/day=1/part-1.parquet", f"table/{LOGS[kind]}")
    name = kind.split(",", maxsplit=1)[0].removesuffix(" by Hadoop")
    with pytest.raises(PartitionError, match=rf"belongs to a table of {name}, whose log is .*; export the table into"):
        list_partitions(place.source(below))


@pytest.mark.parametrize("log", ["_delta_log", ".hoodie"])
def test_an_empty_log_is_a_log(tmp_path: Path, log: str) -> None:
    (put(tmp_path, "part-0.parquet") / log).mkdir()
    with pytest.raises(PartitionError, match="belongs to a table of"):
        list_partitions(tmp_path)


def test_a_link_into_a_table_is_refused_and_links_to_its_files_are_not(tmp_path: Path) -> None:
    put(tmp_path, "table/day=1/part-0.parquet", "table/_delta_log/0.json", "live/part-1.parquet", "in/part-1.parquet")
    (tmp_path / "live" / "part-0.parquet").symlink_to(tmp_path / "table" / "day=1" / "part-0.parquet")
    assert names_in(tmp_path / "live") == ["part-0.parquet", "part-1.parquet"]
    (tmp_path / "in" / "day=1").symlink_to(tmp_path / "table" / "day=1")
    with pytest.raises(PartitionError, match="belongs to a table of Delta"):
        list_partitions(tmp_path / "in")


def test_folders_that_only_look_like_tables_are_sources(place: Place) -> None:
    place.put("rows/metadata/notes.json", "rows/snapshot/a.parquet", "rows/_old/_delta_log/0.json", "rows/b.parquet")
    assert names_in(place.source("rows")) == ["b.parquet", "snapshot/a.parquet"]


# Links to folders.


def test_a_linked_folder_is_followed(tmp_path: Path) -> None:
    put(tmp_path, "in/part-0.parquet", "other/part-1.parquet", "other/deep/part-2.parquet")
    (tmp_path / "in" / "2026-11").symlink_to("../other")
    expected = ["2026-11/deep/part-2.parquet", "2026-11/part-1.parquet", "part-0.parquet"]
    assert names_in(tmp_path / "in") == expected
    (tmp_path / "link").symlink_to("in")
    assert names_in(tmp_path / "link") == expected


@pytest.mark.parametrize("target", ["..", ".", "../..", "../../in/a"])
def test_a_link_back_to_a_folder_that_contains_it_is_refused(tmp_path: Path, target: str) -> None:
    put(tmp_path, "in/a/part-0.parquet")
    (tmp_path / "in" / "a" / "loop").symlink_to(target)
    with pytest.raises(PartitionError, match=r"/loop\S* is a link to a folder that contains it; remove the link"):
        list_partitions(tmp_path / "in")


def test_two_links_that_lead_to_each_other_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "in/a/part-0.parquet", "in/b/part-1.parquet")
    (tmp_path / "in" / "a" / "b").symlink_to("../b")
    (tmp_path / "in" / "b" / "a").symlink_to("../a")
    with pytest.raises(PartitionError, match="is a link to a folder that contains it"):
        list_partitions(tmp_path / "in")


@pytest.mark.parametrize("target", ["/nowhere/2026-11", "2026-11"])
def test_a_link_that_leads_nowhere_is_not_skipped(tmp_path: Path, target: str) -> None:
    put(tmp_path, "part-0.parquet")
    (tmp_path / "2026-11").symlink_to(target)
    with pytest.raises(PartitionError, match=r"2026-11 is a link that leads nowhere; put back what it led to"):
        list_partitions(tmp_path)


# Keys in the names of folders.


def columns_of(source: FileLocation, schema: Schema | None = None) -> tuple[Schema, list[dict[str, object]]]:
    """Return the schema and the columns of each partition, decoded."""
    files, rows = list_partitions(source), []
    schema = schema or infer_schema(REQUEST, read_arrow_schema(files[0]), files[0].name)
    for file in files:
        decoder = Decoder(schema, str(file.path), missing="impute")
        decoder.check(read_arrow_schema(file))
        for batch in read_batches(file, schema.columns(with_target=True)):
            decoded = decoder.decode(batch)
            columns = {f.name: decoded.numeric[:, i].tolist() for i, f in enumerate(schema.numeric)}
            for i, f in enumerate(schema.categorical):
                table = [*decoder.categories[i], None]
                columns[f.name] = [table[code] for code in decoded.codes[:, i]]
            rows.append(columns)
    return schema, rows


def kinds_of(schema: Schema) -> dict[str, str]:
    return {feature.name: feature.kind for feature in schema.features}


def test_keys_of_folders_are_columns(place: Place) -> None:
    place.put("in/region=eu/_year=2024/part-0.parquet", "in/region=us/_year=2025/part-0.parquet")
    schema, rows = columns_of(place.source("in"))
    assert kinds_of(schema) == {"x": "numeric", "region": "categorical", "_year": "numeric"}
    assert [(r["region"], r["_year"]) for r in rows] == [(["eu"] * 2, [2024.0] * 2), (["us"] * 2, [2025.0] * 2)]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["1", "02", "-3"], "numeric", [1.0, 2.0, -3.0]),
        (["007", "x"], "categorical", ["007", "x"]),
        (["1.5", "2"], "categorical", ["1.5", "2"]),
        ([str(2**53), "1"], "numeric", [2.0**53, 1.0]),
        ([str(2**53 + 1), "1"], "categorical", [str(2**53 + 1), "1"]),
        (["2024-13-01", "2024-00"], "categorical", ["2024-13-01", "2024-00"]),
        (["20241301", "18991231", "2024", "11"], "numeric", [20241301.0, 18991231.0, 2024.0, 11.0]),
        (["a%20b", "100%25", "%C3%A4", "a+b", "%zz"], "categorical", ["a b", "100%", "ä", "a+b", "%zz"]),
        (["1", "__HIVE_DEFAULT_PARTITION__"], "numeric", [1.0, None]),
        (["a", "__HIVE_DEFAULT_PARTITION__", ""], "categorical", ["a", None, None]),
        (["a=b"], "categorical", ["a=b"]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_key_of_integers_is_numeric_and_any_other_categorical(
    tmp_path: Path, values: list[str], kind: str, expected: list[object]
) -> None:
    put(tmp_path, *(f"k={value}/part-{i}.parquet" for i, value in enumerate(values)))
    schema, rows = columns_of(tmp_path)
    by_file = {file.name: row["k"] for file, row in zip(list_partitions(tmp_path), rows, strict=True)}
    assert kinds_of(schema)["k"] == kind
    for i, (value, wanted) in enumerate(zip(values, expected, strict=True)):
        stored = by_file[f"k={value}/part-{i}.parquet"]
        np.testing.assert_array_equal(np.array(stored), np.array([wanted] * 2, np.array(stored).dtype))


@pytest.mark.parametrize(
    "text", ["2026-11-28", "20261128", "2026-11", "2026-W48", "2026-11-28T06", "2026-11-28 06:30:00", "1900-01-01"]
)
def test_a_key_that_is_a_date_is_a_feature_only_if_it_is_asked_for(tmp_path: Path, text: str) -> None:
    put(tmp_path, f"day={quote(text)}/part-0.parquet")
    arrow = read_arrow_schema(list_partitions(tmp_path)[0])
    with pytest.raises(PartitionError, match=rf"file: .* day={text}, .* list 'day' under source.ignore, or"):
        infer_schema(REQUEST, arrow, "file")
    assert kinds_of(infer_schema(replace(REQUEST, ignore=("day",)), arrow, "file")) == {"x": "numeric"}
    answer = infer_schema(replace(REQUEST, features=("x", "day")), arrow, "file")
    assert kinds_of(answer)["day"] == ("numeric" if text.isdecimal() else "categorical")
    assert kinds_of(infer_schema(replace(REQUEST, categorical=("day",)), arrow, "file"))["day"] == "categorical"


@settings(max_examples=40)
@given(values=st.lists(st.text(min_size=1, max_size=8).filter(lambda t: t != "__HIVE_DEFAULT_PARTITION__"), max_size=4))
def test_any_text_survives_as_the_name_of_a_folder(tmp_path_factory: pytest.TempPathFactory, values: list[str]) -> None:
    path = tmp_path_factory.mktemp("in")
    values = ["text", *(value for value in values if value.isprintable() and len(value.encode()) < 60)]
    put(path, *(f"k={quote(value, safe=' ')}/part-{i}.parquet" for i, value in enumerate(values)))
    stored = {file.keys[0].text for file in list_partitions(path)}
    assert stored == set(values)
    _, rows = columns_of(path)
    assert {value for row in rows for value in row["k"]} == set(values)  # type: ignore[attr-defined]


def test_a_value_that_the_kind_of_a_key_does_not_take_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "k=1/part-0.parquet")
    schema, _ = columns_of(tmp_path)
    put(tmp_path, "k=north/part-1.parquet", "k=2/part-2.parquet")
    with pytest.raises(
        PartitionError, match=r"column 'k' has type string \(from the folder k=north\), the store has it"
    ):
        columns_of(tmp_path, schema)
    (tmp_path / "k=north" / "part-1.parquet").unlink()
    assert [row["k"] for row in columns_of(tmp_path, schema)[1]] == [[1.0] * 2, [2.0] * 2]


def test_the_partitions_of_a_numeric_key_are_read_beside_one_that_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "k=1/part-0.parquet")
    schema, _ = columns_of(tmp_path)
    put(tmp_path, "k=north/part-1.parquet")
    file = list_partitions(tmp_path)[0]
    Decoder(schema, file.name).check(read_arrow_schema(file))
    (batch,) = read_batches(file, ["x", "k", "y"])
    assert Decoder(schema, file.name).decode(batch).numeric[:, 1].tolist() == [1.0, 1.0]


def test_a_partition_without_the_key_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "k=1/part-0.parquet", "part-1.parquet")
    with pytest.raises(PartitionError, match=r"part-1\.parquet has no column 'k'"):
        columns_of(tmp_path)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("eu", pa.array(["eu", "eu"])),
        ("eu", pa.array(["eu", "eu"]).dictionary_encode()),
        ("07", pa.array([7, 7], pa.int8())),
        ("2024-01-01", pa.array(["2024-01-01"] * 2).cast(pa.date32())),
        ("1.50", pa.array([1.5, 1.5])),
        ("__HIVE_DEFAULT_PARTITION__", pa.nulls(2, pa.string())),
    ],
    ids=str,
)
def test_a_column_of_the_file_that_agrees_with_its_folder_is_read(tmp_path: Path, text: str, column: pa.Array) -> None:
    path = write_partition(tmp_path / f"k={text}" / "part-0.parquet", {"k": column, **column_of("x", [1.0, 2.0])})
    file = list_partitions(tmp_path)[0]
    (batch,) = read_batches(file, None)
    assert batch.column("k").equals(column)
    assert read_arrow_schema(file).names == ["k", "x", "y"]
    assert path.exists()


@pytest.mark.parametrize(
    ("text", "column", "shown"),
    [
        ("eu", pa.array(["eu", "us"]), "'us' in row 1"),
        ("eu", pa.array([None, "eu"]), "None in row 0"),
        ("7", pa.array([7, 8]), "8 in row 1"),
        ("north", pa.array([7, 8]), "7 in row 0"),
        ("__HIVE_DEFAULT_PARTITION__", pa.array([None, "eu"]), "'eu' in row 1"),
    ],
    ids=str,
)
def test_a_column_of_the_file_that_contradicts_its_folder_is_refused(
    tmp_path: Path, text: str, column: pa.Array, shown: str
) -> None:
    write_partition(tmp_path / f"k={text}" / "part-0.parquet", {"k": column, **column_of("x", [1.0, 2.0])})
    with pytest.raises(PartitionError, match=rf"column 'k' has the value {shown}, and the file's folder says"):
        list(read_batches(list_partitions(tmp_path)[0], None))


@pytest.mark.parametrize(
    ("name", "message"),
    [("k=1/k=2/p.parquet", "its folders give 'k' two values, '1' and '2'"), ("k=%FF/p.parquet", "'%FF' is no.*UTF-8")],
)
def test_a_folder_without_a_clear_key_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        list_partitions(put(tmp_path, name))


# What is passed over.


def test_what_is_passed_over_is_listed(place: Place) -> None:
    place.put(
        *("in/part-0.parquet", "in/_SUCCESS", "in/.part-0.parquet.crc", "in/_metadata", "in/_common_metadata"),
        *("in/_temporary/0/part-9.parquet", "in/.hidden.parquet", "in/a/part-1.PARQUET", "in/notes.txt", "in/a/b.pq"),
    )
    listing = partitions.list_source(place.source("in"))
    assert [file.name for file in listing.partitions] == ["part-0.parquet"]
    assert {file.name: file.looks_like_data for file in listing.passed_over} == {
        "_temporary/0/part-9.parquet": True,
        ".hidden.parquet": True,
        "a/part-1.PARQUET": True,
        "a/b.pq": True,
        "notes.txt": False,
    }


# Names.


@pytest.mark.parametrize("name", [b"part-\xff.parquet", b"a\xff/b/part-0.parquet", b"k=\xe4/part-0.parquet"])
def test_a_name_that_is_not_utf_8_is_refused_and_escaped(tmp_path: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)  # noqa: PTH118 (bytes)
    put(tmp_path, "part-1.parquet")
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    Path(tmp_path / "part-1.parquet").rename(os.fsdecode(path))
    escaped = name.decode("utf-8", "backslashreplace")
    with pytest.raises(PartitionError, match=rf"{re.escape(escaped)} is no UTF-8; rename it") as raised:
        list_partitions(tmp_path)
    str(raised.value).encode()


def test_a_passed_over_name_that_is_not_utf_8_does_no_harm(tmp_path: Path) -> None:
    put(tmp_path, "part-0.parquet")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/notes-\xff.txt")).touch()
    assert names_in(tmp_path) == ["part-0.parquet"]


@pytest.mark.parametrize("name", [" ", "%", "a b%20c", "ä" * 100, "#1?&+", "'\"", "day=1 of 2/x", "😀"])
def test_unusual_names_are_partitions(place: Place, name: str) -> None:
    place.put(f"in/{name}.parquet")
    assert names_in(place.source("in")) == [f"{name}.parquet"]


def test_a_column_whose_name_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "part-0.parquet", {"abqz": [1.0]}, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"abqz", b"ab\xff\xfe"))
    with pytest.raises(PartitionError, match="has a column whose name is no UTF-8"):
        read_arrow_schema(list_partitions(tmp_path)[0])
