"""The plan of a run from values alone: there is no store, and no path of these tests exists."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.stores.partitions import write_partition

from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.batch.ols import OLSSettings
from ridgestream.pipeline.dataset.stored_rows import TASK_ROWS
from ridgestream.pipeline.planning.run_plan import RunPlan, plan_run
from ridgestream.pipeline.training.request import BatchRequest, OnlineRequest, Request
from ridgestream.pipeline.training.trainer import trainer_of
from ridgestream.pipeline.training.training_result import Standing
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.parquet.partitions import PartitionFile, list_partitions
from ridgestream.stores.schema.schema import Feature, Schema

SCHEMA = Schema("y", None, (Feature("a", "numeric"), Feature("b", "numeric")))
ENTRIES = tuple(LedgerEntry(n, f"part-{n}", 10, 1, f"hash of {n}", rows) for n, rows in enumerate((100, 200, 300)))
LEDGER = Ledger(SCHEMA, ENTRIES, (), next_segment=3)
ONLINE = OnlineRequest(
    name="model",
    kernel="rbf",
    kernel_parameters={},
    regularization=1e-4,
    max_basis=20,
    novelty_threshold=0.1,
    usefulness_threshold=0.1,
    scaling_rows=None,
)
OLS = BatchRequest(
    name="model",
    method="ols",
    kernel="rbf",
    kernels=({},),
    settings=OLSSettings(max_basis=5, regularization=1e-4),
    scaling_rows=None,
)


def record_of(*learned: int, regularization: float = 1e-4, arrays: tuple[str, ...] = ("basis_vectors",)) -> ModelRecord:
    parameters = {"method": "online", "regularization": regularization}
    return ModelRecord("model", parameters, {}, learned=learned, arrays={name: np.zeros((7, 2)) for name in arrays})


def plan(
    record: ModelRecord | None, *fresh_rows: int, request: Request = ONLINE, ledger: Ledger = LEDGER, **changes: Any
) -> RunPlan:
    """The plan of a run with new files of these sizes."""
    settings: dict[str, Any] = {
        "has_stored_rows": False,
        "asks_refit": False,
        "may_refit": False,
        "memory_limit_bytes": 10**9,
        **changes,
    }
    names = [f"new-{number}" for number in range(len(fresh_rows))]
    return RunPlan(
        trainer=trainer_of(request),
        standing=Standing(ledger, record, record),
        fresh=tuple(PartitionFile(name, Path("/nowhere") / name, 10, 1) for name in names),
        fresh_rows=fresh_rows,
        **settings,
    )


def test_a_new_model_learns_the_rows_of_the_store_and_of_new_files() -> None:
    first = plan(None, 40, 2, has_stored_rows=True)
    assert (first.unlearned, first.rows, first.new_rows, first.rows_per_pass) == (ENTRIES, 642, 642, 642)
    assert (first.learns, first.is_due, first.refits, first.is_changed) == (True, True, False, False)
    assert (first.max_basis, len(first.passes), first.feature_map) == (20, 1, None)


def test_a_model_learns_the_rows_that_it_lacks() -> None:
    later = plan(record_of(0, 2), 40)
    assert (later.unlearned, later.rows, later.new_rows, later.rows_per_pass) == (ENTRIES[1:2], 640, 240, 240)
    nothing = plan(record_of(0, 1, 2))
    assert (nothing.rows, nothing.new_rows, nothing.is_due, nothing.passes) == (600, 0, False, ())


@pytest.mark.parametrize(
    ("record", "fresh_rows", "has_stored_rows", "learns"),
    [
        (None, (), False, False),
        (None, (0,), False, False),
        (None, (0, 5), False, True),
        (None, (), True, True),
        (record_of(0, 1, 2), (), False, False),
        (record_of(0, 1, 2), (0,), False, True),
        (record_of(0, 1), (), False, True),
        (record_of(0, 1, 2, regularization=1e-3), (), False, True),
    ],
)
def test_a_new_model_needs_rows_and_an_existing_one_a_new_partition_or_a_change(
    record: ModelRecord | None, fresh_rows: tuple[int, ...], has_stored_rows: bool, learns: bool
) -> None:
    assert plan(record, *fresh_rows, has_stored_rows=has_stored_rows).learns == learns


def test_a_refit_is_due_if_the_job_asks_for_one_and_the_coefficients_are_older() -> None:
    refitted = record_of(0, 1, 2, arrays=("basis_vectors", "refit_products", "refit_rhs", "refit_target_square"))
    assert not plan(record_of(0, 1, 2)).refits
    assert plan(record_of(0, 1, 2), asks_refit=True).refits
    assert plan(refitted, 5, asks_refit=True).refits
    assert not plan(refitted, asks_refit=True).is_due


def test_a_batch_method_that_selects_again_reads_all_rows_in_shared_tasks() -> None:
    large = Ledger(SCHEMA, (LedgerEntry(0, "large", 10, 1, "hash", 2 * TASK_ROWS + 1),), ())
    changed = plan(record_of(0, regularization=1e-3), 5, request=OLS, ledger=large)
    assert (changed.reads_all_rows, changed.rows_per_pass, changed.tasks_per_pass) == (True, 2 * TASK_ROWS + 6, 4)
    added = plan(record_of(0), 5, request=OLS, ledger=large)
    assert (added.reads_all_rows, added.rows_per_pass, added.tasks_per_pass) == (False, 5, 1)
    assert plan(record_of(0), 5, ledger=large).tasks_per_pass == 0


def test_memory_is_checked_for_what_is_new_and_for_a_refit() -> None:
    small: dict[str, Any] = {"memory_limit_bytes": 10**6}
    plan(record_of(0, 1, 2), **small).check_memory()
    with pytest.raises(MemoryRefused, match="training with max_basis = 20 needs"):
        plan(record_of(0, 1, 2), 0, **small).check_memory()
    with pytest.raises(MemoryRefused, match="refitting with max_basis = 20 needs"):
        plan(record_of(0, 1, 2), asks_refit=True, **small).check_memory()
    assert len(plan(record_of(0, 1, 2), 5, asks_refit=True).memory(2, 1)) == 2


def test_without_a_store_every_file_is_new_and_one_without_a_footer_has_no_rows(tmp_path: Path) -> None:
    write_partition(tmp_path / "0.parquet", {"a": pa.array([1.0, 2.0, 3.0])})
    (tmp_path / "1.parquet").write_bytes(b"no footer")
    files = list_partitions(tmp_path)
    first = plan_run(None, files, ONLINE, asks_refit=False, memory_limit_bytes=10**9, new_model=False)
    assert (first.fresh, first.fresh_rows, first.record) == (files, (3, 0), None)
