"""Checkpoints of the online learner: from whichever of them a training continues, it ends in the same bits."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs.recording import Notes
from support.points import points
from support.stores.partitions import REQUEST, mixed_columns, write_partition
from support.stores.stores import ingest_folder, ledger_of, new_store
from support.stores.training import MODEL, context_of

from ridgestream.pipeline.dataset import block_stream
from ridgestream.pipeline.online import stream_learner
from ridgestream.pipeline.online.experts import cell_learning
from ridgestream.pipeline.training.online import checkpoints as online_checkpoints
from ridgestream.pipeline.training.online.trainer import OnlineTrainer
from ridgestream.pipeline.training.request import OnlineRequest
from ridgestream.pipeline.training.training_result import Trained
from ridgestream.stores.catalog.checkpoints import Checkpoints
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.segments import segment_format

REQUESTS = {
    "supervised": MODEL,
    "growing": replace(MODEL, selection="novelty", max_basis=None, novelty_threshold=0.5),
    "drawn": replace(MODEL, selection="fixed", random_seed=3),
    "experts": replace(MODEL, experts=4),
}
SIZES = [1400, 0, 700, 1, 2600]

Kept = tuple[str, dict[str, Any], dict[str, Any]]


@dataclass
class Memory:
    """A keeper that remembers everything it was given, and gives one thing back."""

    gives: Kept | None = None
    checkpoints: list[Kept] = field(default_factory=list)
    held: tuple[str, Any] | None = None

    def load(self, key: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
        return self.gives[1:] if self.gives is not None and self.gives[0] == key else None

    def save(self, key: str, record: dict[str, Any], arrays: Any) -> None:
        self.checkpoints.append((key, record, {name: array.copy() for name, array in arrays.items()}))

    def set_pending(self, key: str, make: Any) -> None:
        self.held = (key, make) if make else None


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 256 rows, a refresh after four of them, and a clock that always says yes."""
    monkeypatch.setattr(block_stream, "BLOCK_BYTES", 1)
    monkeypatch.setattr(segment_format, "CHUNK_BYTES", 1)
    monkeypatch.setattr(stream_learner, "REFRESH_ROWS", 1024)
    monkeypatch.setattr(cell_learning, "PART_ROWS", 1024)
    monkeypatch.setattr(online_checkpoints, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(online_checkpoints, "COST", 0.0)


def make_store(path: Path, sizes: list[int] = SIZES, *, weighted: bool = False) -> Store:
    for i, rows in enumerate(sizes):
        weights = {"w": np.random.default_rng(i).choice([0.0, 0.5, 2.0], rows)} if weighted else {}
        write_partition(path / "source" / f"part-{i}.parquet", mixed_columns(rows, seed=i) | weights)
    store = new_store(path / "store")
    ingest_folder(store, path / "source", replace(REQUEST, weight="w" if weighted else None))
    return store


def run(
    store: Store,
    keeper: Any = None,
    request: OnlineRequest = MODEL,
    record: ModelRecord | None = None,
    ledger: Ledger | None = None,
    report: Notes | None = None,
) -> Trained:
    return OnlineTrainer(request).train(context_of(store, record, ledger=ledger, report=report, keeper=keeper))


def bits(done: Trained) -> dict[str, Any]:
    """The result of a training, without its duration."""
    arrays = {name: (a.shape, a.dtype, a.tobytes()) for name, a in done.record.arrays.items()}
    timeless = replace(done, seconds=0.0, record=replace(done.record, arrays={}))
    return arrays | {"result": timeless}


@pytest.mark.at_most(3)
@pytest.mark.parametrize("weighted", points([False, True], [True]))
@pytest.mark.parametrize("request_name", points(REQUESTS, ["supervised"]))
def test_from_every_checkpoint_a_training_ends_in_the_same_bits(
    tmp_path: Path, request_name: str, weighted: bool
) -> None:
    store, memory = make_store(tmp_path, weighted=weighted), Memory()
    model_request = REQUESTS[request_name]
    straight = run(store, memory, model_request)
    assert bits(straight) == bits(run(store, None, model_request))
    positions = [(record["segment"], record["row"]) for _, record, _ in memory.checkpoints]
    assert positions == [(0, 1024), (0, 1400), (1, 0), (2, 700), (3, 1), (4, 1024), (4, 2048), (4, 2600)]
    for checkpoint in memory.checkpoints:
        report = Notes()
        assert bits(run(store, Memory(checkpoint), model_request, report=report)) == bits(straight)
        assert report.events[0] == ("train.started_from_checkpoint", {"rows": checkpoint[1]["progress"]["rows"]})
        assert report.rows == sum(SIZES)


COLOURS = (("red", "grey"), ("red", "grey"), ("blue", "red"), ("black",), ("red", "green", "blue"))


@pytest.mark.thorough
@pytest.mark.parametrize("unseen", points(["ignore", "extend"], ["extend"]))
def test_from_every_checkpoint_before_and_after_new_categories_a_training_ends_in_the_same_bits(
    tmp_path: Path, unseen: str
) -> None:
    for i, (rows, colours) in enumerate(zip(SIZES, COLOURS, strict=True)):
        write_partition(tmp_path / "source" / f"part-{i}.parquet", mixed_columns(rows, seed=i, colours=colours))
    store, memory = new_store(tmp_path / "store"), Memory()
    ingest_folder(store, tmp_path / "source", REQUEST)
    model_request = replace(MODEL, unseen_categories=unseen)
    straight = run(store, memory, model_request)
    assert straight.record.arrays["basis_vectors"].shape[1] == 4 + (5 if unseen == "extend" else 2)
    for checkpoint in memory.checkpoints:
        report = Notes()
        assert bits(run(store, Memory(checkpoint), model_request, report=report)) == bits(straight)
        assert "train.started_from_checkpoint" in report.codes
        other = replace(MODEL, unseen_categories="extend" if unseen == "ignore" else "ignore")
        report = Notes()
        run(store, Memory(checkpoint), other, report=report)
        assert "train.started_from_checkpoint" not in report.codes


@pytest.mark.thorough
def test_a_checkpoint_of_a_checkpoint_is_the_one_of_the_undisturbed_training(tmp_path: Path) -> None:
    """So that any number of kills in a row leaves the same bits as one."""
    store, memory = make_store(tmp_path), Memory()
    run(store, memory)
    for position, checkpoint in enumerate(memory.checkpoints):
        again = Memory(checkpoint)
        run(store, again)
        for left, right in zip(again.checkpoints, memory.checkpoints[position + 1 :], strict=True):
            assert without_seconds(left[1]) == without_seconds(right[1])
            assert {n: a.tobytes() for n, a in left[2].items()} == {n: a.tobytes() for n, a in right[2].items()}


def without_seconds(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"progress": record["progress"] | {"seconds": 0.0}}


def test_the_seconds_of_killed_runs_are_added(tmp_path: Path) -> None:
    store, memory = make_store(tmp_path), Memory()
    run(store, memory)
    key, record, arrays = memory.checkpoints[2]
    late = record | {"progress": record["progress"] | {"seconds": 1000.0}}
    again = Memory((key, late, arrays))
    assert run(store, again).seconds > 1000.0
    assert again.checkpoints[-1][1]["progress"]["seconds"] > 1000.0


@pytest.mark.thorough
def test_a_model_is_continued_night_by_night(tmp_path: Path) -> None:
    """The second night begins from a record, and its checkpoints know it."""
    store = make_store(tmp_path)
    whole = ledger_of(store)
    first = run(store, ledger=replace(whole, entries=whole.entries[:2]))
    record = replace(first.record, learned=(0, 1))
    memory = Memory()
    straight = run(store, memory, record=record)
    assert len(memory.checkpoints) == 5
    for checkpoint in memory.checkpoints:
        assert bits(run(store, Memory(checkpoint), record=record)) == bits(straight)
        other = replace(record, counters=record.counters | {"swaps": 17})
        report = Notes()
        run(store, Memory(checkpoint), record=other, report=report)
        run(store, Memory(checkpoint), report=report)
        assert report.events == []


def test_another_regularization_is_applied_once(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    whole = ledger_of(store)
    record = replace(run(store, ledger=replace(whole, entries=whole.entries[:2])).record, learned=(0, 1))
    model_request, memory = replace(MODEL, regularization=1e-4), Memory()
    straight = run(store, memory, model_request, record)
    for checkpoint in memory.checkpoints:
        done = run(store, Memory(checkpoint), model_request, record)
        assert bits(done) == bits(straight)
        assert done.record.parameters["regularization"] == 1e-4


def test_partitions_that_came_later_do_not_matter_and_those_before_do(tmp_path: Path) -> None:
    store, memory = make_store(tmp_path), Memory()
    whole = ledger_of(store)
    fewer = replace(whole, entries=whole.entries[:3])
    run(store, memory, ledger=fewer)
    assert bits(run(store, Memory(memory.checkpoints[2]), ledger=whole)) == bits(run(store))
    other = replace(whole.entries[0], content_sha256="0" * 64)
    for entries in ((other, *whole.entries[1:]), whole.entries[1:], (whole.entries[0], *whole.entries[2:])):
        report = Notes()
        for checkpoint in memory.checkpoints[3:]:
            done = run(store, Memory(checkpoint), ledger=replace(whole, entries=entries), report=report)
        assert report.events == []
        assert done.entries == entries


def test_a_checkpoint_of_a_dictionary_drawn_from_other_rows_is_not_resumed(tmp_path: Path) -> None:
    store, memory = make_store(tmp_path), Memory()
    whole, model_request = ledger_of(store), REQUESTS["drawn"]
    run(store, memory, model_request, ledger=replace(whole, entries=whole.entries[:3]))
    report = Notes()
    done = run(store, Memory(memory.checkpoints[1]), model_request, report=report)
    assert report.events == []
    assert bits(done) == bits(run(store, None, model_request))


@pytest.mark.thorough
def test_a_checkpoint_of_a_map_fitted_to_other_rows_is_not_resumed(tmp_path: Path) -> None:
    store, memory = make_store(tmp_path), Memory()
    whole, model_request = ledger_of(store), replace(MODEL, scaling_rows=None)
    run(store, memory, model_request, ledger=replace(whole, entries=whole.entries[:3]))
    report = Notes()
    done = run(store, Memory(memory.checkpoints[1]), model_request, report=report)
    assert report.events == []
    assert bits(done) == bits(run(store, None, model_request))


@pytest.mark.samples
@pytest.mark.parametrize(
    "changes", [{"max_basis": 11}, {"regularization": 1e-4}, {"kernel_parameters": {"gamma": 0.3}}], ids=str
)
def test_a_checkpoint_of_another_request_is_not_resumed(tmp_path: Path, changes: dict[str, Any]) -> None:
    store, memory, report = make_store(tmp_path), Memory(), Notes()
    run(store, memory)
    model_request = replace(MODEL, **changes)
    done = run(store, Memory(memory.checkpoints[0]), model_request, report=report)
    assert report.events == []
    assert bits(done) == bits(run(store, None, model_request))


def spoil(checkpoint: Kept) -> list[Kept]:
    key, record, arrays = checkpoint
    empty = {name: array[:0] for name, array in arrays.items()}
    nan = arrays | {"normal_matrix": arrays["normal_matrix"] * np.nan}
    negative = arrays | {"normal_matrix": -arrays["normal_matrix"]}
    return [
        (key, {}, arrays),
        (key, record | {"progress": {}}, arrays),
        (key, record | {"progress": record["progress"] | {"blocks": "many"}}, arrays),
        (key, record | {"counters": {}}, arrays),
        (key, record | {"learner": {}}, arrays),
        (key, record, {}),
        (key, record, empty),
        (key, record, nan),
        (key, record, negative),
    ]


@pytest.mark.samples
@pytest.mark.parametrize("which", points(range(9), [0, 4, 8]))
def test_a_damaged_checkpoint_costs_only_time(tmp_path: Path, which: int) -> None:
    store, memory, report = make_store(tmp_path), Memory(), Notes()
    straight = run(store, memory)
    done = run(store, Memory(spoil(memory.checkpoints[2])[which]), report=report)
    assert bits(done) == bits(straight)
    assert report.events == []


class Full(Memory):
    """A keeper without room."""

    def save(self, key: str, record: dict[str, Any], arrays: Any) -> None:  # noqa: ARG002
        raise StoreError("the store /data cannot be written: no space left on device")


def test_a_checkpoint_that_cannot_be_saved_is_reported_and_the_training_continues(tmp_path: Path) -> None:
    store, report = make_store(tmp_path), Notes()
    assert bits(run(store, Full(), report=report)) == bits(run(store))
    reason = "the store /data cannot be written: no space left on device"
    assert report.events[0] == ("train.checkpoint_not_saved", {"reason": reason})


def test_a_short_training_saves_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online_checkpoints, "KEEP_SECONDS", 3600.0)
    memory = Memory()
    run(make_store(tmp_path), memory)
    assert memory.checkpoints == []


def test_slow_checkpoints_are_saved_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only keeping moves, one that takes an hour is done once."""
    now = [0.0]

    class Slow(Memory):
        def save(self, key: str, record: dict[str, Any], arrays: Any) -> None:
            now[0] += 3600.0
            super().save(key, record, arrays)

    monkeypatch.setattr(online_checkpoints, "monotonic", lambda: now[0])
    for cost, times in ((0.0, 8), (1.0, 1)):
        monkeypatch.setattr(online_checkpoints, "COST", cost)
        slow = Slow()
        run(make_store(tmp_path / str(cost)), slow)
        assert len(slow.checkpoints) == times


@pytest.mark.thorough
def test_a_checkpoint_is_read_from_the_store_as_it_was_saved(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    straight = run(store)

    class First(Checkpoints):
        """One that keeps only what it is given first."""

        done = False

        def save(self, key: str, record: dict[str, Any], arrays: Any) -> None:
            if not self.done:
                super().save(key, record, arrays)
            self.done = True

    run(store, First(store, "m"))
    report = Notes()
    assert bits(run(store, Checkpoints(store, "m"), report=report)) == bits(straight)
    assert report.events == [("train.started_from_checkpoint", {"rows": 1024})]
