"""Untrusted stores and models: nothing in them is executed, leaves the folder, or exhausts memory.

Whatever a record contains, reading and using it either works or ends in an error with its own exit code.
"""

import copy
import hashlib
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import icechunk
import numpy as np
import numpy.typing as npt
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.jobs.jobs import Workplace, open_store, run_command
from support.stores.stores import plain_model
from support.stores.training import MODEL
from zarr.codecs import ZstdCodec
from zarr.storage import MemoryStore

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.cli.exit_codes import UNEXPECTED, exit_code_of
from ridgestream.pipeline.batch.ols import OLSSettings
from ridgestream.pipeline.models.calibration import calibrated_model_of, kept_of
from ridgestream.pipeline.models.model_record import fitted_of, is_batch, learner_of, model_of
from ridgestream.pipeline.training.request import BatchRequest
from ridgestream.pipeline.training.trainer import trainer_of
from ridgestream.stores.catalog.checkpoints import delete_branch
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, read_ledger
from ridgestream.stores.catalog.models import LISTS, list_models, read_model, require_model
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.files.paths import ObjectPath, Stamp
from ridgestream.stores.parquet import source_walk
from ridgestream.stores.parquet.partitions import list_partitions
from ridgestream.stores.schema.field_types import check_types
from ridgestream.stores.segments import size_limits
from ridgestream.stores.segments.segments import Segment

TOP = Path(__file__).parents[3]

BATCH = {
    "model.method": "subset-of-regressors",
    "model.max_basis": None,
    "model.subset_of_regressors.start_basis": 10,
}


def test_nothing_that_executes_its_input_is_imported() -> None:
    """Checks for pickle, shelve, marshal and similar modules, eval, exec, and pickle readers of NumPy and pandas."""
    banned = re.compile(
        r"^\s*(?:import|from)\s+(?:pickle|cloudpickle|dill|shelve|marshal|joblib|yaml|code|runpy)\b"
        r"|\b(?:eval|exec|__import__)\(|allow_pickle|read_pickle|np\.load\(|numcodecs\.Pickle|(?:un)?pickle\.",
        re.MULTILINE,
    )
    for room in ("pipeline", "stores", "jobs"):
        for file in (TOP / room).rglob("*.py"):
            assert not banned.search(file.read_text()), file


def test_no_zarr_codec_unpickles() -> None:
    from zarr.registry import get_codec_class

    for name in ("pickle", "numcodecs.pickle", "json2", "numcodecs.json2", "msgpack2", "numcodecs.msgpack2"):
        with pytest.raises((KeyError, getattr(zarr.errors, "UnknownCodecError", KeyError)), match=name):
            get_codec_class(name)


@dataclass
class StoredModel:
    """A model as JSON and arrays, which tests modify."""

    plain: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]

    def root(self) -> zarr.Group:
        """Write the model into a store in memory."""
        root = zarr.create_group(MemoryStore())
        group = root.create_group("models/model", attributes=cast("Any", self.plain))
        for name, values in self.arrays.items():
            codec = ZstdCodec(level=1, checksum=True)
            chunks = tuple(max(1, n) for n in values.shape)
            array = group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=chunks, compressors=[codec])
            if values.size:
                array[...] = values
        return root

    def copy(self) -> "StoredModel":
        return StoredModel(copy.deepcopy(self.plain), {name: a.copy() for name, a in self.arrays.items()})


def train_model(folder: Path, changes: dict[str, Any]) -> StoredModel:
    work = Workplace(folder)
    work.put_all(range(2))
    work.run_here({**changes, "model.max_basis": changes.get("model.max_basis", 10), "evaluate.path": None})
    group = cast("zarr.Group", open_store(work.store).root()["models/model"])
    arrays = {name: np.asarray(array[...]) for name, array in group.arrays() if name not in LISTS}
    return StoredModel(plain_model(group), arrays)


@pytest.fixture(scope="module", params=["online", "batch", "experts"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    changes: dict[str, dict[str, Any]] = {"online": {}, "batch": BATCH, "experts": {"model.experts": 3}}
    return train_model(tmp_path_factory.mktemp(request.param), changes[request.param])


OLS = BatchRequest(
    name="model",
    method="ols",
    kernel="rbf",
    kernels=({},),
    settings=OLSSettings(max_basis=10),
    scaling_rows=200,
)


def check_request(root: zarr.Group) -> None:
    """Check whether a model matches a request, as training does."""
    record = require_model(root, "model")
    trainer_of(OLS if is_batch(record) else MODEL).check(read_ledger(root), record)


def predict(root: zarr.Group) -> None:
    record = require_model(root, "model")
    model = model_of(record, with_uncertainty=True)
    rows, none = np.ones((3, len(model.feature_map.numeric))), np.empty((3, 0), dtype=np.int32)
    if not model.feature_map.categorical:
        model.predict(rows, none, [])
        model.deviations(rows, none, [])
    calibrated_model_of(record)


def continue_training(root: zarr.Group) -> None:
    record = require_model(root, "model")
    if is_batch(record):
        fitted_of(record)
        return
    learner = learner_of(record)
    kept_of(record)
    sums, vectors = (record.arrays.get(name) for name in ("normal_rhs", "basis_vectors"))
    width = (record.arrays["cell_centres"] if vectors is None else vectors).shape[1]
    learner.partial_fit(np.ones((3, width)), np.ones((3, 1 if sums is None else sums.shape[1])))


def assert_expected_outcome(root: zarr.Group) -> None:
    for action in (check_request, predict, continue_training):
        try:
            with np.errstate(all="ignore"):
                action(root)
        except Exception as error:
            if exit_code_of(error) == UNEXPECTED:
                raise


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 3, 2**31, 2**60, -(2**63), 10**30]),
    st.sampled_from([0.0, -1.5, 1e-320, 1e308, float("inf"), float("nan")]),
    st.sampled_from(["", "rbf", "linear", "../../x", "/etc/passwd", "online", "ols", "\x00", "x" * 300]),
)
VALUES = st.recursive(
    LEAVES,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(["a", "name"]), each),
    max_leaves=4,
)


def paths_in(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all values nested in a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, each in inner for path in ((*prefix, key), *paths_in(each, (*prefix, key)))]


def change_plain(stored: StoredModel, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(paths_in(stored.plain), key=str)))
    container = stored.plain
    for key in path[:-1]:
        container = container[key]
    if data.draw(st.integers(0, 4)) == 0:
        del container[path[-1]]
    else:
        container[path[-1]] = data.draw(VALUES)


def change_array(stored: StoredModel, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(stored.arrays)))
    values = stored.arrays[name]
    change = data.draw(st.sampled_from(["delete", "type", "cut", "flat", "value", "more"]))
    if change == "delete":
        del stored.arrays[name]
        return
    flat = values.ravel().copy()
    if change == "value":
        flat[data.draw(st.integers(0, flat.size - 1))] = data.draw(
            st.sampled_from([0, -1, 2**62] if flat.dtype.kind == "i" else [0.0, -1.0, 1e300])
        )
    kind, rows = data.draw(st.sampled_from(["f4", "i4", "i8", "?", "c16"])), data.draw(st.integers(0, len(values)))
    with warnings.catch_warnings(action="ignore"):  # of numbers that the other type cannot hold
        stored.arrays[name] = {
            "type": values.astype(kind),
            "cut": values[:rows],
            "flat": flat,
            "value": flat.reshape(values.shape).astype(values.dtype),
            "more": np.concatenate([values, values[-1:]]),
        }[change]


@pytest.mark.samples
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_modified_model_works_or_raises_an_expected_error(stored: StoredModel, data: st.DataObject) -> None:
    changed = stored.copy()
    for _ in range(data.draw(st.integers(1, 2))):
        change = data.draw(st.sampled_from([change_plain, change_array]))
        if change is change_plain or changed.arrays:
            change(changed, data)
    parameters = changed.plain.get("parameters")
    if data.draw(st.booleans()):  # an attacker can compute the hash
        changed.plain["parameters_hash"] = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()
    assert_expected_outcome(changed.root())


def test_an_unmodified_model_works(stored: StoredModel) -> None:
    for action in (check_request, predict, continue_training):
        try:
            action(stored.root())
        except LookupError as error:
            assert "was trained with other parameters" in str(error)  # noqa: PT017 (of the other method)


FIELDS = ["segment", "name", "size_bytes", "modified_ns", "content_sha256", "rows", "dropped"]
FEATURE = {"name": "x", "kind": "number"}
LEDGER = {
    "schema": {"target": "y", "positive": None, "features": [FEATURE], "ignore": [], "weight": None},
    "fields": FIELDS,
    "entries": [[0, "part-0.parquet", 1, 1, "ab", 5, 0], [1, "part-1.parquet", 1, 1, "ac", 5, 0]],
    "categories": [["red"]],
    "classes": [],
    "quarantined": [],
    "next_segment": 2,
}


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_ledger_is_read_or_ends_in_an_expected_error(data: st.DataObject) -> None:
    stored = StoredModel(copy.deepcopy(cast("dict[str, Any]", LEDGER)), {})
    change_plain(stored, data)
    root = zarr.create_group(MemoryStore())
    root.create_group("ledger", attributes=cast("Any", stored.plain))
    try:
        ledger = read_ledger(root)
    except StoreError:
        return
    assert ledger.rows >= 0
    assert ledger.by_name().keys() == {entry.name for entry in ledger.entries}
    check_types(ledger)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.setattr("ridgestream.pipeline.ingest.ingest.LEAST_TASKS", 1)  # so that both share a pack
    work = Workplace(tmp_path)
    work.put_all(range(2))
    work.run_here()
    return work


PACK = "segments/000000-000001"
"""Where the rows of two small partitions are."""


def change_store(work: Workplace, path: str, **array: Any) -> None:
    """Replace an array of the store by one without data."""
    with open_store(work.store).write("untrusted commit") as writing:
        del writing.root[path]
        writing.root.create_array(path, **{"fill_value": 0, **array})
        writing.root[path.rsplit("/", 1)[0]].attrs.pop("sha256", None)  # an attacker can compute it, or leave it out


READERS: dict[str, Callable[[zarr.Group], Any]] = {
    "models": lambda root: read_model(root, "model"),
    "segments": lambda root: (Segment.open(root, 0).read(0, 200), Segment.open(root, 0).facts()),
    "ledger": read_ledger,
}


@pytest.mark.samples(3)
@pytest.mark.parametrize(
    ("path", "array", "message"),
    [
        ("models/model/gram", {"shape": (2**60,), "chunks": (2**60,), "dtype": "float64"}, "claims the shape"),
        ("models/model/gram", {"shape": (2**34, 8), "chunks": (2**20, 8), "dtype": "float64"}, "bytes are to be read"),
        ("models/model/gram", {"shape": (20, 20), "chunks": (2**40, 1), "dtype": "float64"}, "in chunks of"),
        ("models/model/gram", {"shape": (20,), "chunks": (20,), "dtype": "str", "fill_value": ""}, "only numbers"),
        ("models/model/gram", {"shape": (20,), "chunks": (20,), "dtype": "complex128"}, "only numbers"),
        (
            f"{PACK}/targets",
            {"shape": (2**60, 1), "chunks": (2**20, 1), "dtype": "float64"},
            "claims the shape|Invalid array metadata",  # of this project, or of a newer Icechunk
        ),
        (f"{PACK}/numeric", {"shape": (400, 2**40), "chunks": (1, 1024), "dtype": "float32"}, "are to be read"),
        (f"{PACK}/members", {"shape": (2**60, 3), "chunks": (2**20, 3), "dtype": "int64"}, "claims the shape|Invalid"),
        (f"{PACK}/members", {"shape": (2, 3), "chunks": (2, 3), "dtype": "float64"}, "listing of segments"),
        (f"{PACK}/members", {"shape": (2, 3), "chunks": (2, 3), "dtype": "int64"}, "listing of segments"),
        (f"{PACK}/moments", {"shape": (2**34, 5, 8), "chunks": (2**20, 5, 8), "dtype": "float64"}, "bytes are to be"),
        ("ledger/entries", {"shape": (2**60,), "chunks": (2**20,), "dtype": "uint8"}, "claims the shape|Invalid"),
        ("ledger/entries", {"shape": (9,), "chunks": (9,), "dtype": "uint8", "fill_value": 7}, "ledger holds damaged"),
    ],
)
def test_absurd_arrays_are_refused_before_memory_is_allocated(
    work: Workplace, path: str, array: dict[str, Any], message: str
) -> None:
    change_store(work, path, **array)
    root = open_store(work.store).root()
    with pytest.raises(StoreError, match=message):
        READERS[path.split("/", maxsplit=1)[0]](root)


def test_the_command_reports_an_absurd_array_with_the_store_s_exit_code(work: Workplace) -> None:
    change_store(work, "models/model/gram", shape=(2**34, 8), chunks=(2**20, 8), dtype="float64")
    outcome = run_command("predict", work.job(), work.folder / "held-out", work.folder / "out")
    assert outcome.code == exit_codes.STORE
    assert "bytes are to be read" in outcome.err
    assert "Traceback" not in outcome.err


def test_oversized_metadata_is_not_parsed(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(work.store).write("untrusted commit") as writing:
        cast("zarr.Group", writing.root["models/model"]).attrs["history"] = ["x" * 1000] * 200
    monkeypatch.setattr(size_limits, "MAX_METADATA_BYTES", 100_000)
    root = open_store(work.store).root()
    with pytest.raises(StoreError, match=r"models/model of the store has 2\d\d,\d\d\d bytes of metadata"):
        read_model(root, "model")
    assert read_ledger(root).rows == 400


def test_virtual_chunks_are_not_read(work: Workplace) -> None:
    """A virtual chunk may refer to any file or server; none is authorized."""
    secret = work.folder / "secret"
    secret.write_bytes(b"s" * 8)
    location = f"file://{work.folder}/"
    store = open_store(work.store)
    config = icechunk.RepositoryConfig.default()
    storage = icechunk.local_filesystem_store(str(work.folder))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(location, storage))
    altered = icechunk.Repository.open(store.location.storage(), config)
    altered.save_config()
    session = altered.writable_session("main")
    group = cast("zarr.Group", zarr.open_group(session.store)["models/model"])
    del group["centre"]
    group.create_array("centre", shape=(1,), dtype="float64", chunks=(1,), compressors=None)
    session.store.set_virtual_ref(
        "models/model/centre/c/0", f"file://{secret}", offset=0, length=8, validate_container=True
    )
    session.commit("untrusted commit")
    with pytest.raises(StoreError, match=r"models/model/centre|model 'model'"):
        read_model(open_store(work.store).root(), "model")


@pytest.mark.parametrize("name", ["writer.json", "writer.lock", "chunks", "refs/branch.main"])
def test_links_in_a_store_are_not_followed(work: Workplace, name: str) -> None:
    """A link would redirect writes out of the folder."""
    target = work.folder / "elsewhere"
    path = work.store / name
    if path.exists():
        path.rename(target)
    else:
        target.write_text("precious")
    path.symlink_to(target)
    before = target.read_bytes() if target.is_file() else sorted(target.rglob("*"))
    work.put(2)
    for action in (lambda: open_store(work.store), work.run_here):
        with pytest.raises(StoreError, match="is a link to"):
            action()
    assert (target.read_bytes() if target.is_file() else sorted(target.rglob("*"))) == before


def test_a_branch_name_cannot_leave_the_folder(work: Workplace) -> None:
    outside = work.folder / "outside"
    outside.mkdir()
    with pytest.raises(icechunk.IcechunkError):
        delete_branch(open_store(work.store), "checkpoints.x/../../../outside")
    assert outside.exists()


def test_an_array_instead_of_the_group_of_models_is_reported(work: Workplace) -> None:
    store = open_store(work.store)
    with store.lock(), store.write("Change") as writing:
        writing.root.create_array("models", shape=(1,), dtype="float64", overwrite=True)
    with pytest.raises(StoreError, match="the store's list of models holds damaged data"):
        list_models(store.root())


@pytest.mark.samples
@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "x" * 65, "a\x00"])
def test_a_model_name_cannot_be_a_path(work: Workplace, name: str) -> None:
    with pytest.raises(LookupError, match="a model's name consists of"):
        read_model(open_store(work.store).root(), name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": "5"}, "rows cannot be '5'"),
        ({"rows": True}, "rows cannot be True"),
        ({"name": None}, "name cannot be None"),
        ({"segment": 1.5}, "segment cannot be 1.5"),
    ],
)
def test_wrong_types_are_reported_with_their_field(changes: dict[str, Any], message: str) -> None:
    sound: dict[str, Any] = dict(zip(FIELDS, cast("Any", LEDGER["entries"])[0], strict=True))
    check_types(LedgerEntry(**sound))
    with pytest.raises(TypeError, match=message):
        check_types(LedgerEntry(**{**sound, **changes}))
    with pytest.raises(TypeError, match=r"^Ledger\.entries\.0\." + message):
        check_types(Ledger(entries=(LedgerEntry(**{**sound, **changes}),)))


def test_keys_of_a_bucket_that_leave_a_folder_are_not_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions are written under the names of their partitions."""
    source, names = ObjectPath("s3://bucket/rows"), ["good.parquet", "../../evil.parquet", "a/../../evil.parquet"]
    objects = [(name, ObjectPath(f"s3://bucket/rows/{name}"), Stamp(1, 1)) for name in names]
    monkeypatch.setattr(source_walk, "list_objects", lambda _: objects)
    monkeypatch.setattr(source_walk, "check_not_inside_table", lambda _: None)
    assert [file.name for file in list_partitions(source)] == ["good.parquet"]
