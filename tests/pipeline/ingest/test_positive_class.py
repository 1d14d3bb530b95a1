"""A class that no row has is refused before a store begins with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.stores.partitions import write_partition
from support.stores.stores import ingest_folder, ledger_of, new_store

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.schema import SchemaRequest

REQUEST = SchemaRequest("y", positive="yes")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "store")


def put(tmp_path: Path, *targets: list[Any]) -> Path:
    for number, y in enumerate(targets):
        x = pa.array([float(i) for i in range(len(y))], pa.float64())
        write_partition(
            tmp_path / "in" / f"part-{number}.parquet", {"x": x, "y": pa.array(y) if y else pa.array(y, pa.string())}
        )
    return tmp_path / "in"


@pytest.mark.parametrize(("given", "meant"), [("yess", "yes"), ("YES", "yes"), ("no ", "no")])
def test_a_misspelled_class_is_answered_by_the_one_that_may_be_meant(
    store: Store, tmp_path: Path, given: str, meant: str
) -> None:
    folder = put(tmp_path, ["no", "yes"], ["perhaps", None])
    said = rf"part-0\.parquet and 1 more files: no row has .* {given!r} \(did you mean {meant!r}\?\) in the column 'y'"
    with pytest.raises(PartitionError, match=said + ", which has no, perhaps, yes; correct it"):
        ingest_folder(store, folder, replace(REQUEST, positive=given))
    assert not ledger_of(store).entries


def test_a_class_that_is_like_none_is_answered_by_those_that_there_are(store: Store, tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match=r"no row has source\.positive = 99 in the column 'y', which has 1, 2; "):
        ingest_folder(store, put(tmp_path, [1, 2]), SchemaRequest("y", positive=99))


@pytest.mark.parametrize("targets", [[["no"], ["no", "yes"]], [[], ["yes"]]])
def test_one_row_of_any_partition_is_enough(store: Store, tmp_path: Path, targets: list[list[str]]) -> None:
    ingest_folder(store, put(tmp_path, *targets), REQUEST)
    assert len(ledger_of(store).entries) == len(targets)


def test_later_partitions_may_lack_it(store: Store, tmp_path: Path) -> None:
    ingest_folder(store, put(tmp_path, ["no", "yes"]), REQUEST)
    ingest_folder(store, put(tmp_path, ["no", "yes"], ["no", "no"]), REQUEST)
    assert len(ledger_of(store).entries) == 2
