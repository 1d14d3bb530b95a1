"""Refit: a model's stored rows against its dictionary, cut in tasks, solved, and kept beside the learner's state."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.jobs.recording import Notes
from support.references.dense_refit import assert_solves, dense_refit
from support.stores.partitions import REQUEST, mixed_columns, write_partition
from support.stores.stores import PicklingExecutor, ingest_folder, ledger_of, new_store
from support.stores.training import MODEL, context_of

from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.memory_plan import check_plans
from ridgestream.pipeline.dataset import stored_rows
from ridgestream.pipeline.dataset.stored_rows import plan_parts
from ridgestream.pipeline.models.model_record import (
    PUBLISHED,
    is_refitted,
    learner_of,
    model_of,
    refit_of,
    with_learner,
)
from ridgestream.pipeline.models.predictor import ExpansionModel
from ridgestream.pipeline.training.online.trainer import OnlineTrainer
from ridgestream.pipeline.training.refit import plan_refit, refit
from ridgestream.stores.catalog.ledger import LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.repository import Store

SIZES = [300, 0, 500, 1, 257]
REFIT_ARRAYS = {"refit_products", "refit_rhs", "refit_target_square"}


def trained(tmp_path: Path, sizes: list[int] = SIZES, *, weighted: bool = False) -> tuple[Store, ModelRecord]:
    """A store of partitions with every kind of column, and a model that has learned them."""
    for i, rows in enumerate(sizes):
        weights = {"w": np.random.default_rng(i).choice([0.0, 0.5, 2.0], rows)} if weighted else {}
        write_partition(tmp_path / "source" / f"part-{i}.parquet", mixed_columns(rows, seed=i) | weights)
    store = new_store(tmp_path / "store")
    ingest_folder(store, tmp_path / "source", replace(REQUEST, weight="w" if weighted else None))
    done = OnlineTrainer(MODEL).train(context_of(store))
    return store, replace(done.record, learned=tuple(entry.segment for entry in done.entries))


def refit_here(store: Store, record: ModelRecord, executor: Executor | None = None) -> ModelRecord:
    return refit(context_of(store, executor=executor), record, record.learned)


def assert_same_bits(one: ModelRecord, other: ModelRecord, names: set[str] | None = None) -> None:
    assert one.arrays.keys() == other.arrays.keys() or names
    for name in names or one.arrays.keys():
        assert one.arrays[name].tobytes() == other.arrays[name].tobytes(), name


@pytest.mark.samples
@pytest.mark.parametrize("weighted", [False, True])
def test_the_coefficients_are_those_of_a_dense_direct_solve(tmp_path: Path, weighted: bool) -> None:
    store, record = trained(tmp_path, weighted=weighted)
    refitted, dense = refit_here(store, record), dense_refit(store, record)
    assert_solves(refitted, dense)
    sums = refit_of(refitted)
    assert sums is not None
    assert (sums.rows, sums.weight) == (sum(SIZES), dense.weights.sum())
    np.testing.assert_allclose(sums.products, dense.products, rtol=1e-11)
    np.testing.assert_allclose(sums.rhs, dense.rhs, rtol=0, atol=1e-11 * np.abs(dense.rhs).max())
    assert np.abs(record.arrays[PUBLISHED] - refitted.arrays[PUBLISHED]).max() > 1e-6  # there was something to refit


def test_the_learner_s_state_stays_and_only_what_is_served_changes(tmp_path: Path) -> None:
    store, record = trained(tmp_path)
    refitted = refit_here(store, record)
    assert set(refitted.arrays) - set(record.arrays) == REFIT_ARRAYS
    assert_same_bits(record, refitted, set(record.arrays) - {PUBLISHED})
    assert {key: refitted.counters[key] for key in record.counters} == record.counters
    assert (is_refitted(record), is_refitted(refitted)) == (False, True)
    again = with_learner(refitted, learner_of(refitted))
    assert_same_bits(again, with_learner(record, learner_of(record)))
    assert not is_refitted(again)


def test_a_refit_of_a_refitted_model_changes_no_bit(tmp_path: Path) -> None:
    store, record = trained(tmp_path)
    refitted = refit_here(store, record)
    assert_same_bits(refit_here(store, refitted), refitted)


def test_tasks_done_elsewhere_in_any_order_make_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_rows, "TASK_ROWS", 64)
    store, record = trained(tmp_path)
    assert len([task for entry in ledger_of(store).entries for task in plan_parts(entry)]) == 5 + 8 + 1 + 5
    assert_same_bits(refit_here(store, record, PicklingExecutor()), refit_here(store, record))


def test_cut_otherwise_the_sums_are_the_same_to_rounding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, record = trained(tmp_path)
    whole = refit_of(refit_here(store, record))
    monkeypatch.setattr(stored_rows, "TASK_ROWS", 100)
    cut = refit_of(refit_here(store, record))
    assert whole is not None
    assert cut is not None
    np.testing.assert_allclose(cut.products, whole.products, rtol=1e-13)
    assert (cut.rows, cut.weight) == (whole.rows, whole.weight)


def test_a_segment_of_several_chunks_and_blocks_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of 8 features within 32 kB holds 512 rows, and tasks begin in the middle of the segment."""
    monkeypatch.setattr(stored_rows, "BLOCK_BYTES", 32 * 2**10)
    monkeypatch.setattr(stored_rows, "TASK_ROWS", 1024)
    store, record = trained(tmp_path, [3000])
    assert_solves(refit_here(store, record), dense_refit(store, record))


def test_progress_is_reported_in_rows(tmp_path: Path) -> None:
    store, record = trained(tmp_path)
    notes = Notes()
    refit(context_of(store, report=notes), record, record.learned)
    assert (notes.steps, notes.rows) == (["refit"], sum(SIZES))
    assert notes.ended == [{"rows": sum(SIZES)}]


def test_a_partition_without_rows_has_no_task(tmp_path: Path) -> None:
    store, record = trained(tmp_path, [300, 0, 100])
    filled = refit(context_of(store), record, (0, 2))
    assert_same_bits(refit_here(store, record), filled)


def test_a_model_that_has_learned_nothing_is_refitted_to_nothing(tmp_path: Path) -> None:
    write_partition(tmp_path / "source" / "part-0.parquet", mixed_columns(20) | {"w": np.zeros(20)})
    store = new_store(tmp_path / "store")
    ingest_folder(store, tmp_path / "source", replace(REQUEST, weight="w"))
    done = OnlineTrainer(MODEL).train(context_of(store))
    refitted = refit_here(store, replace(done.record, learned=(0,)))
    assert refitted.arrays[PUBLISHED].shape == (0, 1)
    assert (refitted.counters["refit_weight"], refitted.counters["refit_rows"]) == (0.0, 20)


def test_rows_that_are_gone_are_an_error(tmp_path: Path) -> None:
    store, record = trained(tmp_path)
    for path in (tmp_path / "store" / "chunks").rglob("*"):
        path.unlink()
    with pytest.raises(StoreError, match="of the store cannot be read or written"):
        refit_here(store, record)


def test_error_bars_are_those_of_the_refit_by_the_direct_formula(tmp_path: Path) -> None:
    store, record = trained(tmp_path, weighted=True)
    dense, model = dense_refit(store, record), model_of(refit_here(store, record), with_uncertainty=True)
    assert isinstance(model, ExpansionModel)
    assert model.uncertainty is not None
    np.testing.assert_allclose(model.uncertainty.noise, dense.noise, rtol=1e-6)
    k = dense.values[::7]
    novelty = 1 - np.einsum("ij,ij->i", k @ np.linalg.inv(dense.gram), k)
    leverage = np.einsum("ij,ij->i", k @ np.linalg.inv(dense.normal_matrix), k)
    expected = dense.noise / dense.penalty * (novelty + dense.penalty * leverage)
    np.testing.assert_allclose(model.uncertainty.variance(k, np.ones(len(k)))[:, 0], expected, rtol=1e-6)
    without = model_of(record, with_uncertainty=True)
    assert abs(without.noise_variance[0] / model.uncertainty.noise[0] - 1) > 1e-3


@pytest.mark.parametrize(("rows", "tasks"), [(0, 0), (1, 1), (65_536, 1), (65_537, 2), (200_000, 4)])
def test_a_partition_is_cut_by_its_rows_alone(rows: int, tasks: int) -> None:
    planned = plan_parts(LedgerEntry(3, "p", 0, 0, "", rows))
    assert len(planned) == tasks
    covered = [(rows.start, rows.stop) for task in planned for rows in task]
    assert covered == [(s, min(s + 65_536, rows)) for s in range(0, rows, 65_536)]
    assert {rows.segment for task in planned for rows in task} <= {3}


def test_memory_is_refused_with_the_numbers_and_a_way_out() -> None:
    said = r"refitting with max_basis = 10000 needs 1\d\.\d GB .* of it for sums; 8 GB .* set refit = false, or raise"
    with pytest.raises(MemoryRefused, match=said):
        check_plans([plan_refit(0, 10_000)], 8 * 10**9)
    check_plans([plan_refit(0, 5_000)], 8 * 10**9)
