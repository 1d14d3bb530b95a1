"""A class that no row has is refused before a store begins with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.jobs.jobs import Workplace, of_one_class
from support.stores.partitions import write_partition

from ridgestream.jobs.commands.ingest import run_ingest
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.ingest.positive_class import check_positive
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.partitions import PartitionFile, list_partitions
from ridgestream.stores.schema.schema import SchemaRequest

REQUEST = SchemaRequest("y", positive="yes")


def put(folder: Path, *targets: list[Any]) -> tuple[PartitionFile, ...]:
    for number, y in enumerate(targets):
        x = pa.array([float(i) for i in range(len(y))], pa.float64())
        write_partition(
            folder / f"part-{number}.parquet", {"x": x, "y": pa.array(y) if y else pa.array(y, pa.string())}
        )
    return list_partitions(folder)


@pytest.mark.parametrize(("given", "meant"), [("yess", "yes"), ("YES", "yes"), ("no ", "no")])
def test_a_misspelled_class_is_answered_by_the_one_that_may_be_meant(tmp_path: Path, given: str, meant: str) -> None:
    files = put(tmp_path, ["no", "yes"], ["perhaps", None])
    said = rf"part-0\.parquet and 1 more files: no row has .* {given!r} \(did you mean {meant!r}\?\) in the column 'y'"
    with pytest.raises(PartitionError, match=said + ", which has no, perhaps, yes; correct it"):
        check_positive(replace(REQUEST, positive=given), files)


def test_a_class_that_is_like_none_is_answered_by_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match=r"no row has source\.positive = 99 in the column 'y', which has 1, 2; "):
        check_positive(SchemaRequest("y", positive=99), put(tmp_path, [1, 2]))


@pytest.mark.parametrize("targets", [[["no"], ["no", "yes"]], [[], ["yes"]], [[None, "yes"]], [[]], []])
def test_one_row_of_any_partition_is_enough(tmp_path: Path, targets: list[list[Any]]) -> None:
    check_positive(REQUEST, put(tmp_path, *targets) if targets else ())


def test_a_file_that_cannot_be_used_is_left_to_its_ingest(tmp_path: Path) -> None:
    put(tmp_path, ["no"], ["no"])
    (tmp_path / "part-1.parquet").write_bytes(b"no file of Parquet")
    check_positive(REQUEST, list_partitions(tmp_path))


@pytest.mark.parametrize("command", ["run", "ingest"])
def test_a_store_does_not_begin_with_it_but_later_partitions_may_lack_it(tmp_path: Path, command: str) -> None:
    work = Workplace(tmp_path)

    def ingest(positive: int) -> None:
        job = {"source.positive": positive, "evaluate.path": None}
        if command == "run":
            work.run_here(job)
        else:
            run_ingest(read_job(work.job(job), {}), InProcess(), Silent(), 0.0)

    work.put(0)
    with pytest.raises(PartitionError, match="which has 1, 2, 3; correct it"):
        ingest(9)
    ingest(3)
    work.put(1, of_one_class(1))
    ingest(3)
