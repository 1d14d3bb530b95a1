"""Learners saved in a store: a round trip between two nights changes no bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.stores.partitions import REQUEST, mixed_columns, write_partition
from support.stores.stores import ingest_folder, ledger_of, new_store
from support.stores.training import MODEL, context_of

from ridgestream.pipeline.models.model_record import expansion_of, learner_of
from ridgestream.pipeline.training.online.trainer import OnlineTrainer
from ridgestream.pipeline.training.request import OnlineRequest
from ridgestream.pipeline.training.training_result import find_unlearned
from ridgestream.stores.catalog.models import ModelRecord, require_model, write_model
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.repository.repository import Store


def night(store: Store, request: OnlineRequest = MODEL) -> ModelRecord:
    """Train on new partitions, save the model, and read it back."""
    root = store.root()
    record = require_model(root, request.name) if "models" in root else None
    result = OnlineTrainer(request).train(context_of(store, record))
    segments = (*result.record.learned, *(entry.segment for entry in result.entries))
    with store.write("a night") as writing:
        write_model(writing.root, replace(result.record, learned=segments))
    return require_model(store.root(), request.name)


def bits(record: ModelRecord) -> dict[str, Any]:
    return {name: (a.shape, a.dtype, a.tobytes()) for name, a in record.arrays.items()} | dict(record.counters)


SIZES = [300, 0, 500, 1, 257]


@pytest.mark.thorough
def test_training_night_by_night_equals_training_at_once_bit_for_bit(tmp_path: Path) -> None:
    straight, nightly = new_store(tmp_path / "straight"), new_store(tmp_path / "nightly")
    source = tmp_path / "source"
    for i, rows in enumerate(SIZES):
        write_partition(source / f"part-{i}.parquet", mixed_columns(rows, seed=i))
        ingest_folder(nightly, source, REQUEST)
        record = night(nightly)
        assert record.learned == tuple(range(i + 1))
        assert find_unlearned(ledger_of(nightly), record) == ()
    ingest_folder(straight, source, REQUEST)
    assert bits(night(straight)) == bits(record)
    assert record.counters["rows_seen"] == sum(SIZES)


@pytest.mark.parametrize("weights", [np.zeros(20), np.r_[np.zeros(10), np.ones(10)]], ids=["none", "some"])
def test_rows_of_weight_zero_do_not_count(tmp_path: Path, weights: Any) -> None:
    columns = mixed_columns(20)
    weighted = {name: column.filter(weights > 0) for name, column in columns.items()}
    models = []
    for name, rows in (("all", columns | {"w": weights}), ("kept", weighted | {"w": weights[weights > 0]})):
        write_partition(tmp_path / name / "part-0.parquet", rows)
        write_partition(tmp_path / name / "part-1.parquet", mixed_columns(5, seed=1) | {"w": np.zeros(5)})
        store = new_store(tmp_path / f"store-{name}")
        ingest_folder(store, tmp_path / name, replace(REQUEST, weight="w", ignore=("colour",)))
        models.append(night(store, replace(MODEL, scaling_rows=None)))
    for array in ("basis_vectors", "normal_matrix", "coefficients"):
        np.testing.assert_allclose(models[0].arrays[array], models[1].arrays[array], rtol=1e-9, atol=1e-12)


def test_a_model_without_basis_vectors_predicts_the_centre_of_the_targets(tmp_path: Path) -> None:
    """All weights are zero, so the dictionary is empty."""
    write_partition(tmp_path / "source" / "part-0.parquet", mixed_columns(20) | {"w": np.zeros(20)})
    store = new_store(tmp_path / "store")
    ingest_folder(store, tmp_path / "source", replace(REQUEST, weight="w"))
    model = expansion_of(night(store))
    assert model.basis.vectors.shape == (0, model.feature_map.n_features)
    codes = np.zeros((3, 1), dtype=np.int32)
    predicted = model.predict(np.zeros((3, 4)), codes, model.feature_map.code_maps([["red"]]))
    np.testing.assert_array_equal(predicted, np.zeros((3, 1)))


def test_a_record_that_lacks_an_array_of_the_state_is_damaged(tmp_path: Path) -> None:
    write_partition(tmp_path / "source" / "part-0.parquet", mixed_columns(20))
    store = new_store(tmp_path / "store")
    ingest_folder(store, tmp_path / "source", REQUEST)
    record = night(store)
    arrays = {name: array for name, array in record.arrays.items() if name != "gram"}
    with pytest.raises(ModelError, match="the model 'm' lacks the array gram: its record is damaged"):
        learner_of(replace(record, arrays=arrays))


def test_a_record_requested_with_other_parameters_is_refused(tmp_path: Path) -> None:
    write_partition(tmp_path / "source" / "part-0.parquet", mixed_columns(20))
    store = new_store(tmp_path / "store")
    ingest_folder(store, tmp_path / "source", REQUEST)
    night(store)
    with pytest.raises(ModelError, match="the model 'm' was trained with other parameters: max_basis was 12, is 13"):
        night(store, replace(MODEL, max_basis=13))
