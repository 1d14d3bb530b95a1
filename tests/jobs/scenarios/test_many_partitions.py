"""Many small partitions: metadata, work and alarms that do not grow with their square. Counted, not timed."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from benchmarks.many_partitions import measure, plot
from support.jobs.jobs import Workplace, assert_same_model, draw_rows, open_store
from support.jobs.recording import Notes

from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.stores.catalog import ledger
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.parquet import partitions
from ridgestream.stores.repository.client import RepositoryClient

ROWS = 4
SETTINGS = {"evaluate.path": None, "model.max_basis": 5, "model.scaling_rows": 400}
BATCH = {"model.method": "efvs", "model.max_basis": 5, "model.reselect": "always"}


def with_partitions(folder: Path, numbers: Iterable[int], draw: Callable[[int], pa.Table] | None = None) -> Workplace:
    work = Workplace(folder)
    for number in numbers:
        work.put(number, draw(number) if draw else draw_rows(number, ROWS))
    return work


def count_nodes(work: Workplace) -> int:
    return sum(1 for _ in open_store(work.store).root().members(None))


def snapshot_bytes(work: Workplace) -> int:
    return sum(path.stat().st_size for path in (work.store / "snapshots").iterdir())


@pytest.mark.thorough
def test_groups_and_arrays_of_a_store_do_not_grow_with_its_small_partitions(tmp_path: Path) -> None:
    """Before, each had a group with four arrays."""
    nodes = []
    for count in (20, 60):
        work = with_partitions(tmp_path / str(count), range(count))
        work.run_here(SETTINGS)
        nodes.append(count_nodes(work))
    assert nodes[1] <= nodes[0] + 8


@pytest.mark.thorough
def test_a_night_of_one_partition_writes_as_much_after_many_as_after_few(tmp_path: Path) -> None:
    """Snapshots contain neither partitions nor what a model has learned of them; before, they did, twice."""
    written = []
    for count in (10, 70):
        work = with_partitions(tmp_path / str(count), range(count))
        work.run_here(SETTINGS)
        before, nodes = snapshot_bytes(work), count_nodes(work)
        work.put(1000, draw_rows(1000, ROWS))
        work.run_here(SETTINGS)
        written.append(snapshot_bytes(work) - before)
        assert count_nodes(work) <= nodes + 8
    assert written[1] < written[0] + 60 * 50


@pytest.mark.thorough
@pytest.mark.parametrize(("changes", "nights"), [({}, 18), (BATCH, 4)], ids=["online", "batch"])
def test_nights_of_small_partitions_are_one_run_bit_for_bit(
    tmp_path: Path, changes: dict[str, Any], nights: int
) -> None:
    """After sixteen nights, packs are merged."""
    settings = {**SETTINGS, **changes, "model.scaling_rows": ROWS}
    straight = with_partitions(tmp_path / "straight", range(nights))
    straight.run_here(settings)
    nightly = Workplace(tmp_path / "nightly")
    for number in range(nights):
        nightly.put(number, draw_rows(number, ROWS))
        nightly.run_here(settings)
    assert_same_model(nightly.model(), straight.model())
    assert count_nodes(nightly) < 16 * 5 + 30


class CountingTasks(InProcess):
    """An executor that is not in this process as far as anybody can see, and counts its tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks = 0

    def run(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        for task in tasks:
            self.tasks += 1
            yield function(task, *shared)


def test_small_partitions_share_tasks(tmp_path: Path) -> None:
    work, executor = with_partitions(tmp_path, range(64)), CountingTasks()
    run_job(read_job(work.job(SETTINGS), {}), executor, Silent(), 0.0, new_model=False)
    assert executor.tasks <= 16


def test_a_night_reads_the_ledger_once_lists_each_source_once_and_no_tags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the ledger was read five times, held-out partitions and tags were listed four times."""
    work = Workplace(tmp_path)
    work.put_all(range(2))
    work.run_here()
    work.put(2)
    read, listed, tags = [], [], []
    spy_on(monkeypatch, ledger, "read_lines", lambda _, name: read.append(name))
    spy_on(monkeypatch, partitions, "walk_source", lambda source: listed.append(source.name))
    spy_on(monkeypatch, RepositoryClient, "list_tags", lambda _: tags.append(1))
    result = work.run_here({"model.guard": 1.0})
    assert (result["new_partitions"], result["test_error"] is not None) == (1, True)
    assert sorted(read) == ["categories", "entries", "quarantined"]
    assert (listed, tags) == (["rows", "held-out"], [])


def spy_on(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, note: Callable[..., object]) -> None:
    """Have each call of a function noted first."""
    real = getattr(owner, name)

    def noted(*arguments: Any) -> Any:
        note(*arguments)
        return real(*arguments)

    monkeypatch.setattr(owner, name, noted)


def test_ten_partitions_of_a_kind_are_named_and_the_others_counted(tmp_path: Path) -> None:
    work, notes = with_partitions(tmp_path, range(14), lambda _: draw_rows(0, ROWS)), Notes()
    run_job(read_job(work.job(SETTINGS), {}), InProcess(), notes, 0.0, new_model=False)
    repeated = notes.all("ingest.partition_repeated")
    assert [facts["partition"] for facts in repeated] == [f"part-{number:02d}.parquet" for number in range(1, 11)]
    assert notes.all("ingest.more_partitions") == [{"partitions": 3, "like": "ingest.partition_repeated"}]


def one_distribution(number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    numbers = {f"x{i}": rng.standard_normal(ROWS) for i in range(10)}
    columns = {**numbers, "colour": rng.choice(["red", "blue", "green"], ROWS, p=[0.6, 0.3, 0.1])}
    return pa.table({**columns, "y": numbers["x0"] + numbers["x1"] + 0.1 * rng.standard_normal(ROWS)})


REGRESSION = {**SETTINGS, "source.target": "y", "source.positive": None}


@pytest.mark.thorough
def test_small_partitions_of_one_distribution_raise_no_alarm(tmp_path: Path) -> None:
    """Before, one in thirty did, by its error on four rows."""
    work = with_partitions(tmp_path, range(150), one_distribution)
    assert work.run_here(REGRESSION)["suspects"] == []


@pytest.mark.thorough
def test_a_small_partition_in_other_units_is_still_seen(tmp_path: Path) -> None:
    work = with_partitions(tmp_path, range(150), one_distribution)
    work.run_here(REGRESSION)
    rows = one_distribution(150)
    moved = pa.array(rows["x3"].to_numpy() * 1000 + 5000)
    work.put(150, rows.set_column(rows.schema.get_field_index("x3"), "x3", moved))
    assert work.run_here(REGRESSION)["suspects"] == ["part-150.parquet"]


def test_the_ledger_of_many_partitions_is_in_chunks(tmp_path: Path) -> None:
    """Its attributes, part of every snapshot, do not name a partition."""
    work = with_partitions(tmp_path, range(30))
    work.run_here(SETTINGS)
    root = open_store(work.store).root()
    group = root["ledger"]
    assert isinstance(group, zarr.Group)
    assert "part-" not in json.dumps(group.attrs.asdict())
    assert len(read_ledger(root).entries) == 30


@pytest.mark.slow
def test_the_benchmark_measures_and_draws(tmp_path: Path) -> None:
    measured = [measure(tmp_path / str(n), n, 50) for n in (20, 100)]
    assert [each["partitions"] for each in measured] == [20, 100]
    assert measured[1]["store_to_raw"] < measured[0]["store_to_raw"] < 3
    assert measured[1]["store_bytes"]["snapshots"] < 2 * measured[0]["store_bytes"]["snapshots"]
    plot(measured, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
