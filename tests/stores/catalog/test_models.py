"""Models in a store: stored bit for bit, refused when newer or damaged, and identified by their parameters."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.stores import as_format_3, location_of, new_store, plain_model

from ridgestream.stores.catalog.models import (
    MODEL_FORMAT_VERSION,
    ModelRecord,
    Night,
    check_model_name,
    check_not_overtaken,
    check_parameters,
    list_models,
    read_model,
    require_model,
    write_model,
)
from ridgestream.stores.errors.exceptions import ModelError, NewerFormat, StoreError
from ridgestream.stores.repository.garbage_collection import measure_bytes
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.segments.checked_array import create_array, read_array, write_changed_rows

NIGHT = Night("2026-01-02T03:04:05+00:00", ("a/part-0.parquet", "ü"), 10, 30, 4, 0.1 + 0.2, None, 1 / 3, 0.5)
PARAMETERS: dict[str, Any] = {"method": "online", "kernel": {"name": "rbf", "gamma": 1 / 54}, "max_basis": 4}


def record_of(name: str = "forest", **more: Any) -> ModelRecord:
    rng = np.random.default_rng(0)
    arrays = {
        "basis_vectors": rng.standard_normal((3000, 2)),
        "basis_rows": np.array([2**62, -5, 0]),
        "gram": np.empty((0, 0)),
        "normal_rhs": np.empty((0, 1)),
        "swapped": np.empty(0, dtype=np.int64),
        "target_square": np.array([1e-300, 5e-324, -0.0]),
        "centre": rng.standard_normal(2),
    }
    encoding = {"categories": [["a", "b"]], "scale": [1 / 3, 1e-300]}
    record = ModelRecord(
        name, PARAMETERS, encoding, (0, 2, 1), "SNAPSHOT", {"penalty": 0.1}, (NIGHT, NIGHT), arrays=arrays
    )
    return replace(record, **more)


def put(store: Store, *records: ModelRecord) -> None:
    with store.write("models") as writing:
        for record in records:
            write_model(writing.root, record)


def test_cells_that_have_not_changed_cost_a_commit_nothing(tmp_path: Path) -> None:
    store, cells = new_store(tmp_path / "store"), np.random.default_rng(0).normal(size=(60, 4000))
    put(store, record_of(arrays={"cells": cells}))
    before = measure_bytes(store) or 0
    changed = cells.copy()
    changed[7] += 1.0
    changed[8, 0] = -0.0
    for values in (changed, changed[:, ::-1], changed[:, :3990]):
        put(store, record_of(arrays={"cells": values}))
        assert same(require_model(store.root(), "forest"), record_of(arrays={"cells": values}))
        if values is changed:
            assert (measure_bytes(store) or 0) - before < cells.nbytes / 10


def test_cells_that_are_damaged_are_written_again() -> None:
    cells = np.random.default_rng(0).normal(size=(3, 4))
    group = zarr.open_group(zarr.storage.MemoryStore(), mode="w")
    create_array(group, "cells", (3, 4), "float64", 1)[:2] = cells[:2]  # the last row is missing
    write_changed_rows(group, "cells", cells)
    np.testing.assert_array_equal(read_array(cast("zarr.Array[Any]", group["cells"])), cells)


def same(left: ModelRecord, right: ModelRecord) -> bool:
    return replace(left, arrays={}) == replace(right, arrays={}) and {
        key: (a.dtype, a.shape, a.tobytes()) for key, a in left.arrays.items()
    } == {key: (a.dtype, a.shape, a.tobytes()) for key, a in right.arrays.items()}


def test_a_model_round_trips(tmp_path: Path) -> None:
    put(new_store(tmp_path / "store"), record_of())
    assert same(require_model(Store.open(location_of(tmp_path / "store")).root(), "forest"), record_of())


def test_errors_per_target_round_trip_and_are_absent_in_nights_of_the_first_release(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    more = replace(NIGHT, progressive_mse_of={"a": 1 / 3, "ü": 2.0}, test_mse_of={"a": 0.1, "ü": 0.2})
    put(store, record_of(history=(NIGHT, more)))
    assert require_model(store.root(), "forest").history == (NIGHT, more)
    first, second = plain_model(cast("zarr.Group", store.root()["models/forest"]))["history"]
    assert set(second) - set(first) == {"progressive_mse_of", "test_mse_of"}
    assert first["test_error"] is None


def test_a_model_replaces_the_one_of_its_name_with_all_its_arrays(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    put(store, record_of(), record_of("other"))
    smaller = record_of(learned=(0,), arrays={"centre": np.array([1.0])})
    put(store, smaller)
    assert same(require_model(store.root(), "forest"), smaller)
    assert same(require_model(store.root(), "other"), record_of("other"))
    assert list_models(store.root()) == ("forest", "other")


def test_a_night_writes_little_of_what_grows_with_the_store(tmp_path: Path) -> None:
    """Before, what was learned and all nights were written again in each snapshot."""
    store, names = new_store(tmp_path / "store"), tuple(f"part-{number}.parquet" for number in range(20_000))
    arrays = {"centre": np.array([1.0])}
    first = record_of(learned=tuple(range(20_000)), history=(replace(NIGHT, partitions=names),), arrays=arrays)
    put(store, first)
    before = bytes_of(tmp_path / "store")
    later = replace(first, learned=(*first.learned, 20_000), history=(*first.history, NIGHT))
    put(store, later)
    assert bytes_of(tmp_path / "store") - before < 20_000
    assert same(require_model(store.root(), "forest"), later)
    assert len(json.dumps(cast("zarr.Group", store.root()["models/forest"]).attrs.asdict())) < 5_000


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_missing_model_raises(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    assert list_models(store.root()) == ()
    assert read_model(store.root(), "forest") is None
    with pytest.raises(ModelError, match="the store has no model 'forest'; its models: none"):
        require_model(store.root(), "forest")
    put(store, record_of("b"), record_of("a"))
    with pytest.raises(ModelError, match="the store has no model 'forest'; its models: a, b"):
        require_model(store.root(), "forest")


def test_a_record_of_the_first_format_is_read(tmp_path: Path) -> None:
    """Its nights have no fields about refits, which did not exist yet."""
    store = new_store(tmp_path / "store")
    put(store, record_of())
    with store.write("from the past") as writing:
        attributes = as_format_3(writing.root)["models/forest"].attrs
        nights = cast("list[dict[str, Any]]", attributes["history"])
        for night in nights:
            del night["refitted"]
        attributes.update({"format_version": 1, "history": cast("Any", nights)})
    assert same(require_model(store.root(), "forest"), record_of())
    assert [night.refitted for night in require_model(store.root(), "forest").history] == [False, False]


def test_a_night_with_only_a_refit_round_trips(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    record = record_of(history=(NIGHT, replace(NIGHT, partitions=(), progressive_error=None, refitted=True)))
    put(store, record)
    assert same(require_model(store.root(), "forest"), record)


def test_a_model_refitted_in_the_meantime_is_outdated() -> None:
    refitted = record_of(history=(NIGHT, NIGHT, replace(NIGHT, refitted=True)))
    check_not_overtaken(record_of(), record_of(), "s3://x")
    with pytest.raises(StoreError, match="another writer has trained this model in the store s3://x meanwhile"):
        check_not_overtaken(record_of(), refitted, "s3://x")


def test_a_newer_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    put(store, record_of())
    with store.write("from the future") as writing:
        as_format_3(writing.root)["models/forest"].attrs["format_version"] = MODEL_FORMAT_VERSION + 1
    newer, supported = MODEL_FORMAT_VERSION + 1, MODEL_FORMAT_VERSION
    with pytest.raises(
        NewerFormat, match=f"'forest' has format version {newer}; this release reads up to {supported}: inst"
    ):
        read_model(store.root(), "forest")


@pytest.mark.parametrize("name", ["a", "A9", "9", "forest-2026.01_x", "m" * 64, "a..b"])
def test_valid_model_names_are_accepted(tmp_path: Path, name: str) -> None:
    store = new_store(tmp_path / "store")
    put(store, record_of(name))
    assert list_models(store.root()) == (name,)
    assert require_model(store.root(), name).name == name


BAD_NAMES = [
    "",
    ".",
    "..",
    "../ledger",
    "a/b",
    "/a",
    "a\\b",
    "a b",
    "-a",
    "_a",
    ".a",
    "ä",
    "a\n",
    "m" * 65,
    "a\0",
    "zarr.json/x",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_names_that_are_paths_are_refused(tmp_path: Path, name: str) -> None:
    store = new_store(tmp_path / "store")
    message = r"a model's name consists of letters, digits, '_', '\.' and '-', 64 at most; .* does not"
    for action in (check_model_name, lambda n: read_model(store.root(), n), lambda n: put(store, record_of(n))):
        with pytest.raises(ModelError, match=message):
            action(name)
    assert list(store.root().group_keys()) == ["segments"]


@pytest.mark.parametrize("attribute", ["parameters", "parameters_hash"])
def test_parameters_that_do_not_match_their_hash_raise(tmp_path: Path, attribute: str) -> None:
    store = new_store(tmp_path / "store")
    put(store, record_of())
    with store.write("damage") as writing:
        attributes = as_format_3(writing.root)["models/forest"].attrs
        damaged: dict[str, Any] = {"parameters": PARAMETERS | {"max_basis": 5}, "parameters_hash": "00"}
        attributes[attribute] = damaged[attribute]
    with pytest.raises(StoreError, match="the model 'forest' holds damaged data: its parameters do not match"):
        read_model(store.root(), "forest")


@pytest.mark.parametrize("missing", ["learned", "history", "parameters_hash", "encoding"])
def test_a_record_with_a_missing_field_raises(tmp_path: Path, missing: str) -> None:
    store = new_store(tmp_path / "store")
    put(store, record_of())
    with store.write("damage") as writing:
        del as_format_3(writing.root)["models/forest"].attrs[missing]
    with pytest.raises(StoreError, match="the model 'forest' holds damaged data"):
        read_model(store.root(), "forest")


def test_a_deleted_chunk_of_a_model_raises(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    put(store, record_of())
    for path in (tmp_path / "store" / "chunks").rglob("*"):
        path.unlink()
    with pytest.raises(StoreError, match="models/forest/basis_vectors of the store cannot be read or written"):
        read_model(store.root(), "forest")


@pytest.mark.parametrize("bad", [{"a": np.array([np.nan])}, {"a": np.array([np.iinfo(np.int64).min])}])
def test_a_model_with_a_non_finite_number_raises(tmp_path: Path, bad: dict[str, Any]) -> None:
    store = new_store(tmp_path / "store")
    put(store, record_of(arrays=bad))
    with pytest.raises(StoreError, match="models/forest/a of the store holds damaged data"):
        read_model(store.root(), "forest")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.thorough
@settings(max_examples=40)
@given(parameters=st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_the_hash_of_parameters_does_not_depend_on_storage_or_key_order(
    tmp_path_factory: pytest.TempPathFactory, parameters: dict[str, Any]
) -> None:
    store = new_store(tmp_path_factory.mktemp("store"))
    record = record_of(parameters=parameters, arrays={})
    put(store, record)
    restored = require_model(store.root(), "forest")
    assert restored.parameters == parameters
    assert restored.parameters_hash == record.parameters_hash
    check_parameters(restored, parameters)
    backwards = dict(reversed(parameters.items()))
    assert replace(record, parameters=backwards).parameters_hash == record.parameters_hash


def test_the_hash_depends_only_on_the_parameters() -> None:
    assert record_of().parameters_hash == record_of("other", learned=(), arrays={}).parameters_hash
    assert record_of().parameters_hash != record_of(parameters=PARAMETERS | {"max_basis": 5}).parameters_hash


def test_every_changed_parameter_is_named_with_both_values() -> None:
    now = {"method": "online", "kernel": {"name": "linear"}, "max_basis": 5, "new": 1}
    message = (
        r"the model 'forest' was trained with other parameters: kernel\.gamma was 0\.0185\d*, is none; "
        r"kernel\.name was 'rbf', is 'linear'; max_basis was 4, is 5; new was none, is 1; .*--new-model"
    )
    with pytest.raises(ModelError, match=message):
        check_parameters(record_of(), now)


def test_the_smallest_change_counts() -> None:
    nearly = PARAMETERS | {"kernel": {"name": "rbf", "gamma": float(np.nextafter(1 / 54, 1))}}
    with pytest.raises(ModelError, match=r"kernel\.gamma was .*, is "):
        check_parameters(record_of(), nearly)


def test_the_same_parameters_in_any_order_are_accepted() -> None:
    check_parameters(record_of(), dict(reversed(PARAMETERS.items())))
