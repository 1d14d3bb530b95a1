"""Night after night: what is learned once stays learned, and where a night ended leaves no trace in the bits."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import (
    REGRESSION,
    ROWS,
    Settings,
    Workplace,
    assert_same_model,
    draw_regression,
    draw_rows,
    open_store,
    set_column,
)

from ridgestream.jobs.commands.ingest import run_ingest
from ridgestream.jobs.commands.predict import run_predict
from ridgestream.jobs.commands.train import run_train
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError
from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.prediction.prediction_columns import Extras
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import list_models
from ridgestream.stores.errors.exceptions import ModelError, PartitionError, SchemaMismatch, StoreError


def place(path: Path, name: str) -> Workplace:
    folder = path / name
    folder.mkdir()
    return Workplace(folder)


def ingest_here(work: Workplace, changes: Settings | None = None) -> dict[str, Any]:
    return run_ingest(read_job(work.job(changes), {}), InProcess(), Silent(), 0.0)


def train_here(work: Workplace, changes: Settings | None = None) -> dict[str, Any]:
    return run_train(read_job(work.job(changes), {}), InProcess(), Silent(), 0.0, new_model=False)


def predict_here(work: Workplace, where: str, changes: Settings | None = None, *, with_std: bool = False) -> pa.Table:
    job = read_job(work.job(changes), {})
    run_predict(
        job, work.folder / where, work.folder / "predictions", InProcess(), Silent(), extras=Extras(std=with_std)
    )
    return pq.read_table(work.folder / "predictions")


def column(table: pa.Table, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values: np.ndarray[tuple[int], np.dtype[np.float64]] = table[name].to_numpy()
    return values


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """One run on partitions 00 to 05."""
    work = Workplace(tmp_path_factory.mktemp("straight"))
    work.put_all(range(6))
    work.run_here()
    return work


def test_a_second_run_changes_nothing(straight: Workplace) -> None:
    before, snapshot = straight.model(), straight.snapshot()
    files = sorted(straight.store.rglob("*"))
    summary = straight.run_here()
    assert (summary["new_partitions"], summary["new_rows"], summary["partitions_consumed"]) == (0, 0, 6)
    assert (summary["rows_seen"], summary["snapshot"]) == (6 * ROWS, snapshot)
    assert summary["test_error"] == before.history[-1].test_error
    assert straight.snapshot() == snapshot
    assert sorted(straight.store.rglob("*")) == files
    assert straight.model().history == before.history


@pytest.mark.parametrize("open_settings", [False, True])
def test_a_run_leaves_no_reader_to_the_garbage_collector(tmp_path: Path, open_settings: bool) -> None:
    """Reference cycles would keep sessions of the store open, and with them rows that `clean` is to delete."""
    work = Workplace(tmp_path)
    work.put_all(range(2))
    left_open = ("model.kernel.gamma", "model.regularization", "model.max_basis", "model.metric", "model.refit")
    changes = dict.fromkeys(left_open) if open_settings else {}
    gc.disable()
    try:
        work.run_here(changes)
        work.predict_here("held-out", changes, with_std=True)
        work.evaluate_here(changes)
        assert list((work.store / "readers").iterdir()) == []
    finally:
        gc.enable()


@pytest.mark.samples
@pytest.mark.parametrize("ends", [(5,), (1,), (3,), (1, 2, 3, 4, 5)])
def test_where_a_night_ended_leaves_no_trace(tmp_path: Path, straight: Workplace, ends: tuple[int, ...]) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(0))
    work.put(0, draw_rows(1000), where="held-out")
    done = 0
    for stop in (*ends, 6):
        work.put_all(range(done, stop))
        summary = work.run_here()
        assert summary["new_partitions"] == stop - done
        assert summary["partitions_consumed"] == stop
        done = stop
    assert_same_model(work.model(), straight.model())
    nights = work.model().history
    assert [len(night.partitions) for night in nights] == np.diff([0, *ends, 6]).tolist()
    assert nights[-1].test_error == straight.model().history[-1].test_error


def test_the_bits_do_not_depend_on_how_a_partition_was_written(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(0))
    for number in range(6):
        path = work.put(number)
        pq.write_table(pq.read_table(path), path, row_group_size=37, compression="gzip", use_dictionary=False)
    work.run_here()
    assert_same_model(work.model(), straight.model())


def test_steps_alone_make_the_model_of_a_run(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(3))
    assert ingest_here(work)["new_partitions"] == 3
    assert train_here(work)["new_partitions"] == 3
    work.put_all(range(3, 6))
    assert ingest_here(work)["new_partitions"] == 3
    assert work.model().learned == (0, 1, 2)
    assert train_here(work)["new_partitions"] == 3
    assert_same_model(work.model(), straight.model())


@pytest.mark.thorough
def test_a_model_has_still_to_learn_what_was_only_ingested(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(4))
    work.run_here()
    work.put_all(range(4, 6))
    ingest_here(work)
    assert work.model().learned == (0, 1, 2, 3)
    summary = work.run_here()
    assert (summary["new_partitions"], summary["rows_seen"]) == (2, 6 * ROWS)
    assert_same_model(work.model(), straight.model())


@pytest.mark.thorough
def test_another_model_of_the_store_learns_for_itself(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(3))
    small = {"model.name": "small", "model.max_basis": 5}
    work.run_here()
    work.put_all(range(3, 6))
    assert work.run_here(small)["new_partitions"] == 6
    assert work.model().learned == (0, 1, 2)
    assert work.run_here()["new_partitions"] == 3
    assert_same_model(work.model(), straight.model())
    assert len(work.model("small").arrays["basis_vectors"]) == 5
    assert list_models(open_store(work.store).root()) == ("model", "small")
    assert work.run_here(small)["new_partitions"] == 0


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"model.max_basis": 21}, ["max_basis was 20, is 21"]),
        ({"model.selection": "novelty"}, ["selection was 'supervised', is 'novelty'"]),
        ({"model.max_basis": "unlimited"}, ["max_basis was 20, is none"]),
        ({"model.kernel.gamma": 0.5}, ["kernel.gamma was 0.25, is 0.5"]),
        ({"model.kernel.name": "linear"}, ["kernel.gamma was 0.25, is none", "kernel.name was 'rbf', is 'linear'"]),
        ({"model.scaling_rows": "all"}, [f"scaling_rows was {ROWS}, is none"]),
        (
            {"model.novelty_threshold": 0.5, "model.usefulness_threshold": 0.25},
            ["novelty_threshold was 0.01, is 0.5", "usefulness_threshold was 0.0001, is 0.25"],
        ),
    ],
)
def test_changed_parameters_under_an_old_name_are_an_error(
    straight: Workplace, changes: dict[str, Any], keys: list[str]
) -> None:
    snapshot = straight.snapshot()
    with pytest.raises(ModelError, match=r"--new-model") as caught:
        straight.run_here(changes)
    assert all(key in str(caught.value) for key in keys)
    assert str(caught.value).count(" was ") == len(keys) + 1
    assert straight.snapshot() == snapshot


def test_new_parameters_are_refused_before_new_partitions_are_ingested(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    work.run_here()
    work.put(1)
    snapshot = work.snapshot()
    for changes, error, said in (
        ({"model.max_basis": 9}, ModelError, "max_basis was 20, is 9"),
        ({"model.name": "big", "model.max_basis": 50_000, "memory_limit": "1GB"}, MemoryRefused, "max_basis = 50000"),
        ({"evaluate.path": "nowhere"}, PartitionError, "nowhere does not exist"),
        ({"source.target": "x0", "source.positive": None}, SchemaMismatch, "was made with target = 'label'"),
    ):
        with pytest.raises(error, match=said):
            work.run_here(changes)
        assert work.snapshot() == snapshot


@pytest.mark.thorough
def test_new_model_trains_on_all_partitions_from_the_start(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(6))
    work.run_here({"model.max_basis": 7})
    summary = work.run_here(new_model=True)
    assert (summary["new_partitions"], summary["rows_seen"]) == (6, 6 * ROWS)
    assert_same_model(work.model(), straight.model())
    assert len(work.model().history) == 1


@pytest.mark.samples
@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_partition_without_rows_changes_no_bit(tmp_path: Path, number: int) -> None:
    full, with_empty = place(tmp_path, "full"), place(tmp_path, "with-empty")
    for work in (full, with_empty):
        work.put(0, draw_rows(1000), where="held-out")
    rest = [n for n in range(5) if n != number]
    for n in rest:
        full.put(n)
        with_empty.put(n)
    with_empty.put(number, draw_rows(0).slice(0, 0))
    full.run_here()
    summary = with_empty.run_here()
    assert (summary["partitions_consumed"], summary["rows_seen"]) == (5, 4 * ROWS)
    one, other = full.model(), with_empty.model()
    assert other.learned == (0, 1, 2, 3, 4)
    for key, array in one.arrays.items():
        assert array.tobytes() == other.arrays[key].tobytes(), key
    assert (one.counters, one.encoding) == (other.counters, other.encoding)


def test_a_store_with_only_an_empty_partition_is_continued_the_next_night(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(0))
    work.put(0, draw_rows(0).slice(0, 0))
    summary = work.run_here()
    assert (summary["rows_seen"], summary["partitions_consumed"], summary["test_error"]) == (0, 0, None)
    assert [entry.rows for entry in read_ledger(open_store(work.store).root()).entries] == [0]
    assert work.run_here()["snapshot"] == summary["snapshot"]
    work.put(1)
    summary = work.run_here()
    assert (summary["rows_seen"], summary["partitions_consumed"]) == (ROWS, 2)
    work.put(2, draw_rows(0).slice(0, 0))
    summary = work.run_here()
    assert (summary["rows_seen"], summary["partitions_consumed"], summary["new_partitions"]) == (ROWS, 3, 1)
    assert work.run_here()["new_partitions"] == 0


def test_a_partition_without_rows_has_no_predictions(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1), held_out=0)
    work.put(0, draw_rows(0).slice(0, 0), where="held-out")
    assert work.run_here({"evaluate.path": None})["test_error"] is None
    predictions = predict_here(work, "held-out")
    assert (predictions.num_rows, predictions.column_names) == (0, ["prediction", "score"])


def test_regression_predicts_in_the_units_of_the_target(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number in range(4):
        work.put(number, draw_regression(number))
    work.put(0, draw_regression(1000), where="held-out")
    summary = work.run_here(REGRESSION)
    truth = column(pq.read_table(work.folder / "held-out"), "price")
    predicted = column(predict_here(work, "held-out", REGRESSION), "prediction")
    assert abs(predicted.mean() - truth.mean()) < 60
    assert summary["test_error"] is None
    assert summary["test_mse"] == pytest.approx(((predicted - truth) ** 2).mean(), rel=1e-12)
    assert summary["test_mse"] < 0.1 * truth.var()
    assert summary["progressive_error"] < 0.5 * truth.var()


def test_error_bars_are_in_the_units_of_the_target_and_hold(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number in range(4):
        work.put(number, draw_regression(number))
    work.put(0, draw_regression(1000), where="held-out")
    work.put(0, set_column(draw_regression(1001), "size", np.full(ROWS, 1e6)), where="far")
    work.run_here(REGRESSION)
    truth = column(pq.read_table(work.folder / "held-out"), "price")
    table = predict_here(work, "held-out", REGRESSION, with_std=True)
    assert table.column_names == ["prediction", "std", "std_observed"]
    off = np.abs(column(table, "prediction") - truth)
    assert 0.9 <= (off <= 1.96 * column(table, "std_observed")).mean() <= 0.995
    assert (column(table, "std") < column(table, "std_observed")).all()
    far = column(predict_here(work, "far", REGRESSION, with_std=True), "std")
    assert far.min() > max(column(table, "std").max(), 2 * np.median(column(table, "std")))
    assert np.ptp(far) < 1e-6 * far.mean()


@pytest.mark.thorough
def test_regression_nights_leave_no_trace(tmp_path: Path) -> None:
    once, twice = place(tmp_path, "once"), place(tmp_path, "twice")
    for work in (once, twice):
        work.put(0, draw_regression(1000), where="held-out")
    for number in range(4):
        once.put(number, draw_regression(number))
        twice.put(number, draw_regression(number))
        if number == 1:
            twice.run_here(REGRESSION)
    once.run_here(REGRESSION)
    twice.run_here(REGRESSION)
    assert_same_model(once.model(), twice.model())


def with_colour(seed: int, colours: tuple[str, ...] = ("red", "green", "blue"), rows: int = ROWS) -> pa.Table:
    """Rows whose label is decided by a text column, and nothing else."""
    table, rng = draw_rows(seed, rows), np.random.default_rng([seed, 1])
    chosen = rng.choice(colours, rows)
    table = set_column(table, "label", np.where(chosen == "red", 2, 1))
    return set_column(table, "colour", pa.array(chosen.tolist()))


@pytest.mark.parametrize("as_dictionary", [False, True])
def test_a_column_of_text_is_learned_from(tmp_path: Path, as_dictionary: bool) -> None:
    work = Workplace(tmp_path)
    for number in range(3):
        table = with_colour(number, ("red", "green") if number == 0 else ("blue", "red", "green"))
        if as_dictionary:
            table = set_column(table, "colour", table["colour"].dictionary_encode())
        work.put(number, table)
    work.put(0, with_colour(1000, ("green", "blue", "red")), where="held-out")
    summary = work.run_here()
    assert summary["test_error"] < 0.05
    encoding = work.model().encoding
    assert encoding["categorical"] == ["colour"]
    assert sorted(encoding["categories"][0]) == ["blue", "green", "red"]


def test_a_new_category_is_refused_by_name_and_learned_by_a_new_model(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put(0, with_colour(0))
    work.put(0, with_colour(1000), where="held-out")
    work.run_here()
    work.put(1, with_colour(1, ("red", "mauve")))
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"part-01\.parquet is not ingested: column 'colour' has the category 'mauve'"
        ):
            work.run_here()
        assert work.model().learned == (0,)
    summary = work.run_here(new_model=True)
    assert summary["partitions_consumed"] == 2
    assert "mauve" in work.model().encoding["categories"][0]


def test_a_category_that_only_held_out_rows_have_is_refused_with_the_file(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put(0, with_colour(0))
    work.put(3, with_colour(1000, ("red", "mauve")), where="held-out")
    with pytest.raises(PartitionError, match=r"held-out/part-03\.parquet: column 'colour' has the category 'mauve'"):
        work.run_here()


def with_weights(seed: int, weights: np.ndarray[Any, Any]) -> pa.Table:
    return set_column(draw_rows(seed, len(weights)), "w", weights)


WEIGHTED = {"source.weight": "w"}


def test_weights_of_one_change_nothing(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    for number in range(6):
        work.put(number, with_weights(number, np.ones(ROWS)))
    work.put(0, with_weights(1000, np.ones(ROWS)), where="held-out")
    work.run_here(WEIGHTED)
    one, other = work.model(), straight.model()
    for key, array in one.arrays.items():
        np.testing.assert_allclose(array, other.arrays[key], rtol=1e-12, atol=1e-12, err_msg=key)
    assert work.model().counters == straight.model().counters


def test_partitions_are_learned_in_natural_order(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    (tmp_path / "rows").mkdir()
    for name in ("part-10", "part-2", "part-1"):
        pq.write_table(draw_rows(0), tmp_path / "rows" / f"{name}.parquet")
    work.run_here({"evaluate.path": None})
    assert work.model().history[0].partitions == ("part-1.parquet", "part-2.parquet", "part-10.parquet")


def test_a_partition_that_comes_late_is_learned_last(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number in (1, 2):
        work.put(number)
    work.run_here({"evaluate.path": None})
    work.put(0)
    summary = work.run_here({"evaluate.path": None})
    assert summary["new_partitions"] == 1
    assert [night.partitions for night in work.model().history] == [
        ("part-01.parquet", "part-02.parquet"),
        ("part-00.parquet",),
    ]


def test_a_partition_that_is_gone_stays_learned(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(4))
    work.run_here()
    (tmp_path / "rows" / "part-01.parquet").unlink()
    work.put_all(range(4, 6))
    work.run_here()
    assert_same_model(work.model(), straight.model())


def test_a_touched_partition_is_known_again_and_a_rewritten_one_is_refused(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(2))
    snapshot = work.run_here()["snapshot"]
    path = work.put(1)
    pq.write_table(draw_rows(1), path, compression="zstd")
    assert work.run_here()["snapshot"] == snapshot
    work.put(1, draw_rows(99))
    with pytest.raises(PartitionError, match=r"part-01\.parquet was ingested with other values"):
        work.run_here()
    assert work.snapshot() == snapshot
    work.put(1)
    work.put(2)
    assert work.run_here()["partitions_consumed"] == 3


@pytest.mark.thorough
def test_more_partitions_than_one_commit_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgestream.pipeline.ingest.ingest.TASK_FILES", 1)
    work = Workplace(tmp_path)
    for number in range(35):
        work.put(number, draw_rows(number, 40))
    changes = {"evaluate.path": None, "model.scaling_rows": 40}
    assert ingest_here(work, changes)["new_partitions"] == 35
    assert len(list(open_store(work.store).repository.ancestry(branch="main"))) == 2 + 3
    summary = train_here(work, changes)
    assert (summary["partitions_consumed"], summary["rows_seen"]) == (35, 35 * 40)


def test_a_job_without_held_out_rows_reports_no_test_error(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1), held_out=0)
    summary = work.run_here({"evaluate.path": None})
    assert summary["test_error"] is None
    with pytest.raises(JobFileError, match=r"no \[predict\] section|INPUT and OUTPUT"):
        run_predict(read_job(work.job({"evaluate.path": None}), {}), None, None, InProcess(), Silent())


def test_train_before_any_ingest_says_what_to_do(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    with pytest.raises(StoreError, match=r"there is no store at .*; `ridgestream ingest`"):
        train_here(work)


def test_training_that_needs_more_than_it_may_use_reads_no_row(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    ingest_here(work)
    with pytest.raises(MemoryRefused, match=r"max_basis = 50000 needs 28[0-9] GB .* 1 GB may be used"):
        train_here(work, {"model.max_basis": 50_000, "memory_limit": "1GB"})
    assert list_models(open_store(work.store).root()) == ()


def test_held_out_rows_with_another_type_are_refused_before_training(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    table = draw_rows(1001)
    work.put(1, set_column(table, "x2", pa.array(["a"] * table.num_rows)), where="held-out")
    with pytest.raises(PartitionError, match=r"held-out/part-01\.parquet: column 'x2' has type string"):
        work.run_here()
    assert list_models(open_store(work.store).root()) == ()
    work.put(1, table, where="held-out")
    assert work.run_here()["new_partitions"] == 1
